"""A storage process is reaped when it dies, and what is not wanted any more dies."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_agent.storage.worker.messages import ListSteps, StepListing, StorageLocation
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import ChildExit, JobUser
from fakes.waits import eventually
from integration.vault_world import TIMEOUT_S, lived


async def _idle(folder: Path) -> tuple[StorageWorkerPool, int]:
    user = JobUser(os.getuid(), os.getgid(), tuple(os.getgroups()))
    workers = StorageWorkerPool(str(folder), user, TIMEOUT_S, 2)
    await workers.ask(ListSteps(StorageLocation(str(folder), "demo")), StepListing)
    assert workers.idle_pid is not None
    return workers, workers.idle_pid


def _waiting() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


def _left(pid: int) -> bool:
    """Return whether anything is left of a process: one that is not reaped keeps its place here."""
    return Path(f"/proc/{pid}").exists()


async def _reaped(pid: int) -> None:
    await eventually(lambda: not _left(pid))


@lived
async def test_one_that_dies_while_it_waits_for_more_is_reaped_though_nobody_asks(
    tmp_path: Path,
) -> None:
    workers, pid = await _idle(tmp_path)
    os.kill(pid, signal.SIGKILL)
    await _reaped(pid)
    await workers.close()


@lived
async def test_one_that_is_stopped_does_not_outlive_its_place(tmp_path: Path) -> None:
    workers, pid = await _idle(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    await workers.close()
    assert not _left(pid)


@pytest.mark.parametrize("cancellations", [1, 2, 3])
@lived
async def test_one_whose_asker_is_cancelled_is_reaped(tmp_path: Path, cancellations: int) -> None:
    workers, pid = await _idle(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    requester = asyncio.create_task(
        workers.ask(ListSteps(StorageLocation(str(tmp_path), "demo")), StepListing)
    )
    await asyncio.sleep(0)  # it has the process by now
    assert workers.idle_pid is None
    for _ in range(cancellations):
        requester.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([requester])
    assert requester.cancelled()
    await _reaped(pid)
    await workers.close()


@lived
async def test_one_that_dies_after_everybody_gave_up_is_reaped() -> None:
    child = _waiting()
    death = ChildExit(child)
    assert not await death.wait(0.01)
    assert child.stdin is not None
    child.stdin.close()
    await _reaped(child.pid)
    assert await death.wait(0)
    assert child.returncode == 1
