"""Members without a controller as a model: ranks in lock step, slots, replicas, words that travel.

Virtual milliseconds. What decides is the agent's own code; what is around it (commits, hashes,
copies on their way, lost and late words, agents that start again, a controller that comes back) is
here, as the seed says.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count

from everstep_agent.vault.snapshots.cadence import Cadence
from everstep_agent.vault.snapshots.copies import CopyKey, Recoverable
from everstep_agent.vault.snapshots.member_words import (
    HeldSteps,
    MemberWords,
    StepWord,
    combine,
    forget,
    word_of_rank,
)
from everstep_common.member_tree import collector_of

SLOTS = 3
_TELL_MS, _WORDS_MS = 500, 4000


@dataclass(slots=True)
class Slot:
    """One slot of a rank: the step in it, and how far that is."""

    step: int = -1
    filled: bool = False
    verified: bool = False


@dataclass(slots=True)
class Member:
    """One node: its ranks' slots, the replicas that it keeps, and what its agent knows."""

    ranks: dict[int, list[Slot]]
    # By generation before the newest one, what is left of it to read.
    older: set[CopyKey] = field(default_factory=set)
    replicas: set[CopyKey] = field(default_factory=set)
    stored: set[tuple[CopyKey, int]] = field(default_factory=set)
    target: int = 0
    recoverable: Recoverable = field(default_factory=Recoverable)
    directed: Recoverable = field(default_factory=Recoverable)
    words: MemberWords = field(default_factory=lambda: MemberWords(0, 0, 0))
    cadence: Cadence = field(default_factory=Cadence)
    generation: int = 1
    begun_ms: int = -(10**9)
    silent: bool = False
    controlled: bool = False
    # Of which agent process what comes is, and the first steps that a later one has seen.
    process: int = 0
    first_steps: dict[int, int] = field(default_factory=dict)
    # By rank, the newest step that found no slot.
    left_out: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class World:
    """A job, its network, and what goes wrong; times in milliseconds."""

    members: int = 2
    ranks: int = 1
    step_ms: int = 100
    verify_ms: tuple[int, int] = (1, 20)
    copy_ms: tuple[int, int] = (2, 60)
    travel_ms: tuple[int, int] = (1, 30)
    # Of a hundred words: so many are lost, come twice, and come up to five seconds late.
    lost: int = 0
    doubled: int = 0
    late: int = 0
    slots: int = SLOTS
    # Agents tell which steps their ranks have left out.
    tells: bool = True
    # Of a hundred boundaries: so often a rank saves nothing, for reasons of its own.
    skipped: int = 0


class Model:
    """One run of a generation, and of the next one where somebody begins it."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.now_ms = self.step = 0
        self.members = [
            Member({rank: [Slot() for _ in range(world.slots)] for rank in range(world.ranks)})
            for _ in range(world.members)
        ]
        # The newest step of each generation that no single loss of memory can take.
        self.floor: dict[int, int] = {}
        self.memory_lost = False
        self._order = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        for number, member in enumerate(self.members):
            member.target = (number + 1) % world.members
            self._forget_words(number)
            self.later((0, _TELL_MS), self._teller(number, member.process))
        self.later((world.step_ms, world.step_ms), self._boundary)

    def run(self, for_ms: int) -> None:
        """Let time pass; what was safe once is looked for whenever something is freed."""
        until_ms = self.now_ms + for_ms
        while self._events[0][0] <= until_ms:
            self.now_ms, _, happen = heapq.heappop(self._events)
            happen()
        self.now_ms = until_ms

    def later(self, within_ms: tuple[int, int], happen: Callable[[], None]) -> None:
        """Have something happen after a time between these."""
        at_ms = self.now_ms + self.random.randint(*within_ms)
        heapq.heappush(self._events, (at_ms, next(self._order), happen))

    # --- what is true ----------------------------------------------------------------------------

    def copies_of(self, owner: int, key: CopyKey) -> set[int]:
        """Return the members that have a verified copy of what a rank of a member saved."""
        own = self.members[owner]
        named = self.named(owner, key)
        found = {n for n, other in enumerate(self.members) if named in other.replicas}
        current = own.generation == key.generation
        slots = own.ranks[key.rank] if current else ()
        if any(slot.step == key.step and slot.verified for slot in slots) or key in own.older:
            found.add(owner)
        return found

    def named(self, owner: int, key: CopyKey) -> CopyKey:
        """Return a key by the global rank, as replicas are named."""
        return replace(key, rank=owner * self.world.ranks + key.rank)

    def recoverable(self, generation: int, copies: int = 2) -> int:
        """Return the newest step of which each rank has so many copies; -1: none."""
        steps = {
            key.step
            for member in self.members
            for key in member.replicas | member.older
            if key.generation == generation
        } | {
            slot.step
            for member in self.members
            if member.generation == generation
            for slots in member.ranks.values()
            for slot in slots
            if slot.verified
        }
        for step in sorted(steps, reverse=True):
            if all(
                len(self.copies_of(owner, CopyKey(generation, rank, step))) >= copies
                for owner in range(self.world.members)
                for rank in range(self.world.ranks)
            ):
                return step
        return -1

    @contextmanager
    def freeing(self) -> Iterator[None]:
        """Look before and after something is freed."""
        newest = max(member.generation for member in self.members)
        for generation in (newest, newest - 1):
            known = self.floor.get(generation, -1)
            self.floor[generation] = max(known, self.recoverable(generation))
        yield
        needed = newest if self.floor[newest] >= 0 else newest - 1
        floor = self.floor[needed]
        kept = self.recoverable(needed, 1 if self.memory_lost else 2)
        assert kept >= floor, f"step {floor} of generation {needed} is gone at {self.now_ms}"

    def most_replicas(self) -> int:
        """Return how many replicas of one rank a member has at most."""
        held = Counter((at, k.rank) for at, m in enumerate(self.members) for k in m.replicas)
        return max(held.values(), default=0)

    # --- ranks -----------------------------------------------------------------------------------

    def _boundary(self) -> None:
        self.step += 1
        for number in range(self.world.members):
            for rank in range(self.world.ranks):
                late = (0, max(0, self.world.step_ms // 4))
                self.later(late, partial(self._save, number, rank, self.step))
        self.later((self.world.step_ms, self.world.step_ms), self._boundary)

    def _save(self, number: int, rank: int, step: int) -> None:
        member = self.members[number]
        if member.cadence.next_step(member.generation, step) != step:
            return
        if self.random.randrange(100) < self.world.skipped:
            return
        free = [slot for slot in member.ranks[rank] if self._is_free(member, rank, slot)]
        if not free:
            if self.world.tells:
                member.left_out[rank] = step
            if not member.controlled and self.now_ms - member.begun_ms < _WORDS_MS:
                member.cadence = member.cadence.thinned(member.generation, step)
            return
        slot = min(free, key=lambda one: (one.filled, one.step))
        with self.freeing() if slot.filled else nullcontext():
            slot.step, slot.filled, slot.verified = step, True, False
        member.begun_ms = self.now_ms
        self._verify_later(number, rank, slot)

    def _is_free(self, member: Member, rank: int, slot: Slot) -> bool:
        key = CopyKey(member.generation, rank, slot.step)
        return not slot.filled or (slot.verified and member.recoverable.frees(key))

    def _verify_later(self, number: int, rank: int, slot: Slot) -> None:
        generation, step = self.members[number].generation, slot.step

        def verify() -> None:
            if self.members[number].generation == generation and slot.step == step and slot.filled:
                slot.verified = True
                self._copy_later(number, CopyKey(generation, rank, step))
                self._conclude(number)

        self.later(self.world.verify_ms, verify)

    def _copy_later(self, number: int, key: CopyKey) -> None:
        target, process = self.members[number].target, self.members[number].process

        def arrive() -> None:
            member, keeper = self.members[number], self.members[target]
            own = any(s.step == key.step and s.verified for s in member.ranks[key.rank])
            named = self.named(number, key)
            if member.generation != key.generation or not own or member.process != process:
                return
            if keeper.generation > key.generation or keeper.recoverable.frees(named, replica=True):
                return
            keeper.replicas.add(named)
            member.stored.add((key, target))
            self._conclude(number)

        self.later(self.world.copy_ms, arrive)

    # --- words -----------------------------------------------------------------------------------

    def _word(self, number: int) -> StepWord:
        member = self.members[number]
        words = []
        for rank, slots in member.ranks.items():
            filled = [slot.step for slot in slots if slot.filled]
            safe = [
                slot.step
                for slot in slots
                if slot.verified
                and (CopyKey(member.generation, rank, slot.step), member.target) in member.stored
            ]
            left_out = member.left_out.get(rank, -1)
            held = HeldSteps([slot.step for slot in slots], filled, safe, left_out)
            first_known = min(filled, default=left_out)
            if not member.process or member.generation > 1 or first_known < 0:
                words.append(word_of_rank(member.generation, held))
                continue
            first = member.first_steps.setdefault(rank, first_known)
            words.append(word_of_rank(member.generation, held, first))
        known = member.recoverable
        told = known.step if known.generation == member.generation else None
        return replace(combine(words), told=-1 if told is None else told)

    def _teller(self, number: int, process: int) -> Callable[[], None]:
        def tell() -> None:
            member, above = self.members[number], collector_of(number)
            if member.process != process:
                return
            word = member.words.branch(self._word(number))
            if word is not None and above is not None and self._speaks(member):
                self._send(lambda: self._hear(above, number, word))
            self.later((_TELL_MS * 3 // 4, _TELL_MS * 5 // 4), tell)

        return tell

    def _speaks(self, member: Member) -> bool:
        return not member.silent and not member.controlled

    def _send(self, deliver: Callable[[], None]) -> None:
        chance, world = self.random.randrange(100), self.world
        if chance < world.lost:
            return
        self.later(world.travel_ms, deliver)
        if chance >= 100 - world.doubled:
            self.later((0, 3000), deliver)
        elif world.lost <= chance < world.lost + world.late:
            self.later((0, 5000), deliver)

    def _hear(self, number: int, child: int, word: StepWord) -> None:
        member = self.members[number]
        if self._speaks(member) and member.words.hear(child, word):
            self._conclude(number)
            everyone = member.words.everyone
            self._send(lambda: self._learn(child, everyone))

    def _learn(self, number: int, everyone: StepWord | None) -> None:
        member = self.members[number]
        if self._speaks(member):
            member.words.learn(everyone)
            self._conclude(number)

    def _conclude(self, number: int) -> None:
        member = self.members[number]
        if not self._speaks(member):
            return
        member.words.conclude(self._word(number))
        if member.words.everyone is not None:
            held = {s.step for slots in member.ranks.values() for s in slots if s.verified}
            held |= {key.step for key in member.replicas if key.generation == member.generation}
            self._apply(number, forget(member.recoverable, member.words.everyone, held))

    def _apply(self, number: int, recoverable: Recoverable) -> None:
        member = self.members[number]
        if recoverable == member.recoverable:
            return
        with self.freeing():
            member.recoverable = recoverable
            for rank, slots in member.ranks.items():
                for slot in slots:
                    if slot.filled and slot.verified and self._is_free(member, rank, slot):
                        slot.filled = slot.verified = False
            member.replicas = {k for k in member.replicas if not recoverable.frees(k, replica=True)}
            member.older = {key for key in member.older if not recoverable.frees(key)}

    def _forget_words(self, number: int) -> None:
        generation = self.members[number].generation
        self.members[number].words = MemberWords(generation, number, self.world.members)

    # --- what others do --------------------------------------------------------------------------

    def restart_agent(self, number: int, *, keeps_memory: bool = True) -> None:
        """An agent starts again: it knows its last directive, and hashes the memory that it has."""
        member = self.members[number]
        member.process += 1
        member.stored.clear()
        member.first_steps.clear()
        member.left_out.clear()
        member.recoverable, member.cadence = member.directed, Cadence()
        self._forget_words(number)
        if not keeps_memory:
            self.memory_lost = True
            member.replicas, member.older = set(), set()
            member.ranks = {
                rank: [Slot() for _ in range(self.world.slots)] for rank in member.ranks
            }
        for rank, slots in member.ranks.items():
            for slot in slots:
                if slot.filled:
                    self._verify_later(number, rank, slot)
        self.later((0, _TELL_MS), self._teller(number, member.process))

    def direct(self, number: int, step: int | None, target: int | None = None) -> None:
        """A controller is there for a member, with its truth, which may be an older one."""
        member = self.members[number]
        member.controlled = True
        self._forget_words(number)
        member.directed = Recoverable(member.generation, step)
        member.cadence = Cadence()
        if target is not None and target != member.target:
            member.target = target
            for rank, slots in member.ranks.items():
                for slot in (one for one in slots if one.verified):
                    self._copy_later(number, CopyKey(member.generation, rank, slot.step))
        self._apply(number, member.directed)

    def leave(self, number: int) -> None:
        """The controller is away for a member."""
        self.members[number].controlled = False

    def begin_generation(self, number: int, generation: int) -> None:
        """A member hears of the next generation; what is left of the one before is only read."""
        member = self.members[number]
        for rank, slots in member.ranks.items():
            member.older |= {CopyKey(member.generation, rank, s.step) for s in slots if s.verified}
        member.ranks = {rank: [Slot() for _ in range(self.world.slots)] for rank in member.ranks}
        member.generation, member.cadence = generation, Cadence()
        member.left_out.clear()
        self._forget_words(number)
