"""A storage process that not even SIGKILL ends, and what goes on around it all the same."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from everstep_common.launcher_messages import End, Notice, Start
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
from integration.storage_world import storage_in, stored, storing
from integration.vault_killed import killable
from integration.vault_world import (
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)
from real.hung_disk import hung
from real.sandbox import denies_fuse

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(bool(denies_fuse()), reason=denies_fuse()),
]
# Where the kernel's FUSE waits for an answer.
_WAITS = "request_wait_answer"


def _state(pid: int) -> str:
    """Return the letter of a process's state; empty when it is gone and reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return ""


def _stuck(parent: int) -> list[int]:
    """Return the children that wait for the server: uninterruptibly, once they are killed."""
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for one in children for pid in _read(one).split()]
    return [pid for pid in pids if _read(Path(f"/proc/{pid}/wchan")) == _WAITS]


def _read(path: Path) -> str:
    """Return what the kernel tells; nothing of what has ended since it was listed."""
    try:
        return path.read_text()
    except OSError:
        return ""


async def _survives_its_kill(pid: int) -> None:
    """Wait until it is killed and does not end: until then its wait could be interrupted."""
    await eventually(lambda: _state(pid) == "D")


async def _hangs(parent: int) -> int:
    return (await eventually(lambda: _stuck(parent)))[0]


async def _gone(pid: int) -> None:
    await eventually(lambda: not _state(pid))


def _committed(node: Node, step: int) -> bool:
    return (1, 0, step, False) in node.outlet.copies()


@lived
async def test_a_job_trains_and_ends_and_others_begin_while_its_storage_process_hangs(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    chosen = settings(
        tmp_path,
        storage_stall_timeout_s=3.0,
        storage_list_timeout_s=3.0,
        storage_drain_timeout_s=2.0,
    )
    async with running(chosen) as node, launcher(node, storage=storage_in(folder)) as control:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.order(start_generation=plan(1))
        while not isinstance(await control.hear(), Start):
            pass  # on a busy machine it is told to wait for storage
        async with trainer(node) as rank:
            await rank.save(1, b"state 1")
            await node.outlet.until(partial(_committed, node, 1))
            with hung(folder):
                node.direct(1, 1, persist_steps=[1])
                pid = await _hangs(os.getpid())
                for step in range(2, 6):
                    await rank.save(step, b"state")
                    await node.outlet.until(partial(_committed, node, step))
                    node.direct(1, step, persist_steps=[1])
                await _others_begin(node, tmp_path / "elsewhere", folder)
                node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
                while not isinstance(await control.hear(), End):
                    pass
                await _survives_its_kill(pid)
                await node.outlet.until(lambda: node.jobs.metrics().storage_workers_hung)
            await _gone(pid)


async def _others_begin(node: Node, elsewhere: Path, hangs: Path) -> None:
    async with launcher(node, job="other", storage=storage_in(elsewhere)):
        await node.outlet.until(lambda: len(node.outlet.bodies("launcher_joined")) == 2)
    async with launcher(node, job="same", storage=Storage(path=str(hangs))) as waits:
        said = await waits.hear()
        assert isinstance(said, Notice)
        assert "waiting for storage" in said.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@lived
async def test_an_agent_is_replaced_while_its_storage_process_hangs(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "steps"
    async with killable(tmp_path) as (node, agent), storing(node, folder) as rank:
        await rank.save(1, b"state 1")
        await node.outlet.until(partial(_committed, node, 1))
        with hung(folder):
            node.direct(1, 1, persist_steps=[1])
            before = agent.pid
            pid = await _hangs(before)
            os.kill(before, number)
            await agent.another_than(before)
            await _survives_its_kill(pid)
            async with launcher(node, job="other"):
                pass
        await _gone(pid)
        # What was to be stored is brought there by the next agent, which nobody had to tell.
        await stored(node, 1)
