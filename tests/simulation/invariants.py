"""What must hold in a simulated cluster after every event, whatever happened."""

from collections.abc import Sequence

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.node import AUTOMATION, OPERATOR, NodeState
from everstep_controller.core.nodes import budgets
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import Question, find_newest
from everstep_sim.cluster import SimulatedCluster


class Invariants:
    """What must hold after every event, whatever happened."""

    def __init__(self) -> None:
        self._claims: dict[str, set[str]] = {}
        self._had_common_step: dict[int, int] = {}
        self._catalogue = Catalogue()
        self._held: dict[str, tuple[tuple[Copy, ...], int]] = {}
        self.common_steps_checked = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        core = cluster.controller.core
        self._categories_sum_to_the_wall_clock(core, cluster.time.now_ns)
        self._claims_are_removed_by_their_owner(core, event)
        whole = cluster.whole_generations()
        self._a_common_step_exists(cluster, whole)
        nodes = core.state.nodes.values()
        isolated = [n.name for n in nodes if n.claims and n.state is NodeState.REPAIRING]
        assert len(isolated) <= budgets.level_limit(core.state), isolated
        assert len(whole) <= 1

    def _categories_sum_to_the_wall_clock(self, core: Core, now_ns: int) -> None:
        for job in core.state.jobs.values():
            totals = job.ledger.totals(now_ns)
            assert sum(totals.values()) == job.ledger.wall_ns(now_ns)
            assert all(amount > 0 for amount in totals.values()), totals

    def _claims_are_removed_by_their_owner(self, core: Core, event: events.Event) -> None:
        for name in self._claims.keys() - core.state.nodes.keys():
            del self._claims[name]  # those of a node that an operator has removed
        for node in core.state.nodes.values():
            now = {claim.owner for claim in node.claims}
            removed = self._claims.get(node.name, set()) - now
            if OPERATOR in removed:
                assert isinstance(event, events.OperatorReleased)
                assert event.node == node.name
            if AUTOMATION in removed:
                assert events.kind_of(event) is reports.CheckFinished
            self._claims[node.name] = now

    def _a_common_step_exists(self, cluster: SimulatedCluster, whole: Sequence[int]) -> None:
        """Once a generation has had one, the loss of any one member leaves a step to restore."""
        job = cluster.job
        if job is None or job.generation.number not in whole:
            return
        if not any(point.generation == job.generation.number for point in job.lineage.branch):
            return  # A restored old journal, before anybody has told it what it lost.
        truth = self._truth(cluster)
        lost = sum(cluster.fleet.nodes[name].agents_lost for name in job.generation.members)
        if (
            truth.recoverable(job.generation.number, job.generation.members, job.world_size).step
            is not None
        ):
            self._had_common_step[job.generation.number] = lost
        if self._had_common_step.get(job.generation.number) != lost:
            return  # None yet, or none since ranks went on without the memory of a lost agent.
        for dead in job.generation.members:
            alive = {name: "-" for name, node in cluster.fleet.nodes.items() if node.alive}
            alive.pop(dead, None)
            found, _ = find_newest(truth, Question(job.lineage.branch, alive, expected=True))
            assert found is not None
            self.common_steps_checked += 1

    def _truth(self, cluster: SimulatedCluster) -> Catalogue:
        """Return what all nodes really hold; only what has changed since is taken anew."""
        for node in cluster.fleet.nodes.values():
            held = (tuple(node.copies), node.settled)
            if self._held.get(node.name) != held:
                self._catalogue.forget(node.name)
                self._catalogue.replace(node.name, *held)
                self._held[node.name] = held
        return self._catalogue
