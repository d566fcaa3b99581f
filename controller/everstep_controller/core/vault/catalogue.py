"""Catalogue of a job's verified copies, and the step that they make recoverable.

It is rebuilt from what agents report and is never journaled: agents can tell it again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from everstep_common.reports import PassedStep, StoredStep
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.copies import Copy, GenerationCopies, Parts, StepCopies, Tier


@dataclass(frozen=True, slots=True)
class Recoverable:
    """Recoverable step: agents may free everything below ``step``, and ``dead_steps`` above it."""

    step: int | None
    # Steps that some rank has passed without a snapshot: they can never become common.
    dead_steps: tuple[int, ...]


class News(NamedTuple):
    """Change of a node's list of copies: those that came, and those that went."""

    new: Sequence[Copy]
    gone: Sequence[Copy]


@dataclass(slots=True)
class _Holding:
    copies: Mapping[bytes, Copy] = field(default_factory=dict)
    settled_generation: int = -1
    # Whole steps in storage that it can read; None until it has said so.
    stored: tuple[StoredStep, ...] | None = None
    # Id of the folder to which it has written files.
    storage_id: str = ""


@dataclass(slots=True)
class Catalogue:
    """The copies of one job, by the node that holds them, and by generation and step."""

    _nodes: dict[str, _Holding] = field(default_factory=dict)
    _generations: dict[int, GenerationCopies] = field(default_factory=dict)

    def replace(self, node: str, copies: Iterable[Copy], settled_generation: int) -> None:
        """Take a node's complete list of copies, in place of the one before."""
        by_place = {(copy.generation, copy.step, copy.place): copy for copy in copies}
        self.record_copies(
            node, {repr(c).encode(): c for c in by_place.values()}, settled_generation
        )

    def record_copies(
        self,
        node: str,
        copies: Mapping[bytes, Copy],
        settled_generation: int,
        news: News | None = None,
    ) -> None:
        """Take a node's complete list of copies, each under a name that no other copy has ever had.

        What comes under a name of the list before is not looked at, so a long list that changes
        little costs little. Of a list that is still the very one that was taken before, only the
        news are looked at.
        """
        held = self._nodes.setdefault(node, _Holding())
        before = held.copies
        if news is None or before is not copies:
            gone = [before[name] for name in before.keys() - copies.keys()]
            news = News([copies[name] for name in copies.keys() - before.keys()], gone)
        for key, some in _by_step(news.gone):
            self._drop(node, key, some)
        refused = [copy for key, some in _by_step(news.new) for copy in self._put(node, key, some)]
        held.copies = copies
        if refused:
            # Copies for which the node has another one already: they are looked at with the next
            # list.
            taken = {id(copy) for copy in refused}
            held.copies = {name: copy for name, copy in copies.items() if id(copy) not in taken}
        held.settled_generation = max(held.settled_generation, settled_generation)

    def record_passed(self, passed: Iterable[PassedStep]) -> None:
        """Take up to which steps ranks have all that they ever get."""
        for one in passed:
            if one.generation in self._generations:
                self._generations[one.generation].leave_out(one.rank, one.step)

    def record_stored(self, node: str, stored: Iterable[StoredStep], storage_id: str = "") -> None:
        """Take the list of whole steps in storage that a node can read, and where it writes."""
        held = self._nodes.setdefault(node, _Holding())
        held.stored, held.storage_id = tuple(stored), storage_id

    def storage_id(self, node: str) -> str:
        """Return the id of the folder to which a node has written files; "": not known."""
        held = self._nodes.get(node)
        return "" if held is None else held.storage_id

    def sees_storage(self, node: str) -> bool:
        """Return whether the node has told what it can read in storage."""
        held = self._nodes.get(node)
        return held is not None and held.stored is not None

    def held(self, node: str) -> Mapping[bytes, Copy]:
        """Return a node's copies by their names."""
        held = self._nodes.get(node)
        return {} if held is None else held.copies

    def unsettle(self, node: str) -> None:
        """Count a node as one that has still to report: its agent may have lost what it held."""
        if (held := self._nodes.get(node)) is not None:
            held.settled_generation = -1

    def forget(self, node: str) -> None:
        """Drop what a lost node held."""
        held = self._nodes.pop(node, None)
        for key, some in _by_step(held.copies.values()) if held is not None else ():
            self._drop(node, key, some)

    def _put(self, node: str, key: StepKey, copies: Sequence[Copy]) -> list[Copy]:
        generation = self._generations.get(key[0])
        if generation is None:
            generation = self._generations[key[0]] = GenerationCopies()
        return generation.put(node, key[1], copies)

    def _drop(self, node: str, key: StepKey, copies: Sequence[Copy]) -> None:
        generation = self._generations[key[0]]
        generation.drop(node, key[1], copies)
        if not generation.steps:
            del self._generations[key[0]]

    def settled(self, node: str) -> int:
        """Return the newest generation that the node has settled; -1 when it never reported."""
        held = self._nodes.get(node)
        return -1 if held is None else held.settled_generation

    def copies(self) -> Iterator[Copy]:
        """Yield all copies, newest step first; what is gone when its turn comes is left out."""
        for number in sorted(self._generations, reverse=True):
            for step in sorted(self.steps(number), reverse=True):
                yield from self.steps(number).get(step, StepCopies()).ordered()

    def memory_bytes(self) -> Counter[str]:
        """Return how much memory each node has in use for copies."""
        return Counter(
            {
                node: sum(c.size_bytes for c in held.copies.values() if c.tier is Tier.MEMORY)
                for node, held in self._nodes.items()
            }
        )

    @property
    def nodes(self) -> Set[str]:
        """Return the nodes that have told of copies, or of steps in storage that they can read."""
        return self._nodes.keys()

    def away(self, reachable: Mapping[str, str]) -> Set[str]:
        """Return the nodes with copies that cannot be reached."""
        return self._nodes.keys() - reachable.keys()

    def parts(self, key: StepKey, away: Collection[str], *, files: bool) -> Parts:
        """Return what the copies of a step, but for those on nodes that are away, are of.

        Its cost follows what is away, not what is there.
        """
        held = (self._nodes[node].copies.values() for node in away)
        lost = [copy for copies in held for copy in copies if (copy.generation, copy.step) == key]
        return self.steps(key[0]).get(key[1], StepCopies()).parts(lost, files=files)

    def steps(self, generation: int) -> Mapping[int, StepCopies]:
        """Return a generation's steps with their copies."""
        known = self._generations.get(generation)
        return {} if known is None else known.steps

    def generations(self) -> list[int]:
        """Return the generations of which there are copies, newest first."""
        return sorted(self._generations, reverse=True)

    def stored(self) -> dict[StepKey, dict[str, StoredStep]]:
        """Return the steps in storage, each with the nodes that can read it and what they found."""
        found: dict[StepKey, dict[str, StoredStep]] = {}
        for node, held in self._nodes.items():
            for step in held.stored or ():
                found.setdefault(step.key, {})[node] = step
        return found

    def layouts(self, generation: int, world_size: int) -> tuple[str, ...]:
        """Return the parts of a generation's state, or () until every rank has the same step."""
        known = self._generations.get(generation)
        for step in sorted(known.steps, reverse=True) if known and world_size else ():
            copies = known.steps[step] if known else StepCopies()
            if len(copies.memory.ranks) >= world_size:
                return tuple(sorted(copies.memory.without(()).layouts))
        return ()

    def differing(self, generation: int, step: int) -> tuple[int, int] | None:
        """Return two ranks that saved different bytes under the same names; None if none did."""
        known = self._generations.get(generation)
        copies = known.steps.get(step) if known else None
        if copies is None or len(copies.memory.layouts) >= len(copies.memory.ranks):
            return None
        first: dict[str, Copy] = {}
        for copy in sorted(copies, key=lambda one: one.rank):
            # What another rank's can stand in for may differ, and is hashed with the rest.
            if copy.needed or copy.tier is not Tier.MEMORY:
                continue
            other = first.setdefault(copy.layout, copy)
            if other.root_hash != copy.root_hash:
                return other.rank, copy.rank
        return None

    def recoverable(
        self,
        generation: int,
        members: Collection[str],
        world_size: int,
        learned: Collection[str] = (),
        told_dead: Collection[int] = (),
    ) -> Recoverable:
        """Return the newest step of a generation that survives the loss of any one node.

        A job of one node cannot have that: there one verified copy of each part is enough. Only
        what is in memory counts, for this decides what may be freed from it. A step of which agents
        were told that it is dead stays so, whatever is reported of it later: some have freed it,
        and tell so later than others tell of new copies.
        """
        known = self._generations.get(generation)
        if known is None:
            return Recoverable(None, ())
        alone = len(members) < 2
        steps, gone = known.steps, known.steps.keys() & set(told_dead)
        if gone:
            steps = {step: copies for step, copies in steps.items() if step not in gone}
        newest = _newest(steps, alone, world_size, learned)
        passed = known.passed(world_size, newest, learned)
        if gone:
            passed = sorted({*passed, *(step for step in gone if newest is None or step > newest)})
        return Recoverable(newest, tuple(passed))


_GENERATION_OF, _NUMBER_OF = itemgetter(1), itemgetter(3)


def _by_step(copies: Collection[Copy]) -> Iterable[tuple[StepKey, Sequence[Copy]]]:
    """Return copies by generation and step; as a rule all are of one."""
    generations, steps = set(map(_GENERATION_OF, copies)), set(map(_NUMBER_OF, copies))
    if len(generations) == len(steps) == 1:
        return [((generations.pop(), steps.pop()), tuple(copies))]
    found: dict[StepKey, list[Copy]] = {}
    for copy in copies:
        found.setdefault((copy.generation, copy.step), []).append(copy)
    return found.items()


def _newest(
    steps: Mapping[int, StepCopies], alone: bool, world_size: int, learned: Collection[str]
) -> int | None:
    for step in sorted(steps, reverse=True):
        copies = steps[step]
        if copies.whole(world_size, learned) and (alone or copies.safe()):
            return step
    return None
