"""What an agent says when the ranks of a real job stand still, and when they do not."""

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everstep_common.reports import RanksGoOn, RanksStandStill
from everstep_proto.reports import report_of
from fakes.ports import reserved_port
from fakes.waits import eventually
from integration.trainer_job import environment
from integration.vault_world import Node, lived, plan, running, settings

pytestmark = pytest.mark.timeout(180)
_SCRIPT = Path(__file__).with_name("standing_job.py")
_STEPS = 400


@asynccontextmanager
async def training(
    folder: Path, how: str, *, steps: int = _STEPS, **environ: str
) -> AsyncIterator[Node]:
    """A node with a job of two ranks that trains, and stands still then."""
    async with running(settings(folder, stop_patience_s=1.0)) as node:
        line = ["run", "--job", "demo", "--nproc-per-node", "2"]
        line += ["--socket", str(node.settings.socket_path)]
        command = [str(_SCRIPT), how, str(steps), str(folder / "go")]
        with reserved_port() as port:
            launcher = started([*line, *command], folder / "said", environ)
            try:
                await eventually(lambda: node.jobs.known("demo") is not None)
                start = plan(processes=2)
                start.master_port = port
                node.order(start_generation=start)
                yield node
            finally:
                launcher.kill()
                launcher.wait()


def started(line: list[str], said: Path, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Start the launcher."""
    with said.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "everstep.entry", *line],
            env=environment(EVERSTEP_JOB_TOKEN="secret", **environ),
            stdout=out,
            stderr=out,
        )


def told(node: Node) -> list[object]:
    """Return what the node told of the ranks' standing still."""
    known = [report_of(one) for one in node.outlet.records]
    return [one for one in known if isinstance(one, RanksStandStill | RanksGoOn)]


@lived
async def test_an_evaluation_in_a_pause_is_none_and_a_hang_is_one_until_it_ends(
    tmp_path: Path,
) -> None:
    async with training(tmp_path, "told") as node:
        await eventually(lambda: told(node))
        (still,) = told(node)
        assert isinstance(still, RanksStandStill)
        # The evaluation of 8 s was before these steps.
        assert still.step == _STEPS + 19
        assert still.blind == ""
        assert still.usual_ns < 8e9
        (tmp_path / "go").touch()
        await eventually(lambda: isinstance(told(node)[-1], RanksGoOn))
        assert len(told(node)) == 2


@pytest.mark.parametrize("how", ["stop", pytest.param("gil", marks=pytest.mark.long)])
@lived
async def test_a_script_without_the_sdk_is_judged_by_its_collectives(
    tmp_path: Path, how: str
) -> None:
    async with training(tmp_path, how, steps=2 * _STEPS) as node:
        await eventually(lambda: told(node))
        (still,) = told(node)
        assert isinstance(still, RanksStandStill)
        assert (still.step, still.blind) == (None, "")


@lived
async def test_where_torch_records_nothing_the_steps_that_are_printed_decide(
    tmp_path: Path,
) -> None:
    async with training(tmp_path, "printed", TORCH_FR_BUFFER_SIZE="0") as node:
        await eventually(lambda: told(node))
        (still,) = told(node)
        assert isinstance(still, RanksStandStill)
        assert still.step == _STEPS - 1
        assert "without a collective that torch has recorded" in still.blind
