"""Simulated members without a controller: they free memory among themselves, by the agents' rule.

What the words are and what they free is the agents' own code (`member_words`). Here they travel at
once, from the last member to the first and back, twice a second.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_agent.vault.snapshots.member_words import (
    HeldSteps,
    MemberWords,
    StepWord,
    forget,
    word_of_rank,
)
from everstep_common.member_tree import collector_of
from everstep_controller.core.vault.copies import Copy
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.network import Transport
from everstep_sim.node import LocalJob, SimulatedNode
from everstep_sim.ranks import Ranks, SimulatedGeneration
from everstep_sim.timeline import VirtualTime

_TELL_EVERY_S = 0.5


class MemberAgreements:
    """What members of one job's newest generation tell one another, and free by it."""

    def __init__(self, fleet: SimulatedFleet, time: VirtualTime, ranks: Ranks) -> None:
        self._fleet = fleet
        self._time = time
        self._ranks = ranks
        # By the host of a member, what it has heard of its generation.
        self._words: dict[str, MemberWords] = {}
        # How many copies were freed so.
        self.freed = 0
        time.after(_TELL_EVERY_S, self._tick)

    def _tick(self) -> None:
        generations = self._ranks.generations
        if generations:
            self._tell(max(generations), generations[max(generations)])
        self._time.after(_TELL_EVERY_S, self._tick)

    def _tell(self, generation: int, ours: SimulatedGeneration) -> None:
        count = next(iter(ours.orders.values())).node_count
        members = {order.node_rank: self._fleet.nodes[name] for name, order in ours.orders.items()}
        for node in members.values():
            if not self._speaks(node, generation):
                self._words.pop(node.host, None)
        there = {n: node for n, node in members.items() if self._speaks(node, generation)}
        if count == 1:
            self._tell_keeper(generation, *there.values())
            return
        for number in sorted(there, reverse=True):
            self._tell_above(there, number, generation, count)
        for number in sorted(there):
            words, above = self._words_of(there[number], generation, number, count), None
            words.conclude(self._word(there[number], generation, number, count))
            if (above := self._above(there, number)) is not None:
                words.learn(self._words[above.host].everyone)
            if words.everyone is not None:
                self._free(there[number], generation, words.everyone)

    def _speaks(self, node: SimulatedNode, generation: int) -> bool:
        """Return whether an agent decides of its job's memory without a controller."""
        local = node.of(self._ranks.job)
        here = local.running == generation == local.newest
        return here and not node.is_guided and self._fleet.agent_runs(node)

    def _above(self, there: dict[int, SimulatedNode], number: int) -> SimulatedNode | None:
        """Return the member that hears a member now."""
        above, here = there.get(-1 if (of := collector_of(number)) is None else of), there[number]
        if above is None or here.cut_off or above.cut_off:
            return None
        joined = self._fleet.network.joins(Transport.TCP, here.name, above.name)
        return above if joined else None

    def _tell_above(
        self, there: dict[int, SimulatedNode], number: int, generation: int, count: int
    ) -> None:
        above, of = self._above(there, number), collector_of(number)
        own = self._word(there[number], generation, number, count)
        word = self._words_of(there[number], generation, number, count).branch(own)
        if above is not None and of is not None and word is not None:
            self._words_of(above, generation, of, count).hear(number, word)

    def _words_of(
        self, node: SimulatedNode, generation: int, number: int, count: int
    ) -> MemberWords:
        known = self._words.get(node.host)
        if known is None or known.generation != generation:
            known = self._words[node.host] = MemberWords(generation, number, count)
        return known

    # --- what a node has -------------------------------------------------------------------------

    def _word(self, node: SimulatedNode, generation: int, number: int, count: int) -> StepWord:
        local = node.of(self._ranks.job)
        known = _recoverable(local, generation)
        held = [copy.step for copy in self._own(local, generation)]
        safe = [step for step in held if count == 1 or self._is_kept(generation, number, step)]
        since = -1
        if local.found == generation and held:
            local.first_step = min(held) if local.first_step is None else local.first_step
            since = local.first_step
        out = local.left_out
        passed = -1 if out is None or out.generation != generation else out.step
        word = word_of_rank(generation, HeldSteps(held, held, safe, passed), since)
        return word if known.step is None else replace(word, told=known.step)

    def _own(self, local: LocalJob, generation: int) -> Iterator[Copy]:
        return (one for one in local.copies if one.generation == generation and not one.replica)

    def _is_kept(self, generation: int, rank: int, step: int) -> bool:
        """Return whether the next member has the replica of a rank's step."""
        members = self._ranks.generations[generation].members
        peer = self._fleet.nodes[members[(rank + 1) % len(members)]].of(self._ranks.job)
        wanted = (generation, rank, step)
        return any((c.generation, c.rank, c.step) == wanted for c in peer.copies if c.replica)

    # --- what is freed ---------------------------------------------------------------------------

    def _tell_keeper(self, generation: int, *only: SimulatedNode) -> None:
        """Have the only member free what it needs no more, and the keeper of its replicas, too."""
        for node in only:
            word, local = self._word(node, generation, 0, 1), node.of(self._ranks.job)
            self._free(node, generation, word)
            keeper = self._fleet.nodes.get(local.target)
            if keeper is None or node.cut_off or self._fleet.silent(keeper.name):
                continue
            theirs = keeper.of(self._ranks.job)
            if theirs.newest < generation and not keeper.is_guided:
                kept = {c.step for c in theirs.copies if c.generation == generation}
                safe = tuple(sorted(kept.intersection(word.safe)))
                told = replace(word, safe=safe, told=-1, since=word.passed)
                self._time.after(0.01, partial(self._free, keeper, generation, told))

    def _free(self, node: SimulatedNode, generation: int, everyone: StepWord) -> None:
        local = node.of(self._ranks.job)
        before, known = len(local.copies), _recoverable(local, generation)
        held = {copy.step for copy in local.copies if copy.generation == generation}
        told = forget(known, everyone, held)
        local.free_dead(generation, told.dead_steps)
        if told.step is not None and told != known:
            local.recoverable = generation, told.step
            local.free_below(generation, told.step)
        if len(local.copies) < before:
            self.freed += before - len(local.copies)
            local.measure_slots(self._time.now_ns)
            self._fleet.report(node)


def _recoverable(local: LocalJob, generation: int) -> Recoverable:
    """Return what a node was told to be recoverable of a generation."""
    if local.recoverable is None or local.recoverable[0] != generation:
        return Recoverable(generation)
    return Recoverable(*local.recoverable)
