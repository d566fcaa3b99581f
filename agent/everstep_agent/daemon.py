"""Agent daemon: builds all parts of an agent, starts them in order, and stops them."""

import asyncio
import contextlib
import logging
import random
import signal
from collections.abc import Callable, Iterable

from everstep_agent.backoff import Backoff
from everstep_agent.cluster import ClusterMembership
from everstep_agent.concurrency.common_tick import tick
from everstep_agent.concurrency.cycle_collector import collect_all_periodically
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.agent import judge_backlog, judge_store
from everstep_agent.detectors.user_limits import judge_limited, judge_misused
from everstep_agent.health.report import BudgetAnswer
from everstep_agent.health.service import HealthSockets
from everstep_agent.injections.injector import Injector, Reach
from everstep_agent.injections.memory import InjectionMemory
from everstep_agent.ipc.peer import user_name
from everstep_agent.ipc.socket_disposal import socket_disposal
from everstep_agent.jobs.job.context import Environment, user_refusals
from everstep_agent.jobs.node_jobs import NodeJobs
from everstep_agent.jobs.state.remembered_ends import RememberedEnds
from everstep_agent.kernel_messages import RecentKernelMessages
from everstep_agent.liveness import Liveness
from everstep_agent.message_fitting import fitting_hello
from everstep_agent.monitoring.findings import Findings, load_findings
from everstep_agent.monitoring.memory import Memory
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_agent.orders import CheckResult, Orders, OrderTargets, TermGate, run_check
from everstep_agent.pair_test.runner import PairTester
from everstep_agent.persistence.agent_database import CLUSTER_NOTE, ENDS_NOTE
from everstep_agent.persistence.data_folder import only_agent_of, open_store
from everstep_agent.persistence.outbox import Outbox
from everstep_agent.quotas.user_quotas import Quota
from everstep_agent.sampling import ROWS_PER_BATCH, SAMPLE_INTERVAL_S, SampleSender
from everstep_agent.supervise import feed_watchdog, first_error, keep_running
from everstep_agent.tables.site_rules import load_site_rules
from everstep_agent.uplink import Uplink, UplinkSettings
from everstep_common.addresses import split_address
from everstep_common.clock import StampClock, stamp_clock
from everstep_common.judging.book import FindingBook
from everstep_common.judging.judgement import Judgement
from everstep_common.log_limit import dropped_lines
from everstep_common.machine import machine_id
from everstep_common.reports import Hello
from everstep_common.systemd import notify
from everstep_common.version import VERSION
from everstep_proto.generated import fleet_pb2
from everstep_proto.local.client import LocalAccess
from everstep_proto.record_codec import to_wire
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)

_STORE_CLOSE_S = 2.0
_SELF_CHECK_S = 1.0
# How long the first message to the controller waits for readings of the node: a driver may need
# half a minute for its first answer.
_FIRST_LOOK_S = 5.0
_RECONNECT_FIRST_S = 0.1
# How long the end of the agent waits for the controller to hear of it.
_LEAVE_S = 1.0
# Without a word of the controller for so long, and without any peer, this node is cut off. Longer
# than a fleet whose probes are blocked is ever quiet while jobs make steps.
_CUT_OFF_S = 3.0


class DaemonError(Exception):
    """The agent cannot run; one sentence says why."""


async def run(config: AgentConfig) -> None:
    """Run an agent until SIGTERM, or SIGINT if it is not ignored. Raises DaemonError."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in a shell's background job
        loop.add_signal_handler(signal.SIGINT, stop.set)
    with only_agent_of(config.state_folder):
        daemon = Daemon(config, stamp_clock(config.proc / "sys/kernel/random/boot_id"))
        try:
            await daemon.run(stop)
        except OSError as error:
            raise DaemonError(str(error)) from error
        except ExceptionGroup as group:
            # Not `except*`: on Python 3.11.2 an error raised in it comes out wrapped in a group.
            if group.split(OSError)[1] is not None:
                raise
            raise DaemonError(str(first_error(group))) from group
        finally:
            notify("STOPPING=1")
            daemon.close()


class Daemon:
    """The parts of one agent, wired."""

    def __init__(self, config: AgentConfig, stamp: StampClock) -> None:
        self._config = config
        self._stamp = stamp
        site = load_site_rules(config.rules_folder)
        self._store, remembered = open_store(config.state_folder, config.outbox_write_timeout_s)
        self._outbox = Outbox(self._store, remembered, stamp, config.outbox_records_max)
        open_before = load_findings(remembered.notes.get("findings", "[]"), site.conditions)
        book = FindingBook(site.conditions, open_before, config.signals.modes)
        self._findings = Findings(book, self._outbox.record, self._note("findings"), stamp)
        memory = Memory(remembered.notes, lambda key, value: self._store.note(key, value))
        self._node = NodeWatch(config, self._findings, memory, stamp, site=site)
        self._cluster = ClusterMembership(
            remembered.notes.get(CLUSTER_NOTE, ""), self._note(CLUSTER_NOTE)
        )
        rng = random.Random()
        self._uplink = Uplink(
            UplinkSettings(
                access=LocalAccess(
                    address=config.controller, tls=config.tls, secret_file=config.secret_file
                ),
                connect_timeout_s=config.connect_timeout_s,
                silence_s=config.controller_timeout_s,
            ),
            self._outbox,
            stamp,
            Backoff(rng, _RECONNECT_FIRST_S, config.reconnect_backoff_max_s),
            self._cluster,
        )
        phase_s = rng.uniform(0.0, SAMPLE_INTERVAL_S * ROWS_PER_BATCH)
        self._samples = SampleSender(
            self._node.view,
            self._uplink.samples,
            stamp,
            phase_s,
            lambda: self._jobs.rank_columns(),
            busy_ratio=config.signals.gpu.busy_ratio,
        )
        self._kernel = RecentKernelMessages(stamp, self._uplink.kernel_messages, site.rules)
        self._node.kernel_log.on_lines = self._kernel.add_lines
        self._liveness = Liveness(config.node_name, self._uplink.say)
        self._refusals = user_refusals()
        around = Environment(
            refusals=self._refusals,
            tls=config.tls,
            controller_away=self._controller_away,
            controller_away_s=lambda: self._uplink.away_s(),
            tell_halted=lambda: self._uplink.renew_if_halted(),
            cut_off=self._is_cut_off,
            cluster_id=lambda: self._cluster.cluster_id,
            gpus=self._node.gpus,
            gpu_memory_unowned_bytes=config.signals.gpu.unowned_memory_bytes,
            ends=RememberedEnds(
                remembered.notes.get(ENDS_NOTE, "[]"),
                self._note(ENDS_NOTE),
                lambda: stamp().wall_ns,
            ),
            term=lambda: self._terms.highest,
        )
        self._jobs = NodeJobs(config.jobs, self, config.node_name, around)
        self._uplink.on_away = self._jobs.on_away
        self._uplink.on_halted = lambda: self._jobs.tell_launchers(self._controller_away())
        self._liveness.on_nobody_heard = self._jobs.on_away
        highest = int(remembered.notes.get("highest_term", "0"))
        self._terms = TermGate(highest, lambda term: self._note("highest_term")(str(term)))
        self._dropped_before = 0
        self._liveness_port = 0
        self._injector = make_injector(
            config, self._node, memory, self._jobs.training_pids, self._outbox.record
        )

    # --- Outlet ----------------------------------------------------------------------------------

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet."""
        self._outbox.record(record)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet."""
        self._uplink.vault_report(report)

    # --- life ------------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set."""
        config = self._config
        host, port = split_address(config.liveness_address)
        self._liveness_port = await self._liveness.open(host, int(port))
        orders = Orders(
            self._terms,
            OrderTargets(
                self._jobs,
                self._liveness,
                self._check,
                self._outbox.record,
                self._injector,
                PairTester(
                    lambda answer: self._outbox.record(record_of(answer)),
                    self._jobs.rank_pids,
                    lambda: self._node.injections.work_factor,
                ),
                self._uplink.say,
            ),
        )
        self._injector.begin()
        health = HealthSockets(
            config,
            self._node,
            self._findings.book,
            self._refusals,
            lambda: BudgetAnswer(*word) if (word := self._uplink.budget_answer) else None,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._jobs.run(), name="jobs")]
            # An agent without its socket serves nobody: then it does not start.
            await self._jobs.ready.wait()
            for name, work in (
                ("probes", self._node.watch.run),
                ("liveness", self._liveness.run),
                ("samples", self._samples.run),
                ("kernel-messages", self._kernel.run),
                ("self-check", self._watch_itself),
                ("counters", self._node.keep_counters),
                ("health", health.own),
                ("health-check", health.nvhcd),
                ("metrics", self._serve_metrics),
                ("watchdog", feed_watchdog),
                ("cycles", collect_all_periodically),
            ):
                running = keep_running(name, work, self._findings.report)
                tasks.append(group.create_task(running, name=name))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_LOOK_S):
                    await self._node.watch.probe_now()
            self._node.gpus.on_changed = self._uplink.renew
            self._node.accelerators.on_changed = self._uplink.renew
            uplink = keep_running(
                "uplink", lambda: self._uplink.run(self._hello, orders), self._findings.report
            )
            tasks.append(group.create_task(uplink, name="uplink"))
            logger.info("agent %s of node %s is ready", VERSION, config.node_name)
            for sentence in config.unreachable():
                logger.warning("%s", sentence)
            notify("READY=1", f"STATUS=node {config.node_name}, controller {config.controller}")
            await stop.wait()
            await self._uplink.leave(f"everstep-agent {VERSION} was told to stop", _LEAVE_S)
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Write what is left to the disk and end the driver's process."""
        self._injector.close()
        self._node.close()
        self._store.close(_STORE_CLOSE_S)

    # --- parts -----------------------------------------------------------------------------------

    def _note(self, key: str) -> Callable[[str], None]:
        return lambda value: self._store.note(key, value)

    def _hello(self) -> fleet_pb2.Hello:
        config = self._config
        hello = Hello(
            node=config.node_name,
            agent_version=VERSION,
            outbox=self._outbox.name,
            first_unacknowledged=self._outbox.first_unacknowledged,
            highest_term=self._terms.highest,
            stamp=self._stamp(),
            inventory=self._node.view.inventory(config.proc),
            domain=config.domain,
            bulk_address=config.announced(self._jobs.bulk_address),
            liveness_address=f"{config.reachable_host}:{self._liveness_port}",
            jobs=tuple(self._jobs.jobs()),
            host=config.reachable_host,
            open_findings=self._findings.open_now(),
            findings_since=self._findings.open_since(),
            cluster_id=self._cluster.cluster_id,
            machine=machine_id(),
            ended_jobs=self._jobs.ended_jobs(),
        )
        return fitting_hello(to_wire(hello, fleet_pb2.Hello))

    async def _check(self) -> CheckResult:
        return await run_check(
            self._node.watch.probe_now,
            self._findings.book.fatal_findings,
            self._config.check_deadline_s,
        )

    async def _watch_itself(self) -> None:
        while True:
            dropped = self._outbox.counts.dropped
            self._findings.report(
                [
                    judge_store(str(self._config.state_folder), self._store.trouble()),
                    judge_backlog(dropped - self._dropped_before),
                    *self._jobs.judgements(self._findings.book.open_keys),
                    *judge_limited(self._refusals.limited_now(), self._findings.book.open_keys),
                    *self._judge_misused(),
                ]
            )
            self._dropped_before = dropped
            await tick(_SELF_CHECK_S)

    def _judge_misused(self) -> Iterable[Judgement]:
        refused = self._refusals.refused_now(Quota.BULK_PORT)
        names = {user: user_name(user) for user in refused}
        port = self._jobs.bulk_address.rpartition(":")[2]
        return judge_misused(refused, names, port, self._findings.book.open_keys)

    def _is_cut_off(self) -> bool:
        return self._liveness.hears_nobody() and self._uplink.quiet_s() > _CUT_OFF_S

    def _controller_away(self) -> str:
        if self._uplink.connected and self._uplink.halted:
            return (
                f"the controller at {self._config.controller} acts on nothing: "
                f"{self._uplink.halted}; what runs goes on, and new work begins when it acts again"
            )
        if self._uplink.connected:
            return ""
        trouble = self._uplink.trouble or "it has not answered yet"
        if self._uplink.refused:
            return (
                f"the controller at {self._config.controller} does not take this node: {trouble}; "
                "what runs goes on, and new work begins when it is taken"
            )
        return (
            f"waiting for the controller at {self._config.controller}: {trouble}; what runs goes"
            " on, and new work begins when it answers; 'everstep nodes' tells whether it does"
        )

    async def _serve_metrics(self) -> None:
        if not self._config.metrics_address:
            await asyncio.Event().wait()
        from everstep_agent.metrics.collector import AgentCounts, MetricSources, serve

        disposal = socket_disposal()

        def counts() -> AgentCounts:
            return AgentCounts(
                connected=self._uplink.connected,
                streams=self._uplink.streams,
                outbox=self._outbox.counts,
                orders_refused=self._terms.refused,
                gpu_probe_replaced=self._node.nvml.replaced,
                xids=self._node.kernel_log.xids,
                connections_with_descriptors=disposal.refused,
                sockets_closing=disposal.waiting,
                refusals=self._refusals.by_name(),
                log_lines_dropped=dropped_lines(),
            )

        sources = MetricSources(
            self._node.view, counts, lambda: self._findings.book.open_findings, self._jobs.metrics
        )
        await serve(self._config.metrics_address, self._config.tls, sources)


def make_injector(
    config: AgentConfig,
    node: NodeWatch,
    memory: Memory,
    training_pids: Callable[[], Iterable[int]],
    record: Callable[[fleet_pb2.Record], None],
) -> Injector:
    """Return the injector of a node; it refuses everything unless the operator allows it."""
    reach = Reach(
        view=node.view,
        kernel_log=node.injected_log,
        counters=node.counters,
        boot_ns=node.boot_ns,
        driver_pids=lambda: [pid] if (pid := node.nvml.pid) else [],
        training_pids=training_pids,
        look_soon=node.look_soon,
    )
    kept = InjectionMemory(
        memory.notes.get("injections", "{}"), lambda text: memory.keep("injections", text)
    )
    return Injector(node.injections, reach, kept, record, allowed=config.fault_injection)
