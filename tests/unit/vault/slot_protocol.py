"""Slot protocols as a model: ranks in lock step, K slots each, granted ahead or asked for.

Its rules are its own, since those of the older protocol are nowhere else; the one that ships is
played with the rules that ship (`slot_world`).

Ticks, and explicit states: what is in each slot, what each agent was told, what the controller has
heard. A step takes ten ticks; a collective ends when the last rank has come. Each rank passes its
boundary by one of two protocols. ``patient``: a rank without a free slot waits for it, anew after
each change of what it was told, and asks for each slot. ``ahead``: the answer to a commit grants
the next slot, a rank waits once for each recoverable step, nobody waits for a commit, and the
controller has ranks that are out of phase meet at steps ahead of all of them. Agents tell which
steps their ranks have left out, so that others free theirs before the next one.
"""

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import count

STEP = 10
# As jobs.slot_wait_s is to a step of 15 ms, and as the wait is that slots which turn over allow.
PATIENCE, BOUND = 3_000, 30
# How long it is told in vain that nothing becomes recoverable, and how far apart ranks meet at
# least, where slots are not taken longer.
_APART, _MEETING = 10, 30


@dataclass(slots=True)
class Rank:
    """One rank, its slots by the step in each, and what its agent was told."""

    slots: dict[int, bool] = field(default_factory=dict)
    # A slot that is being written: granted, for a step, in an epoch.
    granted: int | None = None
    recoverable: int = -1
    dead: frozenset[int] = frozenset()
    rules: tuple[tuple[int, int], ...] = ((0, 1),)
    vain: object = None
    waits: int | None = None
    saved: set[int] = field(default_factory=set)
    missed: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Shape:
    """A job, its network, and what goes wrong."""

    protocol: str
    slots: int = 3
    # Ticks from the commit of each rank until the controller knows that its copy is safe.
    told: Sequence[int] = (2, 2)
    directive: int = 2
    # Steps that a rank does not save.
    skips: Sequence[Collection[int]] = ((), ())
    # Ranks wait for slots at all; agents tell which steps were left out.
    waits: bool = True
    tells: bool = True

    @property
    def spacing(self) -> int:
        """Return how many steps are between two meetings, by what slots are taken."""
        return -(-max(_MEETING, max(self.told) + 2 * self.directive) // STEP)


class Model:
    """One run."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.ranks = [Rank() for _ in shape.told]
        self.now = self.step = 0
        self.recoverable = -1
        self.heard: list[set[int]] = [set() for _ in shape.told]
        # By rank, the newest step that it has left out, and when its newest report arrives.
        self.left_out = [-1 for _ in shape.told]
        self.arrives = [0 for _ in shape.told]
        self.rules: tuple[tuple[int, int], ...] = ((0, 1),)
        self.apart: int | None = None
        self.meets: int | None = None
        self.meets_since, self.spacing = 0, shape.spacing
        self.left: set[int] = set()
        self.longest_wait = 0
        self._events: list[tuple[int, int, str, tuple[int, ...], object]] = []
        self._order = count()

    def run(self, steps: int) -> "Model":
        """Train so many steps."""
        self._later(STEP, "boundary")
        while self._events and self.step < steps:
            self.now, _, kind, who, what = heapq.heappop(self._events)
            getattr(self, f"_{kind}")(*who, what)
            self._check()
        return self

    def common_after(self, step: int) -> int | None:
        """Return the first step after this one that all ranks have saved."""
        return min((s for s in self.ranks[0].saved if s > step and self._common(s)), default=None)

    def _common(self, step: int) -> bool:
        return all(step in rank.saved for rank in self.ranks)

    def _check(self) -> None:
        for rank in self.ranks:
            assert len(rank.slots) + (rank.granted is not None) <= self.shape.slots
            assert rank.granted not in rank.slots, "what is being written is read by nobody"
            # What was told as recoverable is there, whole, whatever was freed.
            assert self.recoverable < 0 or self.recoverable in rank.slots

    def _later(self, ticks: int, kind: str, *who: int, what: object = None) -> None:
        entry = (self.now + ticks, next(self._order), kind, who, what)
        heapq.heappush(self._events, entry)

    # --- ranks -----------------------------------------------------------------------------------

    def _boundary(self, _: object) -> None:
        self.left = set(range(len(self.ranks)))
        for number in sorted(self.left):
            self._pass(number)

    def _pass(self, number: int) -> None:
        rank, step = self.ranks[number], self.step
        if step in self.shape.skips[number]:
            rank.missed.add(step)  # its agent hears nothing of it
            self._leave(number)
        elif not _planned(rank, step):
            self._leave(number)
        elif rank.granted == step or self._free(rank):
            self._save(number)
        elif not self.shape.waits or rank.vain == self._vain(rank):
            self._miss(number)
        else:
            rank.waits = self.now
            limit = BOUND if self.shape.protocol == "ahead" else PATIENCE
            self._later(limit, "timeout", number, what=step)

    def _miss(self, number: int) -> None:
        """Find no slot; that is told after all that the rank has committed before."""
        self.ranks[number].missed.add(self.step)
        if self.shape.tells:
            self._tell(number, self.shape.directive, "passed_by", self.step)
        self._leave(number)

    def _tell(self, number: int, ticks: int, kind: str, step: int) -> None:
        self.arrives[number] = max(self.arrives[number], self.now + ticks)
        self._later(self.arrives[number] - self.now, kind, number, what=step)

    def _vain(self, rank: Rank) -> object:
        if self.shape.protocol == "ahead":
            return rank.recoverable, _rule(rank, self.step)
        return rank.recoverable, rank.dead

    def _free(self, rank: Rank) -> bool:
        """Free what the job can do without; return whether a slot is free."""
        rank.granted = None  # who asks copies into none
        gone = [s for s in rank.slots if s < rank.recoverable or s in rank.dead]
        for step in gone:
            del rank.slots[step]
        return len(rank.slots) < self.shape.slots

    def _save(self, number: int) -> None:
        rank, step = self.ranks[number], self.step
        rank.granted = None
        rank.slots[step] = True
        rank.saved.add(step)
        self._tell(number, self.shape.told[number], "report", step)
        if self.shape.protocol == "ahead":
            wanted = next(s for s in range(step + 1, step + 200) if _planned(rank, s))
            if wanted == step + 1 and self._free(rank):
                rank.granted = wanted
        self._leave(number)

    def _leave(self, number: int) -> None:
        rank = self.ranks[number]
        if rank.waits is not None:
            self.longest_wait = max(self.longest_wait, self.now - rank.waits)
        rank.waits = None
        self.left.discard(number)
        if not self.left:
            self.step += 1
            self._later(STEP, "boundary")

    def _timeout(self, number: int, step: object) -> None:
        rank = self.ranks[number]
        if rank.waits is not None and step == self.step:
            rank.vain = self._vain(rank)
            self._miss(number)

    # --- controller ------------------------------------------------------------------------------

    def _report(self, number: int, step: object) -> None:
        assert isinstance(step, int)
        self.heard[number].add(step)
        self._decide(None)

    def _passed_by(self, number: int, step: object) -> None:
        assert isinstance(step, int)
        self.left_out[number] = max(step, self.left_out[number])
        self._decide(None)

    def _decide(self, _: object) -> None:
        before = self.recoverable
        self.recoverable = max(before, *set.intersection(*self.heard), -1)
        dead = self._passed()
        if not dead or self.recoverable > before:
            self.apart = None
        elif self.apart is None:
            self.apart = self.now
        if self.shape.protocol == "ahead":
            self._bring_together()
        told = (self.recoverable, frozenset(dead), self.rules)
        for number in range(len(self.ranks)):
            self._later(self.shape.directive, "direct", number, what=told)

    def _passed(self) -> set[int]:
        if not all(self.heard):
            return set()
        dead, ahead = set[int](), set[int]()
        for step in sorted(set().union(*self.heard), reverse=True):
            own = {number for number, heard in enumerate(self.heard) if step in heard}
            ahead |= {number for number, left in enumerate(self.left_out) if left >= step}
            if step > self.recoverable and not ahead <= own:
                dead.add(step)
            ahead |= own
        return dead

    def _bring_together(self) -> None:
        if self.meets is not None and self.recoverable >= self.meets:
            self.rules, self.meets = (*self.rules, (self.step + 2, 1)), None
        elif self.apart is not None and self.now - self.apart < _APART:
            self._later(_APART, "decide")
        elif self.apart is not None and self.meets is None:
            self._meet(self.shape.spacing)
        elif self.apart is not None:
            tried = 4 * self.spacing * STEP + _APART
            if self.now - self.meets_since >= tried:
                self._meet(2 * self.spacing)

    def _meet(self, spacing: int) -> None:
        self.meets_since, self.spacing = self.now, spacing
        self.meets = -(-(self.step + 1) // spacing) * spacing
        self.rules = (*self.rules, (self.meets, spacing))

    def _direct(self, number: int, told: object) -> None:
        rank = self.ranks[number]
        assert isinstance(told, tuple)
        rank.recoverable, rank.dead, rank.rules = told
        if rank.granted is None:
            free = self._free(rank)
            if rank.waits is not None and free:
                self._save(number)


def _planned(rank: Rank, step: int) -> bool:
    _, every = _rule(rank, step)
    return step % every == 0


def _rule(rank: Rank, step: int) -> tuple[int, int]:
    return next(rule for rule in reversed(rank.rules) if rule[0] <= step)
