"""Faults of a simulated cluster that leave it half alive: networks, agents, the controller's loop.

Each is a transition with an end of its own, and any of them may overlap.
"""

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable
from functools import partial

from everstep_common import reports
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.orders import StartGeneration, StopGeneration
from everstep_controller.core import events
from everstep_controller.core.model.node import Origin
from everstep_sim import strangers
from everstep_sim.cluster import SimulatedCluster
from everstep_sim.disk import JournalDisk
from everstep_sim.fleet import JOB
from everstep_sim.network import ANYBODY, CONTROLLER, Transport
from everstep_sim.timeline import SECOND

# How long it takes both ends to give up a stream on which nothing comes through.
_KEEPALIVE_S = (5.0, 20.0)
ALL_CHANNELS = tuple(Transport)
# Of each journal these are the first: its cluster, its first term and its settings.
_FIRST_ROWS = 3
_FLAPS = Condition(
    name="Flaps",
    component="gpu/0",
    meaning="whatever comes and goes",
    source="a detector without any debouncing",
    clears_when="it is looked at again",
    mode=Mode.ENFORCE,
)


def _reported(
    at_ns: int, report: reports.FindingRaised | reports.FindingCleared, origin: Origin
) -> events.Event:
    return events.Reported(origin, at_ns, report)


class Faults:
    """Verbs that break one thing of a cluster for a while."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.names = list(cluster.fleet.nodes)
        self._fleet = cluster.fleet
        self._time = cluster.time
        # What starts of the controller said of their journal.
        self.refusals: list[str] = []

    def later(self, delay_s: float, then: Callable[[], object]) -> None:
        """Have something happen after a while."""
        self._time.after(delay_s, then)

    def domain_of(self, name: str) -> str:
        """Return the failure domain of a node."""
        return self._fleet.nodes[name].domain

    def pause_agent(self, name: str, for_s: float) -> None:
        """Have an agent's loop stand still, as SIGSTOP does; its kernel and its ranks go on."""
        node = self._fleet.nodes[name]
        node.paused_until_ns = max(node.paused_until_ns, self._ends_ns(for_s))
        self._stalled([name], for_s)

    def hang_agent(self, name: str, for_s: float) -> None:
        """Have an agent's loop hang while its transport's threads keep the stream open."""
        node = self._fleet.nodes[name]
        node.paused_until_ns = max(node.paused_until_ns, self._ends_ns(for_s))
        self._time.after(for_s + 0.001, partial(self._fleet.resume, node))

    def lose_datagrams(self, share: float, for_s: float) -> None:
        """Have every probe and every answer lost with some chance."""
        network = self._fleet.network
        network.udp_loss = share
        self._time.after(for_s, lambda: setattr(network, "udp_loss", 0.0))

    def ignore_orders(self, name: str, kinds: Iterable[type], for_s: float) -> None:
        """Have an agent answer pings and carry out no order of some kinds."""
        until_ns = self._ends_ns(for_s)
        ignores = self._fleet.nodes[name].ignores
        ignores.update({kind: max(until_ns, ignores.get(kind, 0)) for kind in kinds})

    def delay_orders(self, name: str, kinds: Iterable[type], by_s: float, for_s: float) -> None:
        """Have an agent carry out orders of some kinds that much later than it gets them."""
        delays_s, late = self._fleet.nodes[name].delays_s, dict.fromkeys(kinds, by_s)
        delays_s.update(late)

        def again() -> None:
            for kind in late:
                delays_s.pop(kind, None)

        self._time.after(for_s, again)

    def ignore_after_start(self, name: str, for_s: float) -> None:
        """Have an agent start one generation more, and carry out no order about jobs after that."""
        node = self._fleet.nodes[name]
        newest = node.of(JOB).newest

        def started() -> None:
            if node.of(JOB).newest > newest:
                self.ignore_orders(name, [StartGeneration, StopGeneration], for_s)
            else:
                self._time.after(0.01, started)

        started()

    def cure(self, name: str) -> None:
        """Have an agent do everything again that it is ordered, as a new one does."""
        node = self._fleet.nodes[name]
        node.ignores.clear()
        node.delays_s.clear()
        node.mute_until_ns = 0
        self.restart_agent(name, 1.0)

    def mute_vault(self, name: str, for_s: float) -> None:
        """Have an agent tell nobody what it holds for a while; all else goes on."""
        node = self._fleet.nodes[name]
        node.mute_until_ns = max(node.mute_until_ns, self._ends_ns(for_s))
        self._time.after(for_s + 0.001, partial(self._fleet.report, node))

    def hang_ranks(self, name: str, for_s: float) -> None:
        """Have a node's ranks reach no phase and make no step for a while, and end by orders."""
        node = self._fleet.nodes[name]
        node.hung_until_ns = max(node.hung_until_ns, self._ends_ns(for_s))

    def stop_ranks(self, name: str, for_s: float) -> None:
        """Have a node's training processes stopped, as SIGSTOP does: orders end them all the same.

        Processes of the next generation run.
        """
        node = self._fleet.nodes[name]
        node.stopped_until_ns = max(node.stopped_until_ns, self._ends_ns(for_s))

    def freeze_machine(self, name: str, for_s: float) -> None:
        """Have a whole machine stand still, as a hypervisor does that moves it."""
        node = self._fleet.nodes[name]
        node.frozen_until_ns = max(node.frozen_until_ns, self._ends_ns(for_s))
        self._stalled([name], for_s)

    def restart_agent(
        self, name: str, away_s: float, *, announced: bool = True, keeps_memory: bool = True
    ) -> None:
        """End an agent and start it again; its ranks go on, and as a rule its memory is kept."""
        node = self._fleet.nodes[name]
        if not self._fleet.agent_runs(node):
            return
        if announced and self._fleet.flows(node):
            self._fleet.post(events.AgentLeaving(name, "systemd asks it to end"))
        if keeps_memory:
            was_connected = node.connected
            node.stop_agent()
            if was_connected:
                self._fleet.stream_ends(node, 0.01, 0.1)
        else:
            self._fleet.kill_agent(name)
        self._time.after(away_s, partial(self._start_agent, name))

    def rename_node(self, name: str, to: str, away_s: float, *, announced: bool = True) -> None:
        """Restart an agent whose node has another name from then on, on the same machine."""
        if not self._fleet.agent_runs(self._fleet.nodes[name]):
            return
        self.restart_agent(name, away_s, announced=announced)
        self.later(away_s - 0.001, partial(self.rename_now, name, to))

    def rename_now(self, name: str, to: str) -> None:
        """Have a node, whose agent is away now, have another name from then on."""
        if name in self._fleet.nodes:
            self.cluster.rename_node(name, to)
            self.names[self.names.index(name)] = to

    def crash_loop_agent(
        self, name: str, for_s: float, up_s: float = 0.3, away_s: float = 5
    ) -> None:
        """Have an agent end soon after each start for a while; its ranks go on."""
        until_ns = self._ends_ns(for_s)

        def again() -> None:
            if self._time.now_ns < until_ns:
                self.restart_agent(name, away_s, announced=False)
                self._time.after(away_s + up_s, again)

        again()

    def cut(self, channels: Iterable[Transport], source: str, target: str, for_s: float) -> None:
        """Let nothing pass from one end to the other for a while."""
        cut = tuple(channels)
        self._fleet.network.cut(cut, source, target)
        self._time.after(for_s, partial(self._heal, cut, source, target))
        if Transport.STREAM in cut and CONTROLLER in (source, target):
            other = target if source == CONTROLLER else source
            names = self._fleet.nodes if other == ANYBODY else [other]
            self._stalled(names, 0)

    def cut_pair(self, channels: Iterable[Transport], one: str, other: str, for_s: float) -> None:
        """Let nothing pass between two ends for a while, in both directions."""
        cut = tuple(channels)
        self.cut(cut, one, other, for_s)
        self.cut(cut, other, one, for_s)

    def block_udp(self, name: str, for_s: float, *, answers: bool = False) -> None:
        """Let no probe reach a node, or none of its answers leave it, and nothing else."""
        ends = (name, ANYBODY) if answers else (ANYBODY, name)
        self.cut((Transport.UDP,), *ends, for_s)

    def prohibit(self, name: str, for_s: float, says: float) -> None:
        """Have a router refuse all that is for a node, and say so of a share of the connects."""
        network = self._fleet.network
        network.says_unreachable[name] = says
        self.later(for_s, partial(network.says_unreachable.pop, name))
        self.cut_pair((Transport.UDP,), name, ANYBODY, for_s)
        self.cut_pair((Transport.STREAM,), name, CONTROLLER, for_s)

    def cut_controller(self, for_s: float) -> None:
        """Take the controller's network away; nodes reach one another."""
        self.cut((Transport.STREAM,), ANYBODY, CONTROLLER, for_s)

    def cut_controller_from(
        self, others: Collection[str], for_s: float, *, fabric: bool = False
    ) -> None:
        """Cut the controller and the nodes around it off from some others.

        Ranks talk over a network of their own, unless that is cut as well: then the collectives of
        jobs on both sides fail.
        """
        far = dict.fromkeys(sorted(others))
        for name in far:
            self.cut_pair(ALL_CHANNELS, name, CONTROLLER, for_s)
        for near in [name for name in self.names if name not in far]:
            for name in far:
                self.cut_pair((Transport.TCP, Transport.UDP), near, name, for_s)
        for job, ranks in self.cluster.ranks_of.items() if fabric else ():
            for number in self.cluster.whole_generations(job):
                members = frozenset(ranks.generations[number].members)
                if members & far.keys() and members - far.keys():
                    ranks.break_collectives(number, but="")

    def cut_domain(self, domain: str, for_s: float) -> None:
        """Take the way out of a whole domain away: its nodes reach one another alone."""
        inside = [node.name for node in self._fleet.nodes.values() if node.domain == domain]
        outside = [CONTROLLER, *(name for name in self._fleet.nodes if name not in inside)]
        for name in inside:
            for other in outside:
                self.cut_pair(ALL_CHANNELS, name, other, for_s)

    def lose_power(self, names: Collection[str]) -> None:
        """Cut the power of nodes at once; no stream of theirs is closed by anybody."""
        for name in names:
            node = self._fleet.nodes[name]
            running, connected = self.cluster.running_on(node), node.connected
            node.die()
            self.cluster.break_collectives(running, but=name)
            if connected:
                self._fleet.stream_ends(node, *_KEEPALIVE_S)

    def give_power(self, name: str) -> None:
        """Boot a node that has lost its power."""
        self.cluster.return_node(name)

    def roll_findings(self, every_s: float, lasts_s: float, for_s: float) -> None:
        """Have one node after the other find what is not there, each for a while."""
        for number in range(int(for_s / every_s)):
            name = self.names[number % len(self.names)]
            self.later(number * every_s, partial(self.cluster.fatal_finding, name))
            self.later(number * every_s + lasts_s, partial(self.cluster.finding_over, name))

    def blip_power(self, names: Collection[str], for_s: float) -> None:
        """Cut the power of nodes for a while; they come back, and find what is not there."""
        self.lose_power(names)
        for name in names:
            self.later(for_s, partial(self.give_power, name))
            self.later(for_s + 0.01, partial(self.cluster.fatal_finding, name))

    def flap_finding(self, name: str, for_s: float, every_s: float = 0.1) -> None:
        """Have a node raise and clear a finding again and again."""
        for number in range(int(for_s / every_s)):
            at_s = number * every_s
            self.later(at_s, partial(self.cluster.fatal_finding, name))
            self.later(at_s + every_s / 2, partial(self.cluster.finding_over, name))

    def flap_stream(self, name: str, for_s: float, every_s: float = 20.0) -> None:
        """Have the stream of an agent end again and again; it is opened anew a second later."""
        for number in range(int(for_s / every_s)):
            self.later(number * every_s, partial(self._break_stream, name))

    def flap_detector(self, name: str, for_s: float, every_s: float = 0.05) -> None:
        """Have a detector change its mind at every poll, and the agent's book take that."""
        book = FindingBook({_FLAPS.name: _FLAPS})
        finding = Finding(
            component=_FLAPS.component,
            condition=_FLAPS.name,
            severity=Severity.FATAL,
            message="it comes and goes",
        )
        for number in range(int(for_s / every_s)):
            judgement = Healthy(finding.key, "well") if number % 2 else Faulty(finding)
            self.later(number * every_s, partial(self._judge, name, book, judgement))

    def stall_controller(self, for_s: float) -> None:
        """Have the controller's loop stand still: it finds out itself how late it is."""
        controller = self.cluster.controller
        if controller.listens:
            controller.stalled = True
            self._time.after(for_s, partial(self._go_on, for_s, len(controller.journal)))

    # --- messages --------------------------------------------------------------------------------

    def delay_stream(self, name: str, by_s: float, for_s: float) -> None:
        """Have all messages of a node's stream be late for a while, each way in order."""
        lag = self._fleet.nodes[name].lag
        lag.by_ns = max(lag.by_ns, int(by_s * SECOND))
        self.later(for_s, partial(setattr, lag, "by_ns", 0))

    def delay_message(self, name: str, by_s: float) -> None:
        """Have the next message of a node be late, and all behind it on the same stream."""
        lag = self._fleet.nodes[name].lag
        lag.up_ns = max(lag.up_ns, self._ends_ns(by_s))

    def delay_orders_on_stream(self, name: str, by_s: float) -> None:
        """Have the next order or acknowledgement for a node be late, and all behind it."""
        lag = self._fleet.nodes[name].lag
        lag.down_ns = max(lag.down_ns, self._ends_ns(by_s))

    def double_records(self, name: str, count: int) -> None:
        """End a node's stream before its newest acknowledgements arrive: it tells all again."""
        self._fleet.nodes[name].outbox.forget_acknowledgements(count)
        self._break_stream(name)

    def replay_outbox(self, name: str, away_s: float) -> None:
        """Restart an agent whose disk is behind: it tells again what was acknowledged long ago."""
        self.restart_agent(name, away_s, announced=False)
        self.forget_acknowledgements(name)

    def forget_acknowledgements(self, name: str) -> None:
        """Have an agent tell all that it still has again, on its next stream."""
        self._fleet.nodes[name].outbox.forget_acknowledgements(1 << 30)

    # --- the controller's disk -------------------------------------------------------------------

    def fill_disk(self, for_s: float) -> None:
        """Have the controller's disk be full for a while."""
        self._disk.fill()
        self.later(for_s, self._disk.mend)

    def fail_disk(self, for_s: float) -> None:
        """Have no write to the controller's disk succeed for a while."""
        self._disk.fail()
        self.later(for_s, self._disk.mend)

    def back_up_journal(self) -> None:
        """Have an operator copy the journal."""
        self._disk.back_up()

    def flip_journal(self, bits: int, away_s: float, recover_s: float) -> None:
        """Change bits of the journal while the controller is away.

        Where its start finds that, an operator puts the backup back and orders the recovery.
        """
        controller = self.cluster.controller
        if not controller.up:
            return
        controller.damaged = partial(self._put_backup_back, recover_s)
        self.cluster.restart_controller(away_s)
        self._disk.flip(self._time.rng, bits)

    def _put_backup_back(self, recover_s: float, sentence: str) -> None:
        self.refusals.append(sentence)
        self.cluster.restore_backup(0)
        self.later(recover_s, self._recover)

    @property
    def _disk(self) -> JournalDisk:
        disk = self.cluster.controller.disk
        if disk is None:
            raise RuntimeError("this cluster has no disk that could fail")
        return disk

    # --- strangers, clocks and journals ----------------------------------------------------------

    def twin(self, name: str, for_s: float) -> None:
        """Give another agent the name of a node for a while."""
        strangers.twin(self._fleet, self._time, name, for_s)

    def foreigner(self, name: str, for_s: float) -> None:
        """Have the agent of another cluster say for a while that it is a node."""
        strangers.foreigner(self._fleet, self._time, name, for_s)

    def liar(self, name: str, for_s: float, *, by_generation: bool) -> None:
        """Have an agent name a term, or a generation, that no journal of this cluster has."""
        strangers.liar(self._fleet, self._time, name, for_s, by_generation=by_generation)

    def set_clock(self, name: str, ahead_s: float) -> None:
        """Set the wall clock of a node so far ahead of the true time."""
        self._fleet.nodes[name].clock.ahead_ns = int(ahead_s * SECOND)

    def set_controller_clock(self, ahead_s: float, away_s: float, *, reboots: bool) -> None:
        """Set the controller's wall clock while it is started again, alone or with its machine."""
        controller = self.cluster.controller
        if controller.up:
            self.cluster.restart_controller(away_s)
            controller.timeline.machine.ahead_ns = int(ahead_s * SECOND)
            if reboots:
                controller.timeline.machine.reboot(self._time.now_ns)

    def restore_journal(self, age_s: float, recover_s: float) -> None:
        """Put back a journal of some time ago; later an operator orders the recovery."""
        controller = self.cluster.controller
        until_ns = controller.now_ns - int(age_s * SECOND)
        kept = bisect_right(controller.journal, until_ns, key=lambda row: row[1])
        self.cluster.restore_backup(max(kept, _FIRST_ROWS))
        self._time.after(recover_s, self._recover)

    def _recover(self) -> None:
        if self.cluster.controller.listens:
            self.cluster.recover()
        else:
            self._time.after(2, self._recover)

    # ---------------------------------------------------------------------------------------------

    def _break_stream(self, name: str) -> None:
        node = self._fleet.nodes[name]
        if node.connected and self._fleet.flows(node):
            node.connected = False
            node.inbox.clear()
            self._fleet.stream_ends(node, 0.01, 0.1)
            self.later(1.0, partial(self._fleet.connect, node))

    def _judge(self, name: str, book: FindingBook, judgement: Judgement) -> None:
        node, now_ns = self._fleet.nodes[name], self._time.now_ns
        if not self._fleet.agent_runs(node):
            return
        changes = book.enter_judgements([judgement], Stamp("boot", now_ns, now_ns))
        told = [reports.FindingRaised(known.finding) for known in changes.raised]
        over = [
            reports.FindingCleared(one.key.component, one.key.condition, one.evidence)
            for one in changes.cleared
        ]
        for raised in told:
            self._fleet.record(node, partial(_reported, now_ns, raised))
        for cleared in over:
            self._fleet.record(node, partial(_reported, now_ns, cleared))

    def _ends_ns(self, for_s: float) -> int:
        return self._time.now_ns + int(for_s * SECOND)

    def _stalled(self, names: Iterable[str], for_s: float) -> None:
        """Have streams given up that do not flow, and go on with what has waited when they do."""
        for name in names:
            node = self._fleet.nodes[name]
            self._fleet.stream_stalls(node, *_KEEPALIVE_S)
            if for_s:
                self._time.after(for_s + 0.001, partial(self._fleet.resume, node))

    def _heal(self, channels: tuple[Transport, ...], source: str, target: str) -> None:
        self._fleet.network.heal(channels, source, target)
        if Transport.STREAM in channels:
            self._time.after(0.001, self._fleet.resume_all)

    def _start_agent(self, name: str) -> None:
        node = self._fleet.nodes[name]
        if node.alive and not node.agent:
            node.agent = True
            self._fleet.connect(node)

    def _go_on(self, for_s: float, journaled: int) -> None:
        controller = self.cluster.controller
        if not controller.stalled or len(controller.journal) != journaled:
            return  # it was killed meanwhile
        controller.go_on()
        self._fleet.resume_all()
        self._fleet.post(events.ControllerStalled(int(for_s * SECOND)))
        overdue, controller.overdue = controller.overdue, []
        for timer in overdue:
            timer()
