"""Step-level snapshots: the state copied to the agent's memory, and back after a failure."""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from everstep.agent_link import AgentLink, Clock
from everstep.memory import Copier, Copy, Mapping
from everstep.restoring import RestoreError, restore_copies
from everstep.state import ShardView, State, offsets, views
from everstep_common.clock import boot_ns
from everstep_common.trainer_messages import (
    Begin,
    Commit,
    Committed,
    Entry,
    NothingToRestore,
    Refused,
    Reserve,
    Reserved,
    Restore,
    Restored,
    RestoreFailed,
    Skip,
    Slot,
)

logger = logging.getLogger("everstep")


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long training waits for the agent at most, in seconds."""

    # The agent answers a Begin after 5 s at the latest, with Skip; the rest is for a busy node.
    begin_s: float = 10.0
    commit_s: float = 10.0
    # Slots are pre-faulted at 2.6 GB/s; a node with all its ranks at it may be ten times slower.
    reserve_s: float = 30.0
    reserve_bytes_per_s: float = 250e6
    # Shards may come from peers: 100 GB at 1 GB/s, and room for sources that turn out bad.
    restore_s: float = 600.0
    # With nothing to restore, training can as well begin without the agent.
    fresh_s: float = 10.0


# Between two questions to an agent that goes away at each.
_RETRY_S = 0.05


class Snapshots:
    """The snapshots of one rank's state. Use from the training thread."""

    def __init__(
        self,
        state: State,
        link: AgentLink | None,
        copier: Copier,
        *,
        starts_fresh: bool = False,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._state = state
        self._link = link
        self._copier = copier
        self._starts_fresh = starts_fresh
        self._deadlines = deadlines or Deadlines()
        self._slots: list[Mapping] = []
        self._slots_session = 0
        self._complaint = ""
        self._stall_ns = 0
        self.unsaved_steps = 0

    def restore(self, clock: Clock = time) -> int | None:
        """Fill the state from the recovery plan's step and return it; None: start at the beginning.

        Raises RestoreError when there is a state to restore and it cannot be had, StateError when
        a shard cannot take part in snapshots at all.
        """
        shards = views(self._state)
        link = self._link
        if link is None or not link.usable:
            return None
        answer, fds = self._ask_for_state(link, tuple(s.name for s in shards), clock)
        try:
            step = self._take(answer, fds, shards)
        finally:
            for fd in fds:
                os.close(fd)
        link.ready()
        return step

    def snapshot(self, step: int) -> bool:
        """Save the state after ``step``; return whether it was saved. Raises StateError only."""
        if self._link is None or not self._link.usable:
            return False
        started_ns = boot_ns()
        complaint = self._save(self._link, step)
        self._stall_ns += boot_ns() - started_ns
        if complaint:
            self.unsaved_steps += 1
        self._tell_once(complaint)
        return not complaint

    def take_stall_ns(self) -> int:
        """Return how long training stood still for snapshots since the last call."""
        stall_ns, self._stall_ns = self._stall_ns, 0
        return stall_ns

    def _tell_once(self, complaint: str) -> None:
        if complaint and complaint != self._complaint:
            logger.warning("steps are not saved: %s", complaint)
        elif not complaint and self._complaint:
            logger.warning("steps are saved again; %d were not", self.unsaved_steps)
        self._complaint = complaint

    # --- saving: each returns a complaint, or "" ------------------------------------------------

    def _save(self, link: AgentLink, step: int) -> str:
        if not link.attach_quickly():
            return "the agent is away"
        link.ready()
        shards = views(self._state)
        begins, size_bytes = offsets(shards)
        if complaint := self._reserve(link, size_bytes):
            return complaint
        slot, _ = link.ask(Begin(step), (Slot, Skip), self._deadlines.begin_s)
        if not isinstance(slot, Slot):
            return _reason(slot)
        if not 0 <= slot.slot < len(self._slots):
            link.drop()
            return "the agent named a slot that it never gave"
        base = self._slots[slot.slot].address
        self._copier.copy(
            [
                Copy(base + at, shard.address, shard.size_bytes)
                for at, shard in zip(begins, shards, strict=True)
            ]
        )
        commit = Commit(step, slot.slot, slot.epoch, _entries(shards, begins))
        answer, _ = link.ask(commit, (Committed,), self._deadlines.commit_s)
        return "" if isinstance(answer, Committed) else _reason(answer)

    def _reserve(self, link: AgentLink, size_bytes: int) -> str:
        fits = self._slots and self._slots[0].size_bytes >= size_bytes
        if fits and self._slots_session == link.session:
            return ""
        for slot in self._slots:
            slot.close()
        self._slots = []
        limits = self._deadlines
        timeout_s = limits.reserve_s + size_bytes / limits.reserve_bytes_per_s
        answer, fds = link.ask(Reserve(size_bytes), (Reserved,), timeout_s)
        try:
            if not isinstance(answer, Reserved):
                return _reason(answer)
            if answer.slot_bytes < size_bytes or len(fds) != answer.slots or not fds:
                link.drop()
                return "the agent gave other slots than were asked for"
            self._slots = [Mapping(fd, answer.slot_bytes, writable=True) for fd in fds]
        except (OSError, ValueError) as error:
            return f"the agent's memory cannot be mapped: {error}"
        finally:
            for fd in fds:
                os.close(fd)
        self._slots_session = link.session
        return ""

    # --- restoring -------------------------------------------------------------------------------

    def _ask_for_state(
        self, link: AgentLink, names: tuple[str, ...], clock: Clock
    ) -> tuple[object, list[int]]:
        patience_s = self._deadlines.fresh_s if self._starts_fresh else self._deadlines.restore_s
        end = clock.monotonic() + patience_s
        while (left_s := end - clock.monotonic()) > 0:
            if not link.attached and not link.attach(left_s):
                break
            answer, fds = link.ask(
                Restore(names), (Restored, NothingToRestore, RestoreFailed), left_s
            )
            if answer is not None:
                return answer, fds
            clock.sleep(_RETRY_S)
        if self._starts_fresh:
            return NothingToRestore(), []
        raise RestoreError(
            f"the agent of this node did not answer for {patience_s:.0f} s, so the state to go on"
            " from is unknown; see 'journalctl -u everstep-agent'"
        )

    def _take(
        self, answer: object, fds: Sequence[int], shards: tuple[ShardView, ...]
    ) -> int | None:
        if isinstance(answer, NothingToRestore):
            return None
        if not isinstance(answer, Restored):
            raise RestoreError(_reason(answer))
        with ExitStack() as stack:
            # All is checked before the first byte is copied: never half of one state in another.
            copies = restore_copies(answer, fds, shards, stack)
            self._copier.copy(copies)
        return answer.step


def _entries(shards: tuple[ShardView, ...], begins: tuple[int, ...]) -> tuple[Entry, ...]:
    return tuple(
        Entry(shard.name, at, shard.size_bytes, shard.format, shard.shape)
        for at, shard in zip(begins, shards, strict=True)
    )


def _reason(answer: object | None) -> str:
    if isinstance(answer, Refused | Skip | RestoreFailed):
        return answer.reason
    return "the agent is lost"
