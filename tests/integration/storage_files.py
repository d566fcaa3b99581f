"""Copies in memory for tests of storage, and processes that are stopped or killed at a point."""

import os
import signal
import sys
from collections.abc import Callable

from everstep_agent.storage.backends.backend import ProgressCallback
from everstep_agent.storage.formats.records import Beginning, StepKey
from everstep_agent.storage.worker.messages import MoveLatest, StorageLocation, WriteCopy
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_agent.vault.snapshots.manifest import extent_bytes, layout_of
from everstep_common.orders import StoredFile
from everstep_common.rank_messages import Entry
from everstep_common.reports import StoredStep

# Two tensors with a byte between them that is not zero, and one that safetensors has no type for.
ENTRIES = (
    Entry("bias", 0, 5, "U8", (5,)),
    Entry("weight", 8, 16, "F32", (2, 2)),
    Entry("state", 24, 7, "json"),
)


def content(step: int, rank: int = 0) -> bytes:
    """The copy of a rank."""
    return bytes((step * 31 + rank * 7 + at) % 251 + 1 for at in range(extent_bytes(ENTRIES)))


def order(path: str, generation: int, step: int, rank: int = 0) -> WriteCopy:
    """The request to write it."""
    memory = content(step, rank)
    return WriteCopy(
        location=StorageLocation(path, "demo"),
        key=StepKey(generation, step),
        rank=rank,
        world_size=1,
        size_bytes=len(memory),
        root_hash=hash_bytes(memoryview(memory)),
        layout=layout_of(ENTRIES),
        entries=ENTRIES,
    )


def publication(
    path: str,
    generation: int,
    key: StepKey | None,
    keep: tuple[StepKey, ...] = (),
    began: Beginning | None = None,
) -> MoveLatest:
    """The request to point ``latest`` to a step of one rank."""
    files: tuple[StoredFile, ...] = ()
    if key is not None:
        memory = content(key.step)
        files = (StoredFile(0, hash_bytes(memoryview(memory)).hex(), len(memory)),)
    return MoveLatest(
        location=StorageLocation(path, "demo"),
        generation=generation,
        target=StoredStep(key.generation, key.step, 1, "", 0) if key else None,
        files=files,
        keep=keep,
        beginning=began,
    )


def beginning(
    generation: int, *lineage: StepKey, job_id: str = "demo-1", cluster: str = "c1"
) -> Beginning:
    """How a generation began: from the last of these steps."""
    return Beginning(
        job="demo",
        job_id=job_id,
        cluster=cluster,
        generation=generation,
        parent=lineage[-1] if lineage else None,
        branch=lineage[:-1],
    )


def interrupted(work: Callable[[ProgressCallback], object], at: int, number: signal.Signals) -> int:
    """Do work in a process of its own that gets a signal at its ``at``-th step; return its pid.

    A step is a call to the kernel that Python tells of (open, rename, mkdir, unlink, lock, …), and
    every beat.
    """
    pid = os.fork()
    if pid:
        return pid
    steps = 0

    def step(event: str) -> None:
        nonlocal steps
        if event == "open" or event.startswith(("os.", "fcntl.")):
            steps += 1
            if steps == at:
                os.kill(os.getpid(), number)

    sys.addaudithook(lambda event, arguments: step(event))
    try:
        work(lambda count: step("open"))
    except Exception:  # noqa: BLE001 - what becomes of the files is what is looked at
        os._exit(1)
    os._exit(0)


def ended(pid: int) -> int:
    """Wait for its end: 0, 1 for an error, minus the number of a signal."""
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def stopped_or_ended(pid: int) -> bool:
    """Wait until it is stopped (True) or has ended."""
    _, status = os.waitpid(pid, os.WUNTRACED)
    return os.WIFSTOPPED(status)
