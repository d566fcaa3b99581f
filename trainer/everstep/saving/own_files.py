"""Own files: a rank whose agent stays away writes the step that is wanted to the job's folder.

The order for it lies in that folder, which a thread looks at while the agent is away. Nothing here
waits for the folder but threads: it may hang.
"""

import ctypes
import hashlib
import logging
import mmap
import os
import secrets
import threading
import time
from contextlib import suppress

from everstep.rank.agent_link import AgentLink
from everstep.saving.exchange import Grant, Outcome, failed
from everstep.saving.mapping import Paddings
from everstep.saving.policy import Policy
from everstep.saving.reservation import Pinner
from everstep_common.clock import Clock
from everstep_common.job_ids import token_hash
from everstep_common.own_files import (
    ORDER,
    ORDER_BYTES_MAX,
    OwnFileError,
    OwnOrder,
    OwnRecord,
    own_data_name,
    own_record_name,
    seal,
    step_of_folder,
    unseal,
)
from everstep_common.rank_messages import Entry, Slot

logger = logging.getLogger("everstep")
# An agent that is upgraded is back well before.
_AWAY_S = 20.0
_LOOK_S = 1.0
_WRITE_BYTES = 8 * 1024 * 1024
_MEMORY_INFO = "/proc/meminfo"


class OwnFiles:
    """Steps of this rank that no agent takes; for one thread at a time, between two steps."""

    def __init__(self, link: AgentLink, clock: Clock = time) -> None:
        self._link = link
        self._clock = clock
        self._away_since_s: float | None = None
        # The newest order that was seen; set by the thread that looks for it.
        self._order: OwnOrder | None = None
        self._looks: threading.Thread | None = None
        self._writes: threading.Thread | None = None
        self._stops = threading.Event()

    def exchange(self, step: int) -> "OwnExchange | None":
        """Return what takes this step, if it is the one that was asked for; None: another one."""
        member = self._link.member
        if not member.persist:
            return None
        if self._link.answers:
            self._away_since_s, self._order = None, None
            self._stops.set()
            return None
        now_s = self._clock.monotonic()
        if self._away_since_s is None:
            self._away_since_s = now_s
        if now_s - self._away_since_s < _AWAY_S:
            return None
        self._look()
        order = self._order
        if order is None or order.step != step or _is_alive(self._writes):
            return None
        return OwnExchange(self, order)

    def write(self, order: OwnOrder, memory: memoryview, entries: tuple[Entry, ...]) -> None:
        """Have a copy written, in a thread: nothing waits for the folder. Raises RuntimeError."""
        thread = threading.Thread(
            target=self._write, args=(order, memory, entries), name="everstep-own", daemon=True
        )
        thread.start()
        self._writes = thread

    def _look(self) -> None:
        if _is_alive(self._looks):
            return
        self._stops = threading.Event()
        thread = threading.Thread(
            target=self._look_on, args=(self._stops,), name="everstep-look", daemon=True
        )
        with suppress(RuntimeError):  # no more threads: at the next step
            thread.start()
            self._looks = thread

    def _look_on(self, stops: threading.Event) -> None:
        while not stops.is_set():
            with suppress(OSError, OwnFileError):  # it is not there, or none of this job's
                self._order = self._newest_order()
            stops.wait(_LOOK_S)

    def _newest_order(self) -> OwnOrder | None:
        folder = _generation_folder(self._link)
        steps = (step_of_folder(name) for name in os.listdir(folder))
        newest = max((step for step in steps if step is not None), default=None)
        if newest is None:
            return None
        member = self._link.member
        content = _read(os.path.join(folder, f"step-{newest}", ORDER))
        order = unseal(OwnOrder, content, token_hash(member.token))
        named = (order.job, order.generation, order.step)
        return order if named == (member.job, member.generation, newest) else None

    def _write(self, order: OwnOrder, memory: memoryview, entries: tuple[Entry, ...]) -> None:
        member = self._link.member
        try:
            found = hashlib.sha256(memory).hexdigest()
            folder = os.path.join(_generation_folder(self._link), f"step-{order.step}")
            _write_whole(folder, own_data_name(member.rank), memory)
            record = OwnRecord(
                order=order,
                rank=member.rank,
                size_bytes=len(memory),
                sha256=found,
                entries=entries,
            )
            content = seal(record, token_hash(member.token))
            _write_whole(folder, own_record_name(member.rank), memoryview(content))
        except Exception as error:  # noqa: BLE001 - whatever it is, training shall not end by it
            what = f"{type(error).__name__}: {error}"
            logger.warning("step %d could not be written without the agent: %s", order.step, what)
            return
        logger.warning("the agent is away; step %d was written to %s", order.step, member.persist)


class OwnExchange:
    """Saving of one step without an agent, as `SaveExchange` is with one."""

    policy = Policy()

    def __init__(self, files: OwnFiles, order: OwnOrder) -> None:
        self._files = files
        self._order = order
        self._memory: mmap.mmap | None = None

    def begin(self, step: int, size_bytes: int, pinner: Pinner | None) -> Grant | Outcome:
        """Have memory of this process's own for the copy, where the node has it to spare."""
        del pinner  # the memory is used once: to register it takes longer than to copy without
        # Twice: what it is written to is memory, too, until it is on its disk.
        if _available_bytes() < 2 * size_bytes:
            return failed("the node has no memory for a copy that is written without the agent")
        # A state without a byte has a record all the same: no memory is empty.
        self._memory = memory = mmap.mmap(-1, max(1, size_bytes))
        memory.madvise(mmap.MADV_DONTFORK)  # a data loader's worker would keep it
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        return Grant(step, Slot(0, 0), 0, address, Paddings())

    def commit(self, grant: Grant, entries: tuple[Entry, ...]) -> Outcome:
        """Have the copy written; it counts as not saved until members have read it in."""
        assert self._memory is not None
        extent = max(entry.offset_bytes + entry.size_bytes for entry in entries)
        self._files.write(self._order, memoryview(self._memory)[:extent], entries)
        return failed(f"the agent is away; step {grant.step} is written to the job's folder")


def _is_alive(thread: threading.Thread | None) -> bool:
    return thread is not None and thread.is_alive()


def _generation_folder(link: AgentLink) -> str:
    member = link.member
    return os.path.join(member.persist, member.job, f"gen-{member.generation}")


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        return file.read(ORDER_BYTES_MAX)


def _write_whole(folder: str, name: str, content: memoryview) -> None:
    """Write a file, under its name whole or not at all. Raises OSError."""
    unnamed = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(unnamed, flags, 0o666)
    try:
        try:
            while content:
                content = content[os.write(fd, content[:_WRITE_BYTES]) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(unnamed, os.path.join(folder, name))
    except BaseException:
        with suppress(OSError):
            os.unlink(unnamed)
        raise
    _sync(folder)


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _available_bytes() -> int:
    """Return how much memory the node has to spare; 0 where nobody knows."""
    with suppress(OSError, ValueError), open(_MEMORY_INFO, encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 0
