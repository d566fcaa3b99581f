"""An agent's pair tests: each is done once, beside no ranks, within its deadline, and answered."""

import asyncio
import json
import sys
from collections.abc import Coroutine
from pathlib import Path

import pytest

from everstep_agent.pair_test.runner import PairTester
from everstep_common.orders import RunPairTest
from everstep_common.reports import PairFigure, PairTested
from fakes.waits import eventually

FIGURES = [
    {"name": "gpu0 compute", "amount": 1.0, "unit": "GFMA", "seconds": [0.01, 0.012, 0.011]},
    {"name": "gpu0 compute", "amount": 1.0, "unit": "GFMA", "seconds": [0.02, 0.02, 0.02]},
]
DONE = {
    "figures": FIGURES,
    "untested": [{"name": "gpu1", "why": "in use by process 7"}],
    "models": ["H100"],
}


class _Node:
    """A node with a program in the place of the fixed work, that notes how it was started."""

    def __init__(self, folder: Path, program: str) -> None:
        self.answers: list[PairTested] = []
        self.pids: list[int] = []
        self.factor = 1.0
        self.started = folder / "started"
        self._answered = asyncio.Event()
        note = f"import sys; open({str(self.started)!r}, 'a').write(sys.argv[1] + '\\n')\n"
        script = folder / "work.py"
        script.write_text(note + program)
        command = (sys.executable, "-S", str(script))
        self.tester = PairTester(self._take, lambda: self.pids, lambda: self.factor, command)

    def _take(self, answer: PairTested) -> None:
        self.answers.append(answer)
        self._answered.set()

    def order(self, name: str = "n/pair/1", seconds: float = 60) -> None:
        deadline_ns = int(seconds * 1e9)
        self.tester.order(
            RunPairTest(id=name, node="n", reason="x", rounds=2, deadline_ns=deadline_ns)
        )

    async def answer(self) -> PairTested:
        await self._answered.wait()
        self._answered.clear()
        return self.answers[-1]

    async def begun(self) -> None:
        await eventually(self.started.exists)


def run(work: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


SAYS = f"print({json.dumps(json.dumps(DONE))})\n"
HANGS = "import time\ntime.sleep(3600)\n"


def test_the_median_of_each_round_is_told_and_what_was_not_measured(tmp_path: Path) -> None:
    async def work() -> None:
        node = _Node(tmp_path, SAYS)
        node.order()
        assert await node.answer() == PairTested(
            "n/pair/1",
            (PairFigure("gpu0 compute", (11_000_000, 20_000_000)),),
            ("gpu1: in use by process 7",),
        )
        told = json.loads(node.started.read_text())
        assert (told["rounds"], told["factor"]) == (2, 1.0)

    run(work())


def test_ordered_again_it_is_answered_and_not_done_again(tmp_path: Path) -> None:
    async def work() -> None:
        node = _Node(tmp_path, SAYS)
        node.order()
        node.order()
        first = await node.answer()
        node.order()
        assert await node.answer() == first
        assert len(node.answers) == 2
        assert len(node.started.read_text().splitlines()) == 1

    run(work())


def test_beside_ranks_and_beside_another_test_it_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        node = _Node(tmp_path, HANGS)
        node.pids = [1, 2]
        node.order()
        assert node.answers[-1].refusal == "2 ranks run here"
        node.pids = []
        node.order("n/pair/2")
        node.order("n/pair/3")
        assert node.answers[-1] == PairTested("n/pair/3", refusal="another pair test runs here")
        node.tester.cancel("ranks of j start here")
        await node.answer()

    run(work())


def test_who_comes_with_ranks_ends_it_at_once(tmp_path: Path) -> None:
    async def work() -> None:
        node = _Node(tmp_path, HANGS)
        node.order()
        await node.begun()
        node.tester.cancel("ranks of j start here")
        answer = await node.answer()
        while not answer.refusal:
            answer = await node.answer()
        assert answer.refusal == "it was stopped: ranks of j start here"
        node.tester.cancel("nothing runs any more")

    run(work())


@pytest.mark.parametrize(
    ("program", "seconds", "why"),
    [
        (HANGS, 0.5, "the work was not done in time"),
        ("sys.exit(3)\n", 60, "the work could not be done: its process: it ended"),
        ("print('nonsense')\n", 60, "the work could not be done: "),
        ("print('{\"figures\": 7}')\n", 60, "the work could not be done: "),
    ],
)
def test_work_that_fails_is_told_and_the_next_one_may_come(
    tmp_path: Path, program: str, seconds: float, why: str
) -> None:
    async def work() -> None:
        node = _Node(tmp_path, program)
        node.order(seconds=seconds)
        answer = await node.answer()
        assert answer.refusal.startswith(why)
        await asyncio.sleep(0)
        node.pids = [1]
        node.order("n/pair/2")
        assert node.answers[-1].refusal == "1 ranks run here"

    run(work())


def test_more_work_on_purpose_is_marked(tmp_path: Path) -> None:
    async def work() -> None:
        node = _Node(tmp_path, SAYS)
        node.factor = 1.2
        node.order()
        assert (await node.answer()).injected
        assert json.loads(node.started.read_text())["factor"] == 1.2

    run(work())
