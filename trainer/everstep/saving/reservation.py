"""Slot reservation: the memory that the agent lends to this process, mapped once and kept."""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from everstep.rank.agent_link import AgentLink
from everstep.saving.mapping import Mapping, Paddings
from everstep_common.rank_messages import Refused, Reserve, Reserved

logger = logging.getLogger("everstep")

# Some parts of a state grow by a few bytes a step (a list of losses, a counter's digits). A slot
# has room for that: new slots are new memory, and tens of milliseconds per GiB.
_SLACK_SHARE = 64
_SLACK_BYTES_MIN = 64 * 1024
NO_MEMORY_YET = "no memory yet for the snapshots of this state: %s"
# People wonder why nothing moves when training waits longer.
_TOLD_AFTER_S = 1.0


class Pinner(Protocol):
    """Registration of memory with a device's driver, so that the device copies there itself."""

    def pin(self, address: int, size_bytes: int) -> None:
        """Register; without success copies are slower, and nothing else."""
        ...

    def unpin(self, address: int) -> None:
        """Forget it again; before it is unmapped."""
        ...


class Reservation:
    """Slots of this process; for one thread at a time."""

    def __init__(self) -> None:
        self._slots: list[Mapping] = []
        self._paddings: list[Paddings] = []
        self._pinned_by: Pinner | None = None
        # The link's session that the slots came with, and which of its reservations they are.
        self.session = 0
        self._number = 0
        self._pid = os.getpid()
        self._ahead: threading.Thread | None = None

    def ahead(
        self, link: AgentLink, size_bytes: int, timeout_s: float, pinner: Pinner | None
    ) -> None:
        """Have slots soon, in a thread of its own: its turn. `reserve` waits for what is left.

        What goes wrong is said at once, before there are steps to lose, and tried again then.
        """
        self.wait()

        def reserve() -> None:
            try:
                complaint = self._reserve(link, size_bytes, timeout_s, pinner)
            except Exception as error:  # noqa: BLE001 - else nobody would hear of it
                complaint = f"{type(error).__name__}: {error}"
            if complaint:
                logger.warning(NO_MEMORY_YET, complaint)

        thread = threading.Thread(target=reserve, name="everstep-reserve", daemon=True)
        with suppress(RuntimeError):  # no more threads: then when they are needed
            thread.start()
            self._ahead = thread

    def wait(self) -> None:
        """Return when nothing is done ahead any more."""
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None

    def reserve(
        self, link: AgentLink, size_bytes: int, timeout_s: float, pinner: Pinner | None
    ) -> str:
        """Have slots of this size; return a complaint, or "". A long wait is told."""
        if self.holds(link, size_bytes, pinner):
            return ""
        with _told_if_long(size_bytes):
            self.wait()
            return self._reserve(link, size_bytes, timeout_s, pinner)

    def holds(self, link: AgentLink, size_bytes: int, pinner: Pinner | None) -> bool:
        """Return whether there are such slots, known to the pinner, without any word about them."""
        if self._ahead is not None or not self._holds(link, size_bytes):
            return False
        self._pin(pinner)
        return True

    def _reserve(
        self, link: AgentLink, size_bytes: int, timeout_s: float, pinner: Pinner | None
    ) -> str:
        if not self._holds(link, size_bytes):
            self.close()
            wanted = size_bytes + max(size_bytes // _SLACK_SHARE, _SLACK_BYTES_MIN)
            answer, fds = link.ask(Reserve(wanted), (Reserved,), timeout_s, on_late=_count_on(link))
            try:
                complaint = self._take(link, answer, fds, size_bytes)
            finally:
                for fd in fds:
                    os.close(fd)
            if complaint:
                return complaint
            link.reservations += 1
            self.session, self._number = link.session, link.reservations
        self._pin(pinner)
        return ""

    def place(self, slot: int) -> tuple[int, Paddings] | None:
        """Return where a slot begins, and its paddings; None for one that was never given."""
        if not 0 <= slot < len(self._slots):
            return None
        return self._slots[slot].address, self._paddings[slot]

    def close(self) -> None:
        """Unmap all; nobody may be copying any more."""
        slots, self._slots = self._slots, []
        pinner, self._pinned_by = self._pinned_by, None
        for slot in slots:
            if pinner is not None:
                pinner.unpin(slot.address)
            slot.close()

    def __del__(self) -> None:
        """Let the driver forget what is unmapped; a process that ends need not, nor a child."""
        if not sys.is_finalizing() and os.getpid() == self._pid:
            self.close()

    def _holds(self, link: AgentLink, size_bytes: int) -> bool:
        # Another reservation of this process made these slots void: the agent means the new ones.
        current = (self.session, self._number) == (link.session, link.reservations)
        return current and bool(self._slots) and self._slots[0].size_bytes >= size_bytes

    def _take(
        self, link: AgentLink, answer: object | None, fds: Sequence[int], size_bytes: int
    ) -> str:
        if not isinstance(answer, Reserved):
            return answer.reason if isinstance(answer, Refused) else link.trouble
        if answer.slot_bytes < size_bytes or len(fds) != answer.slots or not fds:
            link.drop()
            return "the agent gave other slots than were asked for"
        try:
            self._slots = [Mapping(fd, answer.slot_bytes, writable=True) for fd in fds]
            self._paddings = [Paddings() for _ in fds]
        except (OSError, ValueError) as error:
            return f"the agent's memory cannot be mapped: {error}"
        return ""

    def _pin(self, pinner: Pinner | None) -> None:
        if pinner is None or self._pinned_by is not None:
            return
        self._pinned_by = pinner
        for slot in self._slots:
            pinner.pin(slot.address, slot.size_bytes)


@contextmanager
def _told_if_long(size_bytes: int) -> Iterator[None]:
    """Tell once, while it lasts, that training waits for memory, and how long it has in the end."""
    began_s, told = time.monotonic(), threading.Event()

    def tell() -> None:
        told.set()
        logger.warning(
            "training waits for memory: the agent is making this process's slots, %.2f GiB each",
            size_bytes / (1 << 30),
        )

    timer = threading.Timer(_TOLD_AFTER_S, tell)
    timer.daemon = True
    with suppress(RuntimeError):  # no more threads
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if told.is_set():
            waited_s = time.monotonic() - began_s
            logger.warning("training waited %.1f s for the memory of its snapshots", waited_s)


def _count_on(link: AgentLink) -> Callable[[object], None]:
    """Return what makes older slots void, too, when the agent gives new ones too late."""

    def count(answer: object) -> None:
        link.reservations += isinstance(answer, Reserved)

    return count
