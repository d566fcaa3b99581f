"""What automation takes out of a simulated cluster: how many nodes, and how many an hour."""

from collections import deque
from collections.abc import Iterable

import pytest

from everstep_controller.core import events
from everstep_controller.core.model.job import Cause, JobRecord, JobState
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.nodes import budgets
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.timeline import SECOND

HOUR_NS = 3600 * SECOND
_AWAY = (NodeState.LOST, NodeState.RETIRED, NodeState.MAINTENANCE)


class Budgets:
    """Sees what automation takes out, by the claims alone: how many at once, how many an hour."""

    def __init__(self) -> None:
        self.isolations: deque[int] = deque()
        # By the name of the job.
        self.stops: dict[str, deque[int]] = {}
        self.level_max = self.isolations_max = self.stops_max = self.rows = self.changes = 0
        self.held_back = False
        # Who was isolated alive, until the claim is gone.
        self._isolated: set[str] = set()
        self._states: dict[str, NodeState] = {}
        self._returned: set[str] = set()
        self._were_running: set[str] = set()

    def __call__(self, cluster: SimulatedCluster, event: events.Event) -> None:
        state, now_ns = cluster.controller.core.state, cluster.controller.now_ns
        self.rows += 1
        held = self._held(state.nodes.values(), now_ns)
        for job in cluster.jobs:
            self._note_stop(job, now_ns)
        for told in (self.isolations, *self.stops.values()):
            while told and told[0] <= now_ns - HOUR_NS:
                told.popleft()
        stops = max((len(told) for told in self.stops.values()), default=0)
        self.level_max = max(self.level_max, len(held))
        self.isolations_max = max(self.isolations_max, len(self.isolations))
        self.stops_max = max(self.stops_max, stops)
        self.held_back = self.held_back or any(budgets.findings(state))
        for told_of, count, limit in (
            (f"{sorted(held)} isolated at once", len(held), budgets.level_limit(state)),
            ("isolations in an hour", len(self.isolations), budgets.isolation_limit(state)),
            ("stops in an hour", stops, state.settings.job_stops_per_hour),
        ):
            if count > limit:
                message = f"{told_of}: {count} of {limit} after {now_ns / SECOND:.1f} s, by {event}"
                pytest.fail(message, pytrace=False)

    def _held(self, nodes: Iterable[NodeRecord], now_ns: int) -> set[str]:
        """Return which nodes automation keeps out that it found alive, and count new ones."""
        claimed: set[str] = set()
        held: set[str] = set()
        for node in nodes:
            if self._states.get(node.name) is not node.state or node.name in self._returned:
                self._follow(node)
            if node.isolation.claims and node.claim_of(AUTOMATION):
                claimed.add(node.name)
                if node.state not in _AWAY:
                    held.add(node.name)
        held -= self._returned
        self.isolations.extend(now_ns for _ in held - self._isolated)
        self._isolated = (self._isolated | held) & claimed
        return held

    def _follow(self, node: NodeRecord) -> None:
        """Take a node for one that has returned, until its first check since then has ended."""
        before = self._states.get(node.name)
        self.changes += before is not node.state
        if before is NodeState.LOST and node.state is NodeState.VALIDATING:
            self._returned.add(node.name)
        elif node.state is not NodeState.VALIDATING or node.health.check_failed:
            self._returned.discard(node.name)
        self._states[node.name] = node.state

    def _note_stop(self, job: JobRecord, now_ns: int) -> None:
        running = job.state is JobState.RUNNING
        by_automation = job.generation.cause in (Cause.FINDING, Cause.GROWTH)
        if job.name in self._were_running and not running and by_automation:
            self.stops.setdefault(job.name, deque()).append(now_ns)
        if running:
            self._were_running.add(job.name)
        else:
            self._were_running.discard(job.name)
