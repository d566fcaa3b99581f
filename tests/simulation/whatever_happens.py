"""What must hold of a simulated cluster, whatever breaks and in any combination."""

from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import AUTOMATION, NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.timers import TimerKind
from everstep_sim.cluster import JOB_FINDING, SimulatedCluster
from everstep_sim.timeline import SECOND
from simulation.budget_watch import Budgets
from simulation.invariants import Invariants
from simulation.own_agents import OwnAgents
from simulation.waiting import Waits

# A watcher probes once a second, so a silence may be that much shorter than it looks.
QUIET_NS = Settings().silence_ns - SECOND


class WhateverHappens(Invariants):
    """Nobody is lost or isolated who could be reached, no job waits for long, and budgets hold."""

    def __init__(self) -> None:
        super().__init__()
        # Nodes on which something happens for which automation may isolate them.
        self.grounds: set[str] = set()
        # An old journal was put back, ever; and what it has forgotten is not known again yet.
        self.restored = self.old = False
        self._rows = 0
        self._waits, self._budgets, self._agents = Waits(), Budgets(), OwnAgents()
        self._lost: set[str] = set()
        # By how much the timeline is ahead of the true time, as long as a job runs.
        self._ahead_ns = 0

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        self._notice_old_journal(cluster, event)
        super().__call__(cluster, event)
        self._nobody_is_lost_who_was_heard(cluster)
        self._nobody_is_isolated_for_nothing(cluster)
        self._no_node_pays_for_a_job(cluster)
        self._no_clock_moves_the_timeline(cluster, event)
        self._budgets(cluster, event)
        self._waits(cluster)
        if self.old:
            self._agents.forget()
        else:
            self._agents(cluster, rebuilt=self.restored)

    def _notice_old_journal(self, cluster: SimulatedCluster, event: events.Event) -> None:
        rows = len(cluster.controller.journal)
        if rows <= self._rows:
            self.restored = self.old = True
            self._budgets = Budgets()
            nodes = cluster.controller.core.state.nodes
            self._lost = {name for name, node in nodes.items() if node.state is NodeState.LOST}
            self.journal_restored()
        if isinstance(event, events.RecoveryBegun):
            self.old = True
        self._rows = rows
        over = isinstance(event, events.TimerDue) and event.timer == TimerKind.RECOVERY
        if over and not cluster.controller.core.state.halted:
            self.old = False

    def _nobody_is_lost_who_was_heard(self, cluster: SimulatedCluster) -> None:
        """By anybody who can tell the controller."""
        nodes = cluster.controller.core.state.nodes
        lost = {name for name, node in nodes.items() if node.state is NodeState.LOST}
        for name in lost - self._lost:
            quiet_ns = cluster.time.now_ns - cluster.fleet.reached_ns.get(name, 0)
            told = f"{name} is lost ({nodes[name].reason}), heard {quiet_ns / SECOND:.2f} s ago"
            assert quiet_ns >= QUIET_NS, told
        self._lost = lost

    def _nobody_is_isolated_for_nothing(self, cluster: SimulatedCluster) -> None:
        for node in cluster.controller.core.state.nodes.values():
            claim = node.claim_of(AUTOMATION) if node.isolation.claims else None
            if claim is not None and node.name not in self.grounds and not claim.dead:
                told = f"{node.name} is isolated: {claim.reason}"
                assert node.state in (NodeState.LOST, NodeState.VALIDATING), told

    def _no_node_pays_for_a_job(self, cluster: SimulatedCluster) -> None:
        """By a finding about what a job's user did."""
        for node in cluster.controller.core.state.nodes.values():
            told = [
                node.reason,
                node.isolation.deferred,
                node.blame.reason,
                *(one.reason for one in node.isolation.claims),
            ]
            assert not any(JOB_FINDING in words for words in told), f"{node.name}: {told}"

    def _no_clock_moves_the_timeline(self, cluster: SimulatedCluster, event: events.Event) -> None:
        timeline = cluster.controller.timeline
        begins = isinstance(event, events.ClusterNamed | events.ControllerStarted)
        jobs = cluster.controller.core.state.jobs.values()
        if begins and all(job.state is JobState.ENDED for job in jobs):
            self._ahead_ns = timeline.ahead_ns
        moved_ns = timeline.ahead_ns - self._ahead_ns
        # Until somebody tells how long the controller's machine was down, that is not counted.
        assert moved_ns <= 1, f"the timeline is {moved_ns / SECOND} s ahead"
        assert timeline.doubtful or moved_ns >= -1, f"{-moved_ns / SECOND} s are not counted"
