"""Slots of one rank in one generation: who may write which, and when one is free. Pure."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from everstep_agent.vault.snapshots.copies import (
    CopyKey,
    CopyManifest,
    Recoverable,
)
from everstep_agent.vault.snapshots.manifest import ManifestCheck, check_in_parts
from everstep_common.long_frames import finish
from everstep_common.rank_messages import Commit, Entry


class SlotState(Enum):
    """State of a slot."""

    EMPTY = "empty"
    WRITING = "writing"
    COMMITTED = "committed"
    VERIFIED = "verified"


class SlotEvent(Enum):
    """Event in the life of a slot."""

    BEGUN = "begun"
    ABANDONED = "abandoned"
    COMMITTED = "committed"
    HASHED = "hashed"
    FOUND_BAD = "found_bad"
    FREED = "freed"


TRANSITIONS: Mapping[tuple[SlotState, SlotEvent], SlotState] = MappingProxyType(
    {
        (SlotState.EMPTY, SlotEvent.BEGUN): SlotState.WRITING,
        (SlotState.WRITING, SlotEvent.ABANDONED): SlotState.EMPTY,
        (SlotState.WRITING, SlotEvent.COMMITTED): SlotState.COMMITTED,
        (SlotState.COMMITTED, SlotEvent.HASHED): SlotState.VERIFIED,
        (SlotState.COMMITTED, SlotEvent.FOUND_BAD): SlotState.EMPTY,
        (SlotState.VERIFIED, SlotEvent.FOUND_BAD): SlotState.EMPTY,
        (SlotState.VERIFIED, SlotEvent.FREED): SlotState.EMPTY,
    }
)


_TAKEN = (SlotState.COMMITTED, SlotState.VERIFIED)


@dataclass(slots=True)
class SnapshotSlot:
    """One slot. ``pins`` counts those who read its memory and would see a new step in it."""

    index: int
    state: SlotState = SlotState.EMPTY
    epoch: int = 0
    step: int = -1
    pins: int = 0
    entries: tuple[Entry, ...] = ()
    extent_bytes: int = 0
    root_hash: bytes = b""

    def apply(self, event: SlotEvent) -> bool:
        """Change the state; False, and nothing changed, for a pair that is not in the table."""
        to = TRANSITIONS.get((self.state, event))
        if to is None:
            return False
        self.state = to
        return True


@dataclass(frozen=True, slots=True)
class Grant:
    """The slot to copy into, and the epoch to commit with."""

    slot: int
    epoch: int


class SlotTable:
    """The slots of one rank in one generation."""

    def __init__(
        self,
        generation: int,
        rank: int,
        slot_bytes: int,
        slots: list[SnapshotSlot],
        next_epoch: Callable[[], int],
    ) -> None:
        self.generation = generation
        self.rank = rank
        self.slot_bytes = slot_bytes
        self.slots = slots
        # Whether no slot is given out any more: copies are only sources, freed as soon as possible.
        self.retired = False
        self._next_epoch = next_epoch
        # The newest step that the rank has gone past without a copy, and the newest committed one.
        self.left_out = -1
        self._committed = max((slot.step for slot in slots if slot.state in _TAKEN), default=-1)

    def copy_key(self, slot: SnapshotSlot) -> CopyKey:
        """Return the name of what is in a slot."""
        return CopyKey(self.generation, self.rank, slot.step)

    @property
    def passed(self) -> int:
        """Return the newest step that the rank has committed or left out; -1: none."""
        return max(self.left_out, self._committed)

    def refusal(self, step: int) -> str:
        """Return why a step is not taken, whatever slots are free; "" for one that is."""
        if self.has_step(step):
            return f"step {step} is in the vault already"
        if self.is_too_late(step):
            return f"step {step} comes too late: this rank is past step {self.passed}"
        return ""

    def grant_ahead(self, step: int, recoverable: Recoverable) -> Grant | None:
        """Give out a slot for a later step, if one is free now; it is being written from now on."""
        if self.retired or step <= self.passed:
            return None
        return self.begin_step(step, recoverable)

    def free_unneeded(self, recoverable: Recoverable) -> list[SnapshotSlot]:
        """Free the copies that the job can do without, and return their slots."""
        reusable = [slot for slot in self.slots if self.is_reusable(slot, recoverable)]
        return [slot for slot in reusable if slot.apply(SlotEvent.FREED)]

    def take_empty(self) -> list[SnapshotSlot]:
        """Take away the slots that have no copy and are not being written, if none is given out.

        What was given out ahead is written at any time until its process says otherwise or is gone.
        """
        if not self.retired:
            return []
        empty = [slot for slot in self.slots if slot.state is SlotState.EMPTY]
        self.slots = [slot for slot in self.slots if slot.state is not SlotState.EMPTY]
        return empty

    def is_too_late(self, step: int) -> bool:
        """Return whether others may have freed the step since this rank has gone past it.

        The newest committed one may come again: its copy was bad.
        """
        return step <= self.left_out or step < self._committed

    def leave_out(self, step: int) -> bool:
        """The rank goes past a step without a copy of it; return whether that is news.

        One that is committed here and begun once more is not left out: its copy may turn out bad,
        and come again.
        """
        if self.has_step(step):
            return False
        news, self.left_out = step > self.passed, max(step, self.left_out)
        return news

    def begin_step(self, step: int, recoverable: Recoverable) -> Grant | None:
        """Give out a slot for a step; None while every slot is needed or in use."""
        self.abandon()
        free = [slot for slot in self.slots if self.is_reusable(slot, recoverable)]
        if not free:
            return None
        chosen = min(free, key=lambda slot: (slot.state is not SlotState.EMPTY, slot.step))
        chosen.apply(SlotEvent.FREED)
        chosen.apply(SlotEvent.BEGUN)
        chosen.step, chosen.epoch = step, self._next_epoch()
        chosen.entries, chosen.extent_bytes, chosen.root_hash = (), 0, b""
        return Grant(chosen.index, chosen.epoch)

    def is_reusable(self, slot: SnapshotSlot, recoverable: Recoverable) -> bool:
        """Return whether nobody reads the slot and the job can do without what is in it."""
        if slot.pins:
            return False
        if slot.state is SlotState.EMPTY:
            return True
        return slot.state is SlotState.VERIFIED and recoverable.frees(self.copy_key(slot))

    def has_step(self, step: int) -> bool:
        """Return whether the step was committed here already."""
        return any(slot.step == step and slot.state in _TAKEN for slot in self.slots)

    def describe_occupancy(self, recoverable: Recoverable) -> str:
        """Say why no slot is free."""
        held = ", ".join(f"step {slot.step} {slot.state.value}" for slot in self.slots)
        newest = "none" if recoverable.step is None else recoverable.step
        return f"{held}; newest recoverable step {newest}"

    def commit(self, request: Commit, checked: ManifestCheck | None = None) -> SnapshotSlot | str:
        """Take over the copy; a sentence, and nothing changed, when it is not the one begun.

        ``checked``: what was found of its manifest, if somebody has looked already.
        """
        slot = next((slot for slot in self.slots if slot.index == request.slot), None)
        if slot is None or slot.state is not SlotState.WRITING or slot.epoch != request.epoch:
            return f"slot {request.slot} was not given out with epoch {request.epoch}; begin again"
        if slot.step != request.step:
            return f"slot {request.slot} was given out for step {slot.step}, not {request.step}"
        checked = checked or finish(check_in_parts(request.entries, self.slot_bytes))
        if checked.problem:
            return f"{checked.problem}; correct the manifest and begin again"
        slot.apply(SlotEvent.COMMITTED)
        self._committed = max(self._committed, slot.step)
        slot.entries, slot.extent_bytes = request.entries, checked.extent_bytes
        return slot

    def abandon(self) -> None:
        """Take back what was begun and not committed."""
        for slot in self.slots:
            slot.apply(SlotEvent.ABANDONED)

    def mark_verified(self, slot: SnapshotSlot, epoch: int, root_hash: bytes) -> bool:
        """The copy that was committed with this epoch has this hash."""
        if slot.epoch != epoch or not slot.apply(SlotEvent.HASHED):
            return False
        slot.root_hash = root_hash
        return True

    def manifest_of(self, slot: SnapshotSlot) -> CopyManifest:
        """Return what is known of a verified copy."""
        return CopyManifest(self.copy_key(slot), slot.extent_bytes, slot.root_hash, slot.entries)


def told_as_passed(left_out: int, slots: Collection[SnapshotSlot]) -> int | None:
    """Return up to which step a rank has all that it ever gets, by what its slots are in.

    None: its verified copies say as much. A copy that is not verified yet is in no report, and what
    is told stays below it, or it would count as one that the rank never had.
    """
    verified = (slot.step for slot in slots if slot.state is SlotState.VERIFIED)
    unverified = (slot.step - 1 for slot in slots if slot.state is SlotState.COMMITTED)
    told = min([left_out, *unverified])
    return told if told > max(verified, default=-1) else None
