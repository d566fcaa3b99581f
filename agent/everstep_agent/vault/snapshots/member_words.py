"""Member words: what members of a generation say of their steps while no controller is there. Pure.

The words travel up a tree of the members, by their index, and come down as one word of all members.
What it makes needless is forgotten, and nothing else is decided by it: nobody is elected, and a
member that has said nothing leaves the tree without a word of all. Each word stays true for as long
as its generation: whoever has a step frees it only for a newer one that all have. So words may come
late, twice, or from an agent that has started again since.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_common.member_tree import told_to


@dataclass(frozen=True, slots=True)
class StepWord:
    """Steps of a generation, as a rank has them, a member, or a part of the members together."""

    generation: int
    # Steps of which each of its ranks has a verified copy, and so has the keeper of its replicas.
    safe: tuple[int, ...] = ()
    # Of the steps after ``since`` and up to ``passed``, those that each rank has or may come to.
    # Of what is older nothing is concluded: an agent may have lost it, and its replicas not.
    possible: tuple[int, ...] = ()
    since: int = -1
    # The newest step that a rank has committed or left out; -1: none.
    passed: int = -1
    # The newest step that was told to be recoverable, by the controller or by all members; -1: none
    told: int = -1


@dataclass(frozen=True, slots=True)
class HeldSteps:
    """Steps in the slots of a rank."""

    # All of them, also what is being written, and what a slot had last.
    named: Collection[int]
    committed: Collection[int]
    safe: Collection[int]
    # The newest step that the rank has gone past without a copy of it; -1: none.
    left_out: int = -1


def word_of_rank(generation: int, held: HeldSteps, since: int = -1) -> StepWord:
    """Return the word of a rank; of what is older than ``since`` its agent says nothing."""
    passed = max(held.left_out, *held.committed, -1)
    possible = sorted({step for step in held.named if step <= passed})
    return StepWord(generation, tuple(sorted(held.safe)), tuple(possible), since, passed)


def combine(words: Sequence[StepWord]) -> StepWord:
    """Return the one word of several ranks or members of a generation, one at least."""
    safe = set(words[0].safe).intersection(*(word.safe for word in words))
    named = sorted(set(chain.from_iterable(word.possible for word in words)))
    common = (step for step in named if all(step in w.possible or step > w.passed for w in words))
    return StepWord(
        words[0].generation,
        tuple(sorted(safe)),
        tuple(common),
        max(word.since for word in words),
        max(word.passed for word in words),
        max(word.told for word in words),
    )


def forget(known: Recoverable, everyone: StepWord, held: Collection[int]) -> Recoverable:
    """Return what may be freed by a word of all members, of the steps that are held here.

    That is what is older than the newest step that all have, and what some rank has passed without
    a copy of it: that can never be one that all have. A step that all have is here, too: one that
    is not frees nothing, whoever has said it.
    """
    if everyone.generation < known.generation:
        return known
    same = everyone.generation == known.generation
    before = known.step if same and known.step is not None else -1
    newest = max({before} | ({everyone.told, *everyone.safe} & set(held)))
    passed = range(max(newest, everyone.since) + 1, everyone.passed + 1)
    dead = {step for step in held if step in passed and step not in everyone.possible}
    if same:
        dead |= {step for step in known.dead_steps.intersection(held) if step > newest}
    return replace(
        known,
        generation=everyone.generation,
        step=None if newest < 0 else newest,
        dead_steps=frozenset(dead),
    )


@dataclass(slots=True)
class MemberWords:
    """Words of one generation at one member: of those that tell it theirs, and of all members."""

    generation: int
    # Index of this member, and how many there are.
    number: int
    count: int
    everyone: StepWord | None = None
    _heard: dict[int, StepWord] = field(default_factory=dict)

    def hear(self, number: int, word: StepWord) -> bool:
        """Take the word of a member and of those below it; False: it is none of this member's."""
        if number not in told_to(self.number, self.count) or word.generation != self.generation:
            return False
        before = self._heard.get(number)
        told = word.told if before is None else max(before.told, word.told)
        self._heard[number] = replace(word, told=told)
        return True

    def branch(self, own: StepWord) -> StepWord | None:
        """Return the word of this member and of all below it; None while one was not heard."""
        if any(child not in self._heard for child in told_to(self.number, self.count)):
            return None
        return combine([own, *self._heard.values()])

    def conclude(self, own: StepWord) -> None:
        """At the first member: what it has heard of all is the word of all."""
        if self.number == 0:
            self.everyone = self.branch(own) or self.everyone

    def learn(self, everyone: StepWord | None) -> None:
        """At any other member: the word of all members has come down."""
        if everyone is not None and everyone.generation == self.generation:
            self.everyone = everyone
