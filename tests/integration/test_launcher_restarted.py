"""A launcher that is killed and started again while its agent stands still."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from everstep_cli.demo.processes import Child
from integration.counting import PATIENCE_S, launch, said
from integration.real_fleet import JOB, RealFleet, running_fleet
from integration.vault_killed import environ, killable
from integration.vault_world import TIMEOUT_S, Node, lived

_JOINS = """
import sys
from everstep_common.frames import Channel
from everstep_common.launcher_messages import TO_LAUNCHER
from integration.vault_clients import join_message
channel = Channel.connect(sys.argv[1], TO_LAUNCHER, 20)
channel.send(join_message())
print("sent", flush=True)
answer = channel.receive(60)[0]
print(type(answer).__name__, getattr(answer, "reason", ""), flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def _launcher(node: Node) -> AsyncIterator[asyncio.subprocess.Process]:
    """A launcher that has asked to join."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _JOINS, str(node.settings.socket_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ(),
    )
    try:
        assert await _line(process) == "sent"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(3 * TIMEOUT_S):
        return (await process.stdout.readline()).decode().strip()


async def _kill(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.communicate()


@pytest.mark.parametrize("killed", [1, 2])
@lived
async def test_the_next_launcher_is_let_in(tmp_path: Path, killed: int) -> None:
    (tmp_path / "run").mkdir()
    async with killable(tmp_path) as (node, remote), AsyncExitStack() as stack:
        first = await stack.enter_async_context(_launcher(node))
        assert await _line(first) == "Joined"
        os.kill(remote.pid, signal.SIGSTOP)
        await _kill(first)
        for _ in range(1, killed):
            await _kill(await stack.enter_async_context(_launcher(node)))
        last = await stack.enter_async_context(_launcher(node))
        os.kill(remote.pid, signal.SIGCONT)
        assert await _line(last) == "Joined"
        await node.outlet.until(lambda: len(node.outlet.bodies("launcher_joined")) == 2)
        assert len(node.outlet.bodies("launcher_left")) == 1


@lived
async def test_one_beside_a_living_launcher_may_try_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    async with killable(tmp_path) as (node, _), _launcher(node) as first:
        assert await _line(first) == "Joined"
        async with _launcher(node) as second:
            told = await _line(second)
        assert told.startswith("RefusedForNow job demo has a launcher on this node already")
        assert f"'kill {first.pid}'" in told
        assert not node.outlet.bodies("launcher_left")


def _has_asked(launcher: Child) -> bool:
    """Return whether a launcher has its connection to the agent, which it opens for a Join."""
    fds = Path(f"/proc/{launcher.process.pid}/fd")
    try:
        return any(os.readlink(fd).startswith("socket:") for fd in fds.iterdir())
    except OSError:  # one that was just closed
        return False


@pytest.mark.timeout(280)
def test_the_job_goes_on_from_its_newest_step(tmp_path: Path) -> None:
    with running_fleet("node-1") as fleet:
        launch(fleet, step_seconds=0.05)
        fleet.until("steps", PATIENCE_S, lambda: fleet.step() > 20)
        agent, before = fleet.agents["node-1"].process, fleet.launchers["node-1"].process
        agent.send_signal(signal.SIGSTOP)
        try:
            before.kill()
            before.wait(20)
            launch(fleet, step_seconds=0.05)
            after = fleet.launchers["node-1"]
            fleet.until("a Join", PATIENCE_S, lambda: _has_asked(after))
        finally:
            agent.send_signal(signal.SIGCONT)
        reached = fleet.step()
        fleet.until("more steps", PATIENCE_S, lambda: fleet.step() > reached + 20)
        assert after.exit_code is None
        restored = {rank["restored"] for (number, _), rank in said(fleet).items() if number > 1}
        assert restored
        assert None not in restored
        assert all(rank["whole"] for rank in said(fleet).values())
        _refused(fleet)


def _refused(fleet: RealFleet) -> None:
    """A second launcher beside one that lives ends so that a service manager starts it again."""
    first = fleet.launchers["node-1"]
    launch(fleet)
    second = fleet.launchers["node-1"]
    fleet.launchers["node-1"] = first
    fleet.until("a refusal", PATIENCE_S, lambda: second.exit_code is not None)
    assert second.exit_code == 75
    assert f"process {first.process.pid}" in second.log.read_text(encoding="utf-8")
    assert fleet.job().state == "running"
    assert JOB in second.log.read_text(encoding="utf-8")
