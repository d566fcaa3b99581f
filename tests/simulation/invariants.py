"""What must hold in a simulated cluster after every event, whatever happened."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.jobs.devices import OCCUPYING
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import AUTOMATION, OPERATOR, NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import budgets
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import Question, find_newest
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.node import LocalJob
from everstep_sim.vault import name_of

# A ledger that seems unchanged is checked at every so manieth event all the same.
_LEDGER_EVERY = 32

_NOTHING = LocalJob()
_NONE: tuple[tuple[Copy, ...], int] = ((), -1)


@dataclass(slots=True)
class _Truth:
    """What all nodes really hold of one job, and what that was worth."""

    catalogue: Catalogue = field(default_factory=Catalogue)
    held: dict[str, tuple[tuple[Copy, ...], int]] = field(default_factory=dict)
    # Of each generation that has had a common step: how many agents its members had lost by then.
    had_common_step: dict[int, int] = field(default_factory=dict)
    # All that the newest check depended on.
    checked: object = None

    def learn(self, job: str, cluster: SimulatedCluster) -> tuple[bool, bool]:
        """Take what has changed since; return whether anything came, and whether anything went."""
        came = went = False
        for node in cluster.fleet.nodes.values():
            local = node.jobs.get(job, _NOTHING)
            held, known = (tuple(local.copies), local.settled), self.held.get(node.name, _NONE)
            if known != held:
                lasts = known[0] == held[0][: len(known[0])] or set(known[0]) <= set(held[0])
                came, went = True, went or not lasts
                named = {name_of(copy): copy for copy in local.copies}
                self.catalogue.record_copies(node.name, named, local.settled)
                self.held[node.name] = held
        return came, went


class Invariants:
    """What must hold after every event, whatever happened."""

    def __init__(self) -> None:
        self._claims: dict[str, set[str]] = {}
        self._drained: set[str] = set()
        self._truths: dict[str, _Truth] = {}
        # By job, what its ledger looked like when it was checked last.
        self._ledgers: dict[str, object] = {}
        # By the name of a job, the number and the members of its newest generation.
        self._members: dict[str, tuple[int, frozenset[str]]] = {}
        self._count = 0
        self.common_steps_checked = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        self._count += 1
        state = cluster.controller.core.state
        for name in self._claims.keys() - state.nodes.keys():
            del self._claims[name]  # those of a node that an operator has removed
        self._claims_are_removed_by_their_owner(state, event)
        isolated = [
            n for n in state.nodes.values() if n.isolation.claims and n.state is NodeState.REPAIRING
        ]
        assert len(isolated) <= budgets.level_limit(state), isolated
        taken = Counter[str]()
        for job in cluster.jobs:
            self._categories_sum_to_the_wall_clock(job, cluster.controller.now_ns)
            whole = cluster.whole_generations(job.name)
            assert len(whole) <= 1
            self._a_common_step_exists(cluster, job, whole)
            ranks = cluster.ranks_of[job.name]
            taken.update(name for number in whole for name in ranks.generations[number].members)
        if cluster.shape.jobs > 1:
            self._no_node_is_given_twice(cluster, taken)

    def journal_restored(self) -> None:
        """Forget what only a journal knows that is gone."""
        self._claims.clear()
        self._drained.clear()
        self._members.clear()

    def _categories_sum_to_the_wall_clock(self, job: JobRecord, now_ns: int) -> None:
        """Time that passes changes no sum, so a ledger is checked when it has changed."""
        ledger = job.ledger
        newest = ledger.segments[-1] if ledger.segments else None
        seen = (job.id, len(ledger.segments), ledger.step_count, ledger.ended_ns, len(ledger.steps))
        seen_now = (*seen, newest and (newest.start_ns, newest.category, newest.incident))
        if self._ledgers.get(job.id) == seen_now and self._count % _LEDGER_EVERY:
            return
        self._ledgers[job.id] = seen_now
        totals = ledger.totals(now_ns)
        assert sum(totals.values()) == ledger.wall_ns(now_ns)
        assert all(amount > 0 for amount in totals.values()), totals

    def _claims_are_removed_by_their_owner(self, state: State, event: events.Event) -> None:
        for node in state.nodes.values():
            before = self._claims.get(node.name)
            if not node.isolation.claims and not before:
                continue
            now = {claim.owner for claim in node.isolation.claims}
            removed = before - now if before else frozenset()
            if removed and self._went_along(node, removed, state, event):
                removed = frozenset()
            if OPERATOR in removed:
                assert isinstance(event, events.OperatorReleased)
                assert event.node == node.name
            # One that was drained may be given back for whatever it was drained for being over.
            if AUTOMATION in removed and node.name not in self._drained:
                assert events.kind_of(event) is reports.CheckFinished
            self._claims[node.name] = now
            claim = node.claim_of(AUTOMATION)
            drained = claim is not None and claim.draining
            (self._drained.add if drained else self._drained.discard)(node.name)

    def _went_along(
        self, node: NodeRecord, removed: Collection[str], state: State, event: events.Event
    ) -> bool:
        """Return whether claims are on the same node under the name that it has come with."""
        if not isinstance(event, events.NodeConnected) or event.node == node.name:
            return False
        return {*removed} <= {claim.owner for claim in state.nodes[event.node].isolation.claims}

    def _no_node_is_given_twice(self, cluster: SimulatedCluster, taken: Counter[str]) -> None:
        """Ranks never exceed the devices; where none are known, no job moves to another's node."""
        devices = cluster.shape.devices
        plans = {
            job.name: (job.generation.number, frozenset(job.generation.members))
            for job in cluster.jobs
            if job.state in OCCUPYING
        }
        for name, (number, members) in plans.items() if not devices else ():
            known = self._members.get(name)
            moved = members - known[1] if known is not None and known[0] < number else frozenset()
            others = {one for job, plan in plans.items() if job != name for one in plan[1]}
            assert not moved & others, f"{sorted(moved & others)} taken by {name} and others"
        for given in (taken, Counter(one for _, members in plans.values() for one in members)):
            over = [name for name, count in given.items() if devices and count > devices]
            assert not over, f"{over} have more ranks than devices"
        self._members.update(plans)

    def _a_common_step_exists(
        self, cluster: SimulatedCluster, job: JobRecord, whole: Sequence[int]
    ) -> None:
        """Once a generation has had one, the loss of any one member leaves a step to restore.

        Second copies of one on a single node are at a keeper, no member, which may go as well.
        """
        if job.generation.number not in whole or len(job.generation.members) == 1:
            return
        number, members = job.generation.number, job.generation.members
        if not any(point.generation == number for point in job.lineage.branch):
            return  # A restored old journal, before anybody has told it what it lost.
        truth = self._truths.setdefault(job.name, _Truth())
        came, went = truth.learn(job.name, cluster)
        lost = sum(cluster.fleet.nodes[name].agents_lost for name in members)
        alive = {name: "-" for name, node in cluster.fleet.nodes.items() if node.alive}
        depends_on = (job.id, number, tuple(members), lost, alive, tuple(job.lineage.branch))
        if truth.checked == depends_on and not came and not went:
            return
        if truth.had_common_step.get(number) != lost:
            if truth.catalogue.recoverable(number, members, job.world_size).step is None:
                return  # None yet, or none since ranks went on without the memory of a lost agent.
            truth.had_common_step[number] = lost
        elif truth.checked == depends_on and not went:
            return  # What came besides takes no step away.
        truth.checked = depends_on
        for dead in members:
            left = {name: address for name, address in alive.items() if name != dead}
            found, _ = find_newest(truth.catalogue, Question(job.lineage.branch, left, True))
            assert found is not None
            self.common_steps_checked += 1
