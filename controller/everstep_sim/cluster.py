"""Simulated cluster: nodes that train, die, fall silent and return, around the real core.

Everything random comes from one seed, so the seed is the bug report.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import Storage
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.settings import Settings
from everstep_sim.controller import SimulatedController
from everstep_sim.fleet import JOB, SimulatedFleet
from everstep_sim.node import SimulatedNode
from everstep_sim.ranks import Ranks
from everstep_sim.scheduler import DRIVER, SimulatedScheduler
from everstep_sim.timeline import SECOND, VirtualTime
from everstep_sim.vault import Vaults
from everstep_sim.watching import Watching


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a simulation: its nodes, its job, and the chances of faults."""

    nodes: int = 5
    nodes_min: int = 3
    nodes_max: int = 4
    steps: int = 40
    # Chance of a controller crash between the journal and each single action.
    crash_chance: float = 0.0
    # Different parts of the state, each on several ranks; 0: every rank has one of its own.
    model_parts: int = 0
    storage: Storage | None = None
    # How often spares are checked; 0 for never.
    spare_check_interval_s: int = 0
    # There is a scheduler with a driver, which others use as well.
    scheduler: bool = False
    # Failure domains over which the nodes are spread; 0: none is known.
    domains: int = 0


class SimulatedCluster:
    """The whole loop, driven by ``run``; faults are injected by calling the verbs of the class."""

    def __init__(
        self, seed: int, shape: Shape, check: "Callable[[SimulatedCluster, events.Event], None]"
    ) -> None:
        self.shape = shape
        self.flipped = False
        self.time = VirtualTime(seed)
        checks_ns, probation_ns = shape.spare_check_interval_s * SECOND, 20 * SECOND
        settings = Settings(
            mode=Mode.ENFORCE, last_call_timeout_ns=5 * SECOND, probation_ns=probation_ns
        )
        settings = replace(settings, spare_check_interval_ns=checks_ns)
        if shape.scheduler:
            settings = replace(settings, isolation_drivers=(DRIVER,))

        def checked(core: Core, event: events.Event, now_ns: int) -> None:
            check(self, event)

        self.controller = SimulatedController(
            settings,
            self.time.rng,
            self._dispatch,
            checked,
            crash_chance=shape.crash_chance,
            crashed=lambda: self.time.soon(0.5, 3, self._start_controller),
        )
        names = [f"n{i}" for i in range(shape.nodes)]
        self.fleet = SimulatedFleet(names, self.time, self.controller, shape.domains)
        self.watching = Watching(self.fleet, self.time, self.controller)
        self.vaults = Vaults(self.fleet, self.time, self.controller)
        self.controller.started, self.controller.followed = self.vaults.restart, self._followed
        self.fleet.on_vault(self._opened, self.vaults.report)
        self.fleet.on_amnesia(lambda node: self.fleet.record(node, self._joined))
        self.scheduler = SimulatedScheduler(seed, self.time, self.controller)
        self.ranks = Ranks(self.fleet, self.time, shape.steps, shape.model_parts)

    def run(self, until_s: float) -> None:
        """Let time pass until the job has ended or the limit is reached."""
        self.time.after(0, self._start_controller)
        for node in self.fleet.nodes.values():
            self.time.soon(0.1, 1, partial(self._join, node))
        self.time.after(1, self.watching.tick)
        if self.shape.scheduler:
            self.time.after(1, self.scheduler.read_again)
        self.time.run(until_s, lambda: self.job is not None and self.job.state is JobState.ENDED)

    @property
    def job(self) -> JobRecord | None:
        """Return what the controller knows of the job."""
        return self.controller.core.state.job(JOB)

    def whole_generations(self) -> list[int]:
        """Return the generations that could take a step now: never more than one."""
        running = {node.running for node in self.fleet.nodes.values()}
        return [g for g in self.ranks.generations if g in running and self.ranks.whole(g)]

    def whole_members(self) -> list[str]:
        """Return the nodes of the generation that could take a step now."""
        return [
            name for g in self.whole_generations() for name in self.ranks.generations[g].members
        ]

    # --- faults ----------------------------------------------------------------------------------

    def kill_rank(self, name: str) -> None:
        """Kill a training process."""
        node = self.fleet.nodes[name]
        if node.alive and node.running:
            self.ranks.kill(node)

    def kill_node(self, name: str) -> None:
        """Cut a node's power."""
        node = self.fleet.nodes[name]
        generation, was_connected = node.running, node.connected
        node.die()
        if was_connected:
            self.fleet.stream_ends(node, 0.01, 0.1)
        self.ranks.break_collectives(generation, but=name)

    def end_launcher(self, name: str, *, by_user: bool) -> None:
        """End a node's launcher, which takes its processes with it."""
        node = self.fleet.nodes[name]
        generation, node.launcher, node.running = node.running, False, 0
        at_ns = self.time.now_ns
        self.fleet.record(
            node,
            lambda origin: events.Reported(
                origin, at_ns, reports.LauncherLeft("it ended", by_user), JOB
            ),
        )
        node.settled = max(node.settled, generation)
        self.vaults.report(node)
        self.ranks.break_collectives(generation, but=name)

    def flip(self, name: str) -> None:
        """Let a node find one of its copies bad."""
        node = self.fleet.nodes[name]
        if node.alive and node.copies:
            node.copies.remove(self.time.rng.choice(node.copies))
            self.flipped = True
            self.vaults.report(node)

    def cut_off(self, name: str) -> None:
        """Silence a node that goes on living; the end of its stream is noticed late."""
        node = self.fleet.nodes[name]
        if node.alive and not node.cut_off:
            node.cut_off, node.connected = True, False
            self.fleet.stream_ends(node, 1, 20)
            self.ranks.break_collectives(node.running, but=name)

    def return_node(self, name: str) -> None:
        """Boot a dead node, or end the silence of a living one."""
        node = self.fleet.nodes[name]
        node.cut_off, node.agent = False, True
        if not node.alive:
            node.boot_again()
        self.time.soon(0.1, 1, partial(self._join, node))

    def restart_controller(self, away_s: float) -> None:
        """Kill the controller, and start it again later."""
        if self.controller.up:
            self.controller.kill()
            self.time.after(away_s, self._start_controller)

    def restore_backup(self, events_kept: int) -> None:
        """Kill the controller and start it from an old copy of its journal."""
        self.controller.kill()
        del self.controller.journal[events_kept:]
        self.controller.sent.clear()
        self.time.after(1, self._start_controller)

    def recover(self) -> None:
        """Let an operator order the recovery from what the agents know."""
        self.fleet.submit(events.RecoveryBegun("ops"))

    def fatal_finding(self, name: str) -> None:
        """Let a node report a broken GPU."""
        finding = Finding(
            component="gpu/0", condition="XidFatal", severity=Severity.FATAL, message="Xid 79"
        )
        node, at_ns = self.fleet.nodes[name], self.time.now_ns
        if node.alive:
            self.fleet.record(
                node, lambda origin: events.Reported(origin, at_ns, reports.FindingRaised(finding))
            )

    def finding_over(self, name: str) -> None:
        """Let a node report that this GPU is well."""
        node, at_ns = self.fleet.nodes[name], self.time.now_ns
        over = reports.FindingCleared("gpu/0", "XidFatal", "the driver asks for nothing")
        if node.alive:
            self.fleet.record(node, lambda origin: events.Reported(origin, at_ns, over))

    def operator(self, name: str, *, isolate: bool) -> None:
        """Let an operator isolate or release a node."""
        if name in self.controller.core.state.nodes:
            word = events.OperatorIsolated if isolate else events.OperatorReleased
            self.fleet.submit(word(name, "ops", "drill"))

    def remove_node(self, name: str) -> None:
        """Let an operator remove a node, if it is gone; its agent may come back all the same."""
        if name in self.controller.core.state.nodes:
            self.fleet.submit(events.NodeRemoved(name, "ops", "drill"))

    # --- the controller's shell ------------------------------------------------------------------

    def _start_controller(self) -> None:
        for node in self.fleet.nodes.values():
            node.connected = False
        self.controller.start(self.time.now_ns)
        for node in self.fleet.nodes.values():
            self.time.soon(0.05, 2, partial(self.fleet.connect, node))

    def _dispatch(self, action: actions.Action) -> None:
        match action:
            case actions.SetTimer():
                self.time.at(action.at_ns, partial(self._timer, action))
            case actions.ChooseRecoveryStep():
                self.vaults.choose(action)
            case actions.ApplyIsolation() | actions.ReadIsolation():
                self.scheduler.call(action)
            case actions.ConfirmSilence():
                self.time.soon(0.01, 0.1, partial(self.fleet.confirm, action))
            case actions.PingAgent():
                self.time.soon(0.001, 0.02, partial(self.fleet.ping, action))
            case actions.RunCheck() | actions.StartGeneration() | actions.StopGeneration():
                self.time.soon(0.001, 0.02, partial(self._deliver, action))
            case _:
                pass

    def _timer(self, action: actions.SetTimer) -> None:
        if self.controller.stalled:
            self.controller.overdue.append(partial(self._timer, action))
        elif self.controller.core.state.timers.get(action.timer) == action.at_ns:
            self.fleet.submit(events.TimerDue(action.timer))

    def _deliver(
        self, order: actions.RunCheck | actions.StartGeneration | actions.StopGeneration
    ) -> None:
        node = self.fleet.nodes[order.node]
        delay_s = node.delays_s.get(type(order), 0.0)
        if not delay_s:
            self.fleet.deliver(node, partial(self._obey, node, order))
        else:
            obey = partial(self._obey_late, node, node.agents_lost, order)
            self.fleet.deliver(node, partial(self.time.after, delay_s, obey))

    def _obey_late(
        self,
        node: SimulatedNode,
        agents_lost: int,
        order: actions.RunCheck | actions.StartGeneration | actions.StopGeneration,
    ) -> None:
        if node.alive and node.agent and node.agents_lost == agents_lost:
            self._obey(node, order)

    def _obey(
        self,
        node: SimulatedNode,
        order: actions.RunCheck | actions.StartGeneration | actions.StopGeneration,
    ) -> None:
        if node.ignored(type(order), self.time.now_ns):
            return
        match order:
            case actions.RunCheck():
                self.fleet.record(node, lambda origin: node.checked(origin, order.id))
            case actions.StartGeneration():
                self.ranks.start(node, order)
            case actions.StopGeneration():
                self.ranks.stop(node, order)

    def _opened(self, node: SimulatedNode) -> None:
        known = [seen.job for seen in node.hello(JOB).jobs]
        self.vaults.service.connected(node.name, known)

    def _followed(self) -> None:
        self.vaults.changed()
        self.ranks.recoverable_step = self.vaults.service.recoverable_step(JOB)

    def _join(self, node: SimulatedNode) -> None:
        # One that joins when all is done would begin another job.
        done = self.job is not None and self.job.ending.done
        if node.alive and not node.launcher and not done:
            node.launcher = True
            self.fleet.record(node, self._joined)
        self.fleet.connect(node)

    def _joined(self, origin: Origin) -> events.Reported[reports.LauncherJoined]:
        return events.Reported(
            origin,
            self.time.now_ns,
            reports.LauncherJoined(
                uid=1000,
                token_sha256="t",
                nodes_min=self.shape.nodes_min,
                nodes_max=self.shape.nodes_max,
                processes_per_node=1,
                reform=True,
                restarts_max=100,
                free_port=self.fleet.nodes[origin.node].free_port(),
                running_generation=self.fleet.nodes[origin.node].running,
                storage=self.shape.storage,
                latest=self.vaults.folder.latest if self.shape.storage else None,
            ),
            JOB,
        )
