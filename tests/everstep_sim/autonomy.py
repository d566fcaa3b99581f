"""Simulated agents without a controller: a job whose ranks are all on a node is restarted there."""

from dataclasses import replace
from functools import partial

from everstep_common import reports
from everstep_common.reports import BranchStep
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import Origin
from everstep_sim.fleet import SimulatedFleet
from everstep_sim.node import LocalJob, SimulatedNode
from everstep_sim.ranks import Ranks
from everstep_sim.timeline import SECOND, VirtualTime

# How long the controller must have been away: agents' jobs.controller_grace_s as it is shipped.
GRACE_S = 3.0
_AGAIN_S = 0.25


class AutonomousRestarts:
    """What agents do about the ranks of one job that died, where the plan leaves it to them."""

    def __init__(self, fleet: SimulatedFleet, time: VirtualTime, ranks: Ranks) -> None:
        self._fleet = fleet
        self._time = time
        self._ranks = ranks
        self.count = 0
        ranks.exited = self._exited

    def _exited(self, node: SimulatedNode, generation: int) -> None:
        self._await(node, node.boot, generation, None)

    def _await(self, node: SimulatedNode, boot: int, generation: int, away_ns: int | None) -> None:
        """Wait until the controller acts, or has been away for long enough."""
        local, now_ns = node.of(self._ranks.job), self._time.now_ns
        order = self._ranks.generations[generation].orders[node.name]
        theirs = order.node_count > 1 or not order.own_restarts
        over = local.newest != generation or local.settled >= generation or not local.launcher
        if theirs or over or not node.alive or node.boot != boot:
            return
        away_ns = None if node.is_guided or not self._fleet.agent_runs(node) else away_ns or now_ns
        if away_ns is not None and now_ns - away_ns >= GRACE_S * SECOND:
            self._restart(node, local, order)
        else:
            self._time.after(_AGAIN_S, partial(self._await, node, boot, generation, away_ns))

    def _restart(
        self, node: SimulatedNode, local: LocalJob, order: actions.StartGeneration
    ) -> None:
        """Begin the agent's own next generation, from the newest step that is whole here."""
        steps = [copy.step for copy in local.copies if copy.generation == order.generation]
        if not steps and self._ranks.recoverable_step is not None:
            return  # somebody else may hold what is newer: the job waits for the controller
        step = max(steps) if steps else order.restore_step
        made = order.generation if steps else order.restored_generation
        before = (one for one in order.branch if one.generation < made)
        following = replace(
            order,
            generation=order.generation + 1,
            own_restarts=order.own_restarts - 1,
            restore_step=step,
            branch=order.branch if step is None else (*before, BranchStep(made, step)),
        )
        at_ns = self._time.now_ns
        report = reports.RestartedHere(
            after_generation=order.generation,
            generation=following.generation,
            restore_step=step,
            restore_generation=made if step is not None else 0,
            decided_boot_ns=at_ns,
            at_boot_ns=at_ns,
            reason=f"generation {following.generation} (in place)",
        )
        self.count += 1
        local.settled = max(local.settled, order.generation)
        self._fleet.record(node, partial(self._told, at_ns, report))
        planned = local.controllers
        self._ranks.start(node, following)
        local.controllers = planned
        self._fleet.renew(node)

    def _told(self, at_ns: int, report: reports.RestartedHere, origin: Origin) -> events.Event:
        return events.Reported(origin, at_ns, report, self._ranks.job)
