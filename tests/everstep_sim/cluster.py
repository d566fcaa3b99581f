"""Simulated cluster: nodes that train, die, fall silent and return, around the real core.

Everything random comes from one seed, so the seed is the bug report.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from everstep_common import reports
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity
from everstep_common.reports import Storage
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.settings import Settings
from everstep_controller.runtime.stalls import LATE_NS
from everstep_sim.autonomy import AutonomousRestarts
from everstep_sim.clocks import ControllerTimeline
from everstep_sim.controller import PROBE_S, SimulatedController
from everstep_sim.fleet import JOB, SimulatedFleet
from everstep_sim.looks import Looks
from everstep_sim.members import MemberAgreements
from everstep_sim.node import SLOTS, SimulatedNode
from everstep_sim.ranks import Ranks
from everstep_sim.scheduler import DRIVER, PODS, SimulatedScheduler
from everstep_sim.timeline import SECOND, VirtualTime
from everstep_sim.unchanged import UnchangedRanks, UnchangedScript
from everstep_sim.vault import Vaults, subject_of
from everstep_sim.watching import Watching

# The core's settings as they are shipped, but for the rollout's mode, which operators set: where
# automation only advises, a cluster recovers from nothing but lost nodes and dead ranks.
SHIPPED = Settings(mode=Mode.ENFORCE)
# After so many restarts without a new step a job is given up, as where `--max-restarts` is not set.
RESTARTS_MAX = 10
# After so long a launcher has heard what its agent was told about it.
_TOLD_S = 0.01
# What a judge of links finds.
_LONE_LINK = FindingKey("links", "IbErrorsUnlikePeers")
# How long the fixed work of a pair test takes; some agents need more than anybody waits.
_WORK_S = (1.0, 3.0)
# What a node says of a storage folder that a user named.
JOB_FINDING = "the job's steps do not reach its storage"
# How often the controller writes down how far it has come, and how soon after a stall it tells it.
_ALIVE_S, _PASS_S = 5.0, 0.05

# What an agent does, and what it tells a launcher.
_Order = actions.RunCheck | actions.RunPairTest | actions.StartGeneration | actions.StopGeneration
_Word = actions.HoldLauncher | actions.EndJob | actions.RefuseLauncher


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a simulation: its nodes, its job, and the chances of faults."""

    nodes: int = 5
    nodes_min: int = 3
    nodes_max: int = 4
    steps: int = 40
    # How long a step takes as a rule. Copies and words travel for up to 0.3 s, whatever it is.
    step_s: float = 1.0
    # How many own snapshots a rank keeps.
    slots: int = SLOTS
    # Chance of a controller crash between the journal and each single action.
    crash_chance: float = 0.0
    # Different parts of the state, each on several ranks; 0: every rank has one of its own.
    model_parts: int = 0
    storage: Storage | None = None
    # Ranks whose agent stays away write steps there by themselves; and all of them snapshot what
    # their agents are told, and wait at the step of a planned restart.
    own_files: bool = False
    # What a scenario has set otherwise says so there, and why.
    settings: Settings = SHIPPED
    # Conditions that operators let automation act on, beyond what they are shipped with.
    enforced: tuple[str, ...] = ()
    # There is a scheduler with a driver, which others use as well.
    scheduler: bool = False
    # A second one, and the groups by which nodes are told to the first ("scheduler") or to it.
    pods: bool = False
    groups: Mapping[str, Group] = field(default_factory=dict)
    # Failure domains over which the nodes are spread; 0: none is known.
    domains: int = 0
    # How many jobs there are, each of this size; so many nodes, the last ones, have launchers of
    # all of them, and the others are given out in turn.
    jobs: int = 1
    shared: int = 0
    # The node on whose machine the controller runs; "": on another one.
    controller_on: str = ""
    # How many accelerators agents tell of; 0: of none.
    devices: int = 0
    restarts_max: int = RESTARTS_MAX
    # The jobs' scripts do without the library; None: they snapshot each step with it.
    script: UnchangedScript | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the jobs."""
        return (JOB, *(f"{JOB}-{letter}" for letter in "bcdefgh"[: self.jobs - 1]))

    def names_on(self, index: int) -> tuple[str, ...]:
        """Return the names of the jobs that have launchers on a node, by its number."""
        alone = index < self.nodes - self.shared
        return (self.names[index % self.jobs],) if alone else self.names


class SimulatedCluster:
    """The whole loop, driven by ``run``; faults are injected by calling the verbs of the class."""

    def __init__(
        self, seed: int, shape: Shape, check: "Callable[[SimulatedCluster, events.Event], None]"
    ) -> None:
        self.shape = shape
        self.flipped = False
        self.time = VirtualTime(seed)

        def checked(core: Core, event: events.Event, now_ns: int) -> None:
            check(self, event)

        self.controller = SimulatedController(
            replace(shape.settings, enforce=shape.enforced),
            ControllerTimeline(self.time),
            self.time.rng,
            self._dispatch,
            checked,
            crash_chance=shape.crash_chance,
            crashed=lambda: self.time.soon(0.5, 3, self._start_controller),
            machine=shape.controller_on,
            drivers=(DRIVER,) * shape.scheduler + (PODS,) * shape.pods,
            groups=shape.groups,
        )
        names = [f"n{i}" for i in range(shape.nodes)]
        self.fleet = SimulatedFleet(names, self.time, self.controller, shape.domains)
        # By node, the names of the jobs that have launchers there.
        self._started = {name: shape.names_on(index) for index, name in enumerate(names)}
        for node in self.fleet.nodes.values():
            node.devices = shape.devices
        self.watching = Watching(self.fleet, self.time, self.controller)
        self.vaults = Vaults(self.fleet, self.time, self.controller)
        self.controller.started, self.controller.followed = self.vaults.restart, self._followed
        self.fleet.on_vault(self._opened, self.vaults.report)
        self.fleet.on_amnesia(self._join_again)
        self.fleet.on_shift(self._timeline_shifted)
        self.scheduler = SimulatedScheduler(seed, self.time, self.controller)
        self.pods = SimulatedScheduler(seed + 1, self.time, self.controller, PODS)
        # Names of jobs that launchers were told to have ended well.
        self.over: set[str] = set()
        self._halted = False
        self.vaults.own_files = shape.own_files
        # By the name of the job.
        self.ranks_of = {job: self._make_ranks(job) for job in shape.names}
        for ranks in self.ranks_of.values():
            AutonomousRestarts(self.fleet, self.time, ranks)
            MemberAgreements(self.fleet, self.time, ranks)
        fleet, ranks_of = self.fleet, self.ranks_of
        self.looks = Looks(fleet, self.time, self.controller, ranks_of, shape.script)

    def _make_ranks(self, job: str) -> Ranks:
        shape = self.shape
        if shape.script is not None:
            return UnchangedRanks(self.fleet, self.time, job, shape.steps, shape.script)
        ranks = Ranks(self.fleet, self.time, job, shape.steps, shape.model_parts)
        ranks.step_s, ranks.slots = shape.step_s, shape.slots
        if shape.own_files:
            ranks.saves_alone = partial(self.vaults.save_alone, job)
        return ranks

    def run(self, until_s: float) -> None:
        """Let time pass until all jobs have ended or the limit is reached."""
        self.time.after(0, self._start_controller)
        for node in self.fleet.nodes.values():
            self.time.soon(0.1, 1, partial(self._join, node))
        self.time.after(1, self.watching.tick)
        self.time.after(1, self.looks.tick)
        if self.controller.disk is not None:
            self.time.after(PROBE_S, self._probe_disk)
        if self.shape.scheduler:
            self.time.after(1, self.scheduler.read_again)
        if self.shape.pods:
            self.time.after(1, self.pods.read_again)
        self.time.run(until_s, self._all_ended)

    def _all_ended(self) -> bool:
        state = self.controller.core.state
        return all(
            (job is not None and job.state is JobState.ENDED)
            or (name in self.over and not self.launchers_of(name))
            for name, job in ((name, state.job(name)) for name in self.shape.names)
        )

    def launchers_of(self, job: str) -> list[str]:
        """Return the nodes that have a launcher of a job, whatever the controller knows."""
        nodes = self.fleet.nodes.values()
        return [node.name for node in nodes if job in node.jobs and node.jobs[job].launcher]

    @property
    def job(self) -> JobRecord | None:
        """Return what the controller knows of the first job."""
        return self.controller.core.state.job(JOB)

    @property
    def jobs(self) -> list[JobRecord]:
        """Return what the controller knows of all jobs."""
        known = map(self.controller.core.state.job, self.shape.names)
        return [job for job in known if job is not None]

    @property
    def ranks(self) -> Ranks:
        """Return the ranks of the first job."""
        return self.ranks_of[JOB]

    def whole_generations(self, job: str = JOB) -> list[int]:
        """Return the generations of a job that could take a step now: never more than one."""
        running = {node.jobs[job].running for node in self.fleet.nodes.values() if job in node.jobs}
        ranks = self.ranks_of[job]
        return [g for g in ranks.generations if g in running and ranks.whole(g)]

    def whole_members(self, job: str = JOB) -> list[str]:
        """Return the nodes of the generation of a job that could take a step now."""
        generations = self.ranks_of[job].generations
        return [name for g in self.whole_generations(job) for name in generations[g].members]

    def _probe_disk(self) -> None:
        self.controller.probe()
        self.time.after(PROBE_S, self._probe_disk)

    # --- faults ----------------------------------------------------------------------------------

    def kill_rank(self, name: str) -> None:
        """Kill a training process, of the first job that has any there."""
        node = self.fleet.nodes[name]
        running = (job for job, local in node.jobs.items() if local.running)
        if node.alive and (job := next(running, "")):
            self.ranks_of[job].kill(node)

    def kill_node(self, name: str) -> None:
        """Cut a node's power."""
        node = self.fleet.nodes[name]
        running, was_connected = self.running_on(node), node.connected
        node.die()
        if was_connected:
            self.fleet.stream_ends(node, 0.01, 0.1)
        self.break_collectives(running, but=name)

    def running_on(self, node: SimulatedNode) -> dict[str, int]:
        """Return which generations have ranks on a node, by the names of their jobs."""
        return {job: local.running for job, local in node.jobs.items()}

    def break_collectives(self, running: Mapping[str, int], but: str) -> None:
        """Let the other ranks of these generations fail, some at once and some by deadline."""
        for job, generation in running.items():
            self.ranks_of[job].break_collectives(generation, but=but)

    def end_launcher(self, name: str, *, by_user: bool) -> None:
        """End a node's launcher of the first job, which takes its processes with it."""
        node = self.fleet.nodes[name]
        local = node.of(JOB)
        generation, local.launcher, local.running = local.running, False, 0
        at_ns = self.time.now_ns
        self.fleet.record(
            node,
            lambda origin: events.Reported(
                origin, at_ns, reports.LauncherLeft("it ended", by_user), JOB
            ),
        )
        local.settled = max(local.settled, generation)
        self.vaults.report(node)
        self.ranks.break_collectives(generation, but=name)

    def cancel(self, grace_s: float) -> None:
        """Send SIGTERM to all launchers of the first job, and kill those that are left later."""
        for name in self.launchers_of(JOB):
            self.time.soon(0, 0.5, partial(self._ask_end, name, grace_s))
            self.time.after(grace_s + 0.5, partial(self._kill_launcher, name))

    def _ask_end(self, name: str, grace_s: float) -> None:
        node, at_ns = self.fleet.nodes[name], self.time.now_ns
        # What a launcher keeps for itself of the time that it has.
        asked = reports.EndAsked("SIGTERM", round(max(0.0, grace_s - 1) * SECOND))
        if node.of(JOB).launcher:
            self.fleet.record(node, lambda origin: events.Reported(origin, at_ns, asked, JOB))

    def _kill_launcher(self, name: str) -> None:
        if self.fleet.nodes[name].of(JOB).launcher:
            self.end_launcher(name, by_user=True)

    def flip(self, name: str) -> None:
        """Let a node find one of its copies bad."""
        node, copies = self.fleet.nodes[name], self.fleet.nodes[name].of(JOB).copies
        if node.alive and copies:
            copies.remove(self.time.rng.choice(copies))
            self.flipped = True
            self.vaults.report(node)

    def cut_off(self, name: str) -> None:
        """Silence a node that goes on living; the end of its stream is noticed late."""
        node = self.fleet.nodes[name]
        if node.alive and not node.cut_off:
            node.cut_off, node.connected = True, False
            self.fleet.stream_ends(node, 1, 20)
            self.break_collectives(self.running_on(node), but=name)

    def return_node(self, name: str) -> None:
        """Boot a dead node, or end the silence of a living one."""
        node = self.fleet.nodes[name]
        node.cut_off, node.agent = False, True
        if not node.alive:
            node.boot_again(self.time.now_ns, diskless=self.time.rng.random() < 0.5)
        self.time.soon(0.1, 1, partial(self._join, node))

    def rename_node(self, name: str, to: str) -> None:
        """Have the agent of a node, which is away now, come back under another name."""
        self.fleet.nodes.rename(name, to)
        for ranks in self.ranks_of.values():
            ranks.rename(name, to)

    def restart_controller(self, away_s: float) -> None:
        """Kill the controller, and start it again later."""
        if self.controller.up:
            self.controller.kill()
            self.time.after(away_s, self._start_controller)

    def restore_backup(self, events_kept: int) -> None:
        """Kill the controller and start it from an old copy of its journal."""
        self.controller.kill()
        if self.controller.disk is not None:
            events_kept = self.controller.disk.put_back()
        del self.controller.journal[events_kept:]
        self.controller.sent.clear()
        self.time.after(1, self._start_controller)

    def recover(self) -> None:
        """Let an operator stop the controller and start one that rebuilds from the agents."""
        self.controller.kill()
        self.controller.recover_by = "ops"
        self.time.after(1, self._start_controller)

    def fatal_finding(self, name: str) -> None:
        """Let a node report a broken GPU."""
        finding = Finding(
            component="gpu/0", condition="XidFatal", severity=Severity.FATAL, message="Xid 79"
        )
        self.fleet.find(self.fleet.nodes[name], finding)

    def low_clocks(self, name: str) -> None:
        """Let a node report that a GPU of its runs at low clocks."""
        self.fleet.find(
            self.fleet.nodes[name],
            Finding(
                component="gpu/0",
                condition="GpuClocksLow",
                severity=Severity.DEGRADED,
                mode=Mode.ADVISE,
                message="GPU 0 runs at 800 MHz",
            ),
        )

    def clocks_well(self, name: str) -> None:
        """Let a node report that this GPU is well."""
        self._clear_finding(name, reports.FindingCleared("gpu/0", "GpuClocksLow", "1,980 MHz"))

    def lone_link(self, name: str) -> None:
        """Let a judge find that one link of a node retrains while none like it does."""
        evidence = "mlx5_0/1 has retrained in 3 minutes of 24 h, and none of 6 like it"
        finding = Finding(
            component=_LONE_LINK.component,
            condition=_LONE_LINK.condition,
            severity=Severity.DEGRADED,
            mode=Mode.ADVISE,
            message="a link counts errors again and again, and no link like it does",
            evidence=evidence,
        )
        self.fleet.submit(events.VerdictChanged(name, _LONE_LINK, finding, evidence, ()))

    def link_well(self, name: str) -> None:
        """Let a judge find that this link is well."""
        self.fleet.submit(events.VerdictChanged(name, _LONE_LINK, None, "as others", ()))

    def finding_over(self, name: str) -> None:
        """Let a node report that this GPU is well."""
        over = reports.FindingCleared("gpu/0", "XidFatal", "the driver asks for nothing")
        self._clear_finding(name, over)

    def job_finding(self, name: str, severity: Severity) -> None:
        """Let a node report that the storage which a job's user named fails."""
        finding = Finding(
            component=f"job/{JOB}/storage",
            condition="StorageFailing",
            severity=severity,
            message=JOB_FINDING,
        )
        self.fleet.find(self.fleet.nodes[name], finding)

    def _clear_finding(self, name: str, over: reports.FindingCleared) -> None:
        node, at_ns = self.fleet.nodes[name], self.time.now_ns
        if node.alive:
            node.findings.pop(over.key, None)
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
        if self.controller.up:
            return  # it was killed twice, and somebody was quicker
        self._halted = False
        for node in self.fleet.nodes.values():
            node.connected = False
        self.controller.start()
        self._keep_clock(self.controller.core)
        for node in self.fleet.nodes.values():
            self.time.soon(0.05, 2, partial(self.fleet.connect, node))

    def _dispatch(self, action: actions.Action) -> None:
        match action:
            case actions.SetTimer():
                true_ns = action.at_ns - self.controller.timeline.ahead_ns
                self.time.at(true_ns, partial(self._timer, action))
            case actions.ChooseRecoveryStep():
                self.vaults.choose(action)
            case actions.ApplyIsolation() | actions.ReadIsolation():
                (self.pods if action.driver == PODS else self.scheduler).call(action)
            case actions.ConfirmSilence() | actions.PingAgent() | actions.CallRoll():
                self._ask(action)
            case actions.RenewStream():
                self.time.soon(0.001, 0.02, partial(self.fleet.renew_stream, action.node))
            case (
                actions.RunCheck()
                | actions.RunPairTest()
                | actions.StartGeneration()
                | actions.StopGeneration()
            ):
                self.time.soon(0.001, 0.02, partial(self._deliver, action))
            case actions.HoldLauncher() | actions.EndJob() | actions.RefuseLauncher():
                self.time.after(_TOLD_S, partial(self._deliver_word, action))
            case _:
                pass

    def _ask(self, action: actions.ConfirmSilence | actions.PingAgent | actions.CallRoll) -> None:
        if isinstance(action, actions.PingAgent):
            self.time.soon(0.001, 0.02, partial(self.fleet.ping, action))
        elif isinstance(action, actions.CallRoll):
            self.time.soon(0.01, 0.1, partial(self.fleet.call_roll, action))
        else:
            self.time.soon(0.01, 0.1, partial(self.fleet.confirm, action))

    def _keep_clock(self, core: Core) -> None:
        """Write down the timeline now and then, as long as this controller lives."""
        controller, now_ns = self.controller, self.time.now_ns
        if not controller.up or controller.core is not core:
            return
        if not controller.stalled:
            there = [node for node in self.fleet.nodes.values() if node.connected]
            stamps = {node.name: node.clock.stamp(now_ns) for node in there}
            controller.timeline.keep(len(controller.journal), stamps)
        self.time.after(_ALIVE_S, partial(self._keep_clock, core))

    def _timeline_shifted(self, forward_ns: int) -> None:
        """Take a timeline that has gone forward for a stall, as the controller's loop does."""
        for timer, at_ns in self.controller.core.state.timers.items():
            self._dispatch(actions.SetTimer(id="", timer=timer, at_ns=at_ns))
        if forward_ns > LATE_NS:
            self.time.after(_PASS_S, partial(self._tell_stall, self.controller.core, forward_ns))

    def _tell_stall(self, core: Core, duration_ns: int) -> None:
        if self.controller.up and self.controller.core is core:
            self.fleet.post(events.ControllerStalled(duration_ns))

    def _timer(self, action: actions.SetTimer) -> None:
        if self.controller.stalled:
            self.controller.overdue.append(partial(self._timer, action))
        elif self.controller.core.state.timers.get(action.timer) == action.at_ns:
            self.fleet.post(events.TimerDue(action.timer))

    def _deliver(self, order: _Order) -> None:
        node = self.fleet.nodes.get(order.node)
        if node is None:
            return  # a stranger that has become a node
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
        order: _Order,
    ) -> None:
        if node.alive and node.agent and node.agents_lost == agents_lost:
            self._obey(node, order)

    def _obey(
        self,
        node: SimulatedNode,
        order: _Order,
    ) -> None:
        if node.ignored(type(order), self.time.now_ns):
            return
        match order:
            case actions.RunCheck():
                self.fleet.record(node, lambda origin: node.checked(origin, order.id))
            case actions.RunPairTest():
                self._work(node, order)
            case actions.StartGeneration():
                _learn_id(node, order)
                if node.of(order.job).accepts(order):
                    node.stopped_until_ns = 0  # its processes are new ones
                self.ranks_of[order.job].start(node, order)
            case actions.StopGeneration():
                self.ranks_of[order.job].stop(node, order)

    def _work(self, node: SimulatedNode, order: actions.RunPairTest) -> None:
        if order.id in node.work:
            self._tell_work(node, order, node.agents_lost)
        elif node.has_ranks:
            node.work[order.id] = reports.PairTested(order.id, refusal="ranks run here")
            self._tell_work(node, order, node.agents_lost)
        else:
            node.work[order.id] = node.worked(order)
            tell = partial(self._tell_work, node, order, node.agents_lost)
            self.time.soon(*_WORK_S, tell)

    def _tell_work(self, node: SimulatedNode, order: actions.RunPairTest, agents_lost: int) -> None:
        answer = node.work.get(order.id)
        if answer is not None and node.alive and node.agent and node.agents_lost == agents_lost:
            self.fleet.record(node, lambda origin: events.Reported(origin, 0, answer))

    def _deliver_word(self, told: _Word) -> None:
        if node := self.fleet.nodes.get(told.node):
            self.fleet.deliver(node, partial(self._hear, node, told))

    def _hear(
        self,
        node: SimulatedNode,
        told: _Word,
    ) -> None:
        """Do what is said about a launcher: it waits, or ends."""
        if isinstance(told, actions.EndJob) and told.job_id:
            node.remember_end(told)
        local = node.of(told.job)
        if isinstance(told, actions.HoldLauncher):
            _learn_id(node, told)
        elif isinstance(told, actions.RefuseLauncher):
            local.launcher, local.running = False, 0
        elif local.id in ("", told.job_id):
            local.launcher, local.running = False, 0
            if told.succeeded and not told.unsaved:
                self.over.add(told.job)
                del node.jobs[told.job]

    def _opened(self, node: SimulatedNode) -> None:
        known = [seen.lineage_id or seen.job for seen in node.hello().jobs]
        self.vaults.service.connected(node.name, known)

    def _followed(self, event: events.Event, done: Sequence[actions.Action]) -> None:
        halted, self._halted = self._halted, bool(self.controller.core.state.halted)
        if halted and not self._halted:
            self._resume()
        elif self._halted and not halted:
            self.fleet.tell_halt()
        self.vaults.follow(event, done)
        nodes = self.controller.core.state.nodes
        for name in {subject_of(action): None for action in done}:
            if name in nodes and nodes[name].gone:
                self.fleet.end_stream(name)
        for job, ranks in self.ranks_of.items():
            ranks.recoverable_step = self.vaults.service.recoverable_step(job)

    def _resume(self) -> None:
        """Have every agent heard anew, by a controller that acts again."""
        self.controller.resume()
        for node in self.fleet.nodes.values():
            node.connected = False
            self.time.soon(0.05, 2, partial(self.fleet.connect, node))

    def _join(self, node: SimulatedNode) -> None:
        for job in self._started[node.host] if node.alive else ():
            # One that joins when all is done would begin another job.
            known = self.controller.core.state.job(job)
            done = job in self.over or (known is not None and known.ending.done)
            if not node.of(job).launcher and not done:
                node.of(job).launcher = True
                node.of(job).stores = self.shape.storage is not None
                self.fleet.record(node, partial(self._joined, job))
        self.fleet.connect(node)

    def _join_again(self, node: SimulatedNode) -> None:
        for job, local in node.jobs.items():
            if local.launcher:
                self.fleet.record(node, partial(self._joined, job))

    def _joined(self, job: str, origin: Origin) -> events.Reported[reports.LauncherJoined]:
        local = self.fleet.nodes[origin.node].of(job)
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
                restarts_max=self.shape.restarts_max,
                free_port=self.fleet.nodes[origin.node].free_port(),
                running_generation=local.running,
                storage=self.shape.storage,
                latest=self.vaults.folder_of(job).latest if self.shape.storage else None,
                job_id=local.id,
                lineage_id=local.lineage_id,
            ),
            job,
        )


def _learn_id(node: SimulatedNode, order: actions.StartGeneration | actions.HoldLauncher) -> None:
    local = node.of(order.job)
    node.ended.pop(order.job_id, None)
    local.id, local.lineage_id = order.job_id, order.lineage_id
