"""An agent that stands still: steps go on and are counted, and no late answer is mistaken."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from everstep.copy_engine.memory import Copier
from everstep.rank.agent_link import SILENCE_S, AgentLink
from everstep.rank.environment import Membership
from everstep.run import Run
from everstep.saving.restoring import Restorer
from everstep.state.plain import PlainCapture
from everstep_agent.vault.memory.region import allocate_region
from everstep_agent.vault.snapshots.hashing import hash_region
from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import Attach, Begin, Commit, Describe, Reserve, Restore
from everstep_proto.generated import fleet_pb2
from integration.trainer_rank import environ, free_slots
from integration.vault_killed import RemoteJobs, killable
from integration.vault_world import Node, launcher, lived, plan

pytestmark = pytest.mark.timeout(180)
# Whoever waits in a test that fails is let go then; no step of one that does not is made so late.
_LET_GO_S = 170.0
_WORDS = 1 << 15
# As many as the agent stands still for; a socket has room for the progress of about 270.
_STEPS_STILL = 400
_STEP_S = 0.01
_STILL_S = 4.0


class _Stopper(AgentLink):
    """A link that stops its agent just before it asks for something, once."""

    def __init__(self, member: Membership, pid: int, before: type, step: int = 0) -> None:
        super().__init__(member)
        self._agent, self._before, self._step = pid, before, step
        self.stopped = False
        # Whether it stands still for some seconds, and not until a test has it go on.
        self.goes_on_by_itself = False

    def ask(
        self,
        message: object,
        expected: tuple[type, ...],
        timeout_s: float,
        *,
        silence_s: float = SILENCE_S,
        on_late: Callable[[object], None] = lambda _: None,
    ) -> tuple[object | None, list[int]]:
        self._stop_if_due(message)
        return super().ask(message, expected, timeout_s, silence_s=silence_s, on_late=on_late)

    def post(
        self,
        message: object,
        expected: tuple[type, ...],
        timeout_s: float,
        on_answer: Callable[[object], None],
    ) -> bool:
        self._stop_if_due(message)
        return super().post(message, expected, timeout_s, on_answer)

    def _stop_if_due(self, message: object) -> None:
        due = isinstance(message, self._before) and getattr(message, "step", 0) >= self._step
        if due and not self.stopped:
            self.stop()

    def stop(self) -> None:
        self.stopped = True
        os.kill(self._agent, signal.SIGSTOP)
        still_s = _STILL_S if self.goes_on_by_itself else _LET_GO_S
        self._later = threading.Timer(still_s, self.go_on)
        self._later.start()

    def go_on(self) -> None:
        self._later.cancel()
        os.kill(self._agent, signal.SIGCONT)


def _link(node: Node, remote: RemoteJobs, before: type, step: int = 0, **more: object) -> _Stopper:
    values: dict[str, object] = {
        "job": "demo",
        "generation": 1,
        "rank": 0,
        "socket": str(node.settings.socket_path),
        "token": "secret",
        "starts_fresh": True,
    }
    member = Membership(**(values | more))  # type: ignore[arg-type]
    return _Stopper(member, remote.pid, before, step)


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[tuple[Node, RemoteJobs]]:
    """A node with a real agent, a job's first generation, and who frees its slots."""
    (folder / "run").mkdir()
    async with killable(folder) as (node, remote), launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        controller = asyncio.create_task(free_slots(node))
        try:
            yield node, remote
        finally:
            controller.cancel()


class _Training:
    """A rank that saves each of its steps; the state after a step has its number everywhere."""

    def __init__(self, node: Node, link: AgentLink, **choice: object) -> None:
        self.link = link
        self.state = np.zeros(_WORDS, dtype=np.int64)
        self.run = Run(None, link, environ(node, 1))
        self.snapshots = self.run.snapshots({"w": self.state}, **choice)  # type: ignore[arg-type]
        self.step = -1

    def make_step(self, *, last: bool = False) -> bool:
        self.snapshots.settle()
        self.step += 1
        self.state[:] = self.step
        saved = self.snapshots.snapshot(self.step, last=last)
        self.run.step(self.step)
        time.sleep(_STEP_S)
        return saved

    def make_steps_without_the_agent(self, link: _Stopper) -> None:
        """Train until the agent has been stopped for many steps, and on until all are saved."""
        while not link.stopped:
            self.make_step()
        for _ in range(_STEPS_STILL):
            self.make_step()
        link.go_on()
        in_a_row = 0
        while in_a_row < 20:
            in_a_row = in_a_row + 1 if self.make_step() else 0
        self.snapshots.join()


class _Seen:
    """What the agent ever had verified, with its hashes, and what it reported of steps."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.hashes: dict[int, bytes] = {}
        before = node.outlet.vault_report

        def keep(report: fleet_pb2.VaultReport) -> None:
            before(report)
            for copy in report.copies:
                self.hashes[copy.step] = copy.root_hash

        node.outlet.vault_report = keep  # type: ignore[method-assign]

    async def check(self, training: _Training) -> None:
        """Every step is told, all but those that were counted are here, and each is what it was."""
        last = training.step
        await self._node.outlet.until(lambda: last in self._told_steps() and last in self.hashes)
        assert self._told_steps() == set(range(last + 1))
        unsaved = training.run.unsaved_steps
        assert len(self.hashes) == last + 1 - unsaved
        assert self._records()[-1].snapshots_skipped == unsaved
        for step, root_hash in self.hashes.items():
            assert root_hash == _hash_of(step), f"step {step} is not what it was"

    def _records(self) -> list[fleet_pb2.StepsCompleted]:
        return [r.steps_completed for r in self._node.outlet.bodies("steps_completed")]

    def _told_steps(self) -> set[int]:
        return {r.first_step + n for r in self._records() for n in range(len(r.end_boot_ns))}


def _hash_of(step: int) -> bytes:
    region = allocate_region(8 * _WORDS, "test")
    try:
        os.pwrite(region.fd, np.full(_WORDS, step, dtype=np.int64).tobytes(), 0)
        return hash_region(region, 8 * _WORDS)
    finally:
        region.release()


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(("before", "step"), [(Reserve, 0), (Begin, 0), (Begin, 5), (Commit, 5)])
def test_steps_go_on_unsaved_and_counted_while_it_stands_still(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: type, step: int, overlap: bool
) -> None:
    async def scenario() -> None:
        async with _world(tmp_path) as (node, remote):
            seen = _Seen(node)
            link = _link(node, remote, before, step, agent_log="/of-it/agent.log")
            assert link.attach(20.0)
            training = _Training(node, link, overlap=overlap)
            assert training.snapshots.restore() is None
            await asyncio.to_thread(training.make_steps_without_the_agent, link)
            assert training.run.unsaved_steps >= _STEPS_STILL - 2
            assert link.session == 1
            await seen.check(training)
            link.drop()

    asyncio.run(scenario())
    assert "the agent does not answer (see /of-it/agent.log)" in caplog.text


def test_it_may_stand_still_when_ranks_begin(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _world(tmp_path) as (node, remote):
            seen = _Seen(node)
            link = _link(node, remote, Attach)
            link.stop()
            assert not link.attach(SILENCE_S)
            training = _Training(node, link)
            assert training.snapshots.restore() is None
            await asyncio.to_thread(training.make_steps_without_the_agent, link)
            assert training.run.unsaved_steps >= _STEPS_STILL
            await seen.check(training)
            link.drop()

    asyncio.run(scenario())


def test_it_may_stand_still_when_a_rank_has_lost_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with _world(tmp_path) as (node, remote):
            seen = _Seen(node)
            link = _link(node, remote, Attach)
            assert link.attach(20.0)
            training = _Training(node, link)
            training.make_step()
            link.drop()
            link.stop()
            await asyncio.to_thread(training.make_steps_without_the_agent, link)
            assert training.run.unsaved_steps >= _STEPS_STILL
            await seen.check(training)
            link.drop()

    asyncio.run(scenario())


@lived
async def test_a_state_to_restore_is_waited_for(tmp_path: Path) -> None:
    async with _world(tmp_path) as (node, remote):
        first = _link(node, remote, Attach)
        assert first.attach(20.0)
        training = _Training(node, first)
        assert await asyncio.to_thread(training.make_step)
        await node.outlet.until(lambda: (1, 0, 0, False) in node.outlet.copies())
        node.order(start_generation=plan(2, (node.source(node, 0),), step=0))
        first.drop()
        for before in (Describe, Restore):
            link = _link(node, remote, before, generation=2, starts_fresh=False)
            await asyncio.to_thread(_restore, link)
            link.drop()


def _restore(link: _Stopper) -> None:
    assert link.attach(60.0)
    restorer = Restorer(link, Copier(1), time, 60.0, fresh=False)
    state = np.full(_WORDS, -1, dtype=np.int64)
    link.goes_on_by_itself = True
    described = restorer.described()
    assert described is not None
    assert [entry.name for entry in described.entries] == ["w"]
    assert restorer.restore(PlainCapture({"w": state})) == 0
    assert link.stopped
    assert not state.any()


@pytest.mark.parametrize(
    ("before", "step", "unsaved"), [(Begin, 0, 3), (Commit, 3, 0), (Commit, 1, 1)]
)
def test_the_last_step_is_waited_for(tmp_path: Path, before: type, step: int, unsaved: int) -> None:
    async def scenario() -> None:
        async with _world(tmp_path) as (node, remote):
            link = _link(node, remote, before, step)
            link.goes_on_by_itself = True
            assert link.attach(20.0)
            training = _Training(node, link)
            for number in range(3):
                # A commit is not waited for: that step counts when it is answered after all.
                begun = number < step + (before is Commit)
                assert await asyncio.to_thread(training.make_step) == begun
            assert await asyncio.to_thread(lambda: training.make_step(last=True))
            assert link.stopped
            assert training.run.unsaved_steps == unsaved
            link.drop()

    asyncio.run(scenario())
