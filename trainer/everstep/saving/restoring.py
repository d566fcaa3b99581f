"""Restore: copies the step of the recovery plan from the agent's memory into the training state."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from everstep.copy_engine.memory import Call, Copier, Work
from everstep.copy_engine.views import (
    Capture,
    DescribedState,
    MissingError,
    Restoration,
    RestoreError,
)
from everstep.rank.agent_link import AgentLink
from everstep.saving.mapping import Mapping
from everstep_common.clock import Clock
from everstep_common.rank_messages import (
    Describe,
    DescribedPart,
    Entry,
    NothingToRestore,
    Refused,
    Restore,
    RestoredCopies,
    RestoredCopy,
    RestoreFailed,
)

# Between two questions to an agent that goes away at each; each pause is twice the one before.
_RETRY_S = 0.05
_RETRY_MAX_S = 2.0
# 2 GiB of page tables take 50 ms in one thread, a quarter of the copy itself.
_PREPARED_BYTES = 64 * 1024 * 1024
_PREPARED_BYTES_MIN = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Restorer:
    """Restore of a state. ``patience_s`` bounds each question; ``fresh``: nothing is restored."""

    link: AgentLink
    copier: Copier
    clock: Clock
    patience_s: float
    fresh: bool

    def restore(self, capture: Capture) -> int | None:
        """Return the step whose state it is now; None: nothing to restore, nothing was changed.

        Raises RestoreError and StateError.
        """
        if not capture.needs_description:
            return self.bring(capture.targets(()))
        try:
            return self._bring_into(capture, self.described())
        except MissingError:  # another world size: this rank's parts are in other ranks' copies
            return self._bring_into(capture, self.everyones())

    def _bring_into(self, capture: Capture, described: DescribedState | None) -> int | None:
        if described is None:
            return None
        return self.bring(capture.targets(described.entries), described.step)

    def described(self, *, everyone: bool = False) -> DescribedState | None:
        """Return the shards of the plan's step, of this rank or of all; None: there is no step.

        Raises RestoreError, MissingError when the step's world had no such rank.
        """
        entries: list[Entry] = []
        while True:
            answer, _ = self._ask(Describe(everyone, begin=len(entries)), (DescribedPart,))
            if isinstance(answer, NothingToRestore):
                return None
            if not isinstance(answer, DescribedPart):
                raise (RestoreError if everyone else MissingError)(_reason(answer))
            entries += answer.entries
            if not (answer.left and answer.entries):
                return DescribedState(answer.step, tuple(entries))

    def everyones(self) -> DescribedState | None:
        """Return the shards of the plan's step, of all ranks; None: there is no step."""
        return self.described(everyone=True)

    def bring(self, restoration: Restoration | None, step: int | None = None) -> int | None:
        """Fill it, and what it asks for next; return the step, None: there is none.

        ``step`` is the one that was described. Raises RestoreError and StateError.
        """
        while restoration is not None:
            if not restoration.names:  # to the agent, no names are all names
                restoration.fill({}, self.copier)
                restoration = restoration.finish()
                continue
            with ExitStack() as mappings:
                copies = self._copies(restoration.names, mappings)
                if copies is None:
                    return None
                # All is checked before the first byte is copied: never half of one state.
                self.copier.share(Work(copies.prepared))
                restoration.fill(copies.found, self.copier)
                restoration = restoration.finish()
                step = copies.step
        return step

    def _copies(self, names: tuple[str, ...], mappings: ExitStack) -> "_Copies | None":
        """Have all copies in memory, as many at once as one message has; None: there is no step.

        Raises RestoreError.
        """
        copies = _Copies(mappings)
        while copies.left:
            answer, fds = self._ask(Restore(names, begin=copies.count), (RestoredCopies,))
            try:
                if isinstance(answer, NothingToRestore):
                    return None
                if not isinstance(answer, RestoredCopies):
                    raise RestoreError(_reason(answer))
                copies.map_copies(answer, fds)
            finally:
                for fd in fds:
                    os.close(fd)
        return copies

    def _ask(self, question: object, expected: tuple[type, ...]) -> tuple[object, list[int]]:
        link = self.link
        end_s = self.clock.monotonic() + self.patience_s
        pause_s = _RETRY_S
        while (left_s := end_s - self.clock.monotonic()) > 0:
            if not link.attached and not link.attach(left_s):
                break
            kinds = (*expected, NothingToRestore, RestoreFailed)
            # Without the state there is nothing to train: this is waited for.
            answer, fds = link.ask(question, kinds, left_s, silence_s=left_s)
            if answer is not None:
                return answer, fds
            self.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_MAX_S)
        if self.fresh:
            return NothingToRestore(), []
        raise RestoreError(
            f"the agent of this node did not answer for {self.patience_s:.0f} s, so the state to go"
            " on from is unknown; see 'journalctl -u everstep-agent'"
        )


class _Copies:
    """The agent's copies in memory, read-only, until the ``mappings`` are closed."""

    def __init__(self, mappings: ExitStack) -> None:
        self._mappings = mappings
        self.found: dict[str, tuple[Entry, int]] = {}
        # Work that makes the copying faster.
        self.prepared: list[Call] = []
        self.step = self.count = 0
        self.left = True

    def map_copies(self, answer: RestoredCopies, fds: Sequence[int]) -> None:
        """Map what came; the descriptors stay the caller's. Raises RestoreError."""
        if answer.begin != self.count:  # another agent process: it starts from scratch
            self._begin_anew()
        whole = len(fds) == len(answer.copies) and (answer.copies or not answer.left)
        if answer.begin != self.count or not whole:
            raise RestoreError("the agent sent other descriptors than it announced")
        for copy, fd in zip(answer.copies, fds, strict=True):
            self._map(copy, fd)
        self.count += len(fds)
        self.step, self.left = answer.step, bool(answer.left)

    def _begin_anew(self) -> None:
        self._mappings.close()
        self.found.clear()
        self.prepared.clear()
        self.count = 0

    def _map(self, copy: RestoredCopy, fd: int) -> None:
        try:
            mapping = Mapping(fd, copy.size_bytes, writable=False)
        except (OSError, ValueError) as error:
            raise RestoreError(f"the agent's memory cannot be mapped: {error}") from error
        self._mappings.callback(mapping.close)
        for entry in copy.entries:
            end = entry.offset_bytes + entry.size_bytes
            if entry.offset_bytes < 0 or entry.size_bytes < 0 or end > copy.size_bytes:
                raise RestoreError(f"shard {entry.name!r} lies outside of its copy")
            self.found[entry.name] = (entry, mapping.address + entry.offset_bytes)
            self.prepared += _parts(mapping, entry)


def _parts(mapping: Mapping, entry: Entry) -> list[Call]:
    """Return the work of making a shard's page tables, for threads to share."""
    if entry.size_bytes < _PREPARED_BYTES_MIN:
        return []
    return [
        partial(
            mapping.prepare,
            entry.offset_bytes + at,
            min(_PREPARED_BYTES, entry.size_bytes - at),
        )
        for at in range(0, entry.size_bytes, _PREPARED_BYTES)
    ]


def _reason(answer: object) -> str:
    if isinstance(answer, Refused | RestoreFailed):
        return answer.reason
    return "the agent gave an answer that was not asked for"
