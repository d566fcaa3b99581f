"""Agent daemon: starts the parts of an agent in order, watches them, and stops them."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Iterable

from everstep_agent.assembly import Agent, assemble
from everstep_agent.concurrency.common_tick import tick
from everstep_agent.concurrency.cycle_collector import collect_all_periodically
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.agent import judge_backlog, judge_store
from everstep_agent.detectors.certificate import SeenCertificate, judge_certificate
from everstep_agent.detectors.user_limits import judge_limited, judge_misused
from everstep_agent.health.report import BudgetAnswer
from everstep_agent.health.service import HealthSockets
from everstep_agent.ipc.peer import user_name
from everstep_agent.ipc.socket_disposal import socket_disposal
from everstep_agent.message_fitting import fitting_hello
from everstep_agent.persistence.data_folder import only_agent_of
from everstep_agent.quotas.user_quotas import Quota
from everstep_agent.supervise import feed_watchdog, first_error, keep_running
from everstep_common.addresses import split_address
from everstep_common.clock import stamp_clock
from everstep_common.judging.judgement import Judgement
from everstep_common.log_limit import dropped_lines
from everstep_common.machine import machine_id
from everstep_common.reports import Hello
from everstep_common.systemd import notify
from everstep_common.version import VERSION
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire

logger = logging.getLogger(__name__)

_STORE_CLOSE_S = 2.0
_SELF_CHECK_S = 1.0
# How long the first message to the controller waits for readings of the node: a driver may need
# half a minute for its first answer.
_FIRST_LOOK_S = 5.0
# How long the end of the agent waits for the controller to hear of it.
_LEAVE_S = 1.0


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
        daemon = Daemon(assemble(config, stamp_clock(config.proc / "sys/kernel/random/boot_id")))
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
    """One agent: its parts are started in order, watched, and stopped."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._base = agent, agent.base
        self._dropped_before = 0
        self._liveness_port = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set."""
        agent, base = self._agent, self._base
        config = base.config
        host, port = split_address(config.liveness_address)
        self._liveness_port = await base.liveness.open(host, int(port))
        agent.injector.begin()
        health = HealthSockets(
            config,
            base.node,
            base.kept.findings.book,
            base.refusals,
            lambda: BudgetAnswer(*word) if (word := base.uplink.budget_answer) else None,
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(agent.jobs.run(), name="jobs")]
            # An agent without its socket serves nobody: then it does not start.
            await agent.jobs.ready.wait()
            for name, work in (
                ("probes", base.node.watch.run),
                ("liveness", lambda: base.liveness.run(agent.jobs.on_away)),
                ("samples", agent.samples.run),
                ("kernel-messages", base.kernel.run),
                ("self-check", self._watch_itself),
                ("counters", base.node.keep_counters),
                ("health", health.own),
                ("health-check", health.nvhcd),
                ("metrics", self._serve_metrics),
                ("watchdog", feed_watchdog),
                ("cycles", collect_all_periodically),
                ("certificate", base.renewer.run),
            ):
                running = keep_running(name, work, base.kept.findings.report)
                tasks.append(group.create_task(running, name=name))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_LOOK_S):
                    await base.node.watch.probe_now()
            uplink = keep_running(
                "uplink",
                lambda: base.uplink.run(self._hello, agent.orders),
                base.kept.findings.report,
            )
            tasks.append(group.create_task(uplink, name="uplink"))
            logger.info("agent %s of node %s is ready", VERSION, config.node_name)
            for sentence in config.unreachable():
                logger.warning("%s", sentence)
            controllers = ", ".join(config.controllers)
            notify("READY=1", f"STATUS=node {config.node_name}, controller {controllers}")
            await stop.wait()
            await base.uplink.leave(f"everstep-agent {VERSION} was told to stop", _LEAVE_S)
            for task in tasks:
                task.cancel()

    def close(self) -> None:
        """Write what is left to the disk and end the driver's process."""
        agent, base = self._agent, self._base
        agent.injector.close()
        base.node.close()
        base.kept.store.close(_STORE_CLOSE_S)

    # --- parts -----------------------------------------------------------------------------------

    def _hello(self) -> fleet_pb2.Hello:
        agent, base = self._agent, self._base
        config = base.config
        hello = Hello(
            node=config.node_name,
            agent_version=VERSION,
            outbox=base.kept.outbox.name,
            first_unacknowledged=base.kept.outbox.first_unacknowledged,
            highest_term=base.kept.terms.highest,
            stamp=base.stamp(),
            inventory=base.node.view.inventory(config.proc),
            domain=config.domain,
            bulk_address=config.announced(agent.jobs.bulk_address),
            liveness_address=f"{config.reachable_host}:{self._liveness_port}",
            jobs=tuple(agent.jobs.jobs()),
            host=config.reachable_host,
            open_findings=base.kept.findings.open_now(),
            findings_since=base.kept.findings.open_since(),
            cluster_id=base.kept.cluster.cluster_id,
            machine=machine_id(),
            ended_jobs=agent.jobs.ended_jobs(),
            takes_revoked=True,
        )
        return fitting_hello(to_wire(hello, fleet_pb2.Hello))

    async def _watch_itself(self) -> None:
        agent, base = self._agent, self._base
        while True:
            dropped = base.kept.outbox.counts.dropped
            base.kept.findings.report(
                [
                    judge_store(str(base.config.state_folder), base.kept.store.trouble()),
                    judge_backlog(dropped - self._dropped_before),
                    *agent.jobs.judgements(base.kept.findings.book.open_keys),
                    *judge_limited(base.refusals.limited_now(), base.kept.findings.book.open_keys),
                    *self._judge_misused(),
                    *self._judge_certificate(),
                ]
            )
            self._dropped_before = dropped
            await tick(_SELF_CHECK_S)

    def _judge_misused(self) -> Iterable[Judgement]:
        agent, base = self._agent, self._base
        refused = base.refusals.refused_now(Quota.BULK_PORT)
        names = {user: user_name(user) for user in refused}
        port = agent.jobs.bulk_address.rpartition(":")[2]
        return judge_misused(refused, names, port, base.kept.findings.book.open_keys)

    def _judge_certificate(self) -> Iterable[Judgement]:
        renewer = self._base.renewer
        if (known := renewer.known) is None:
            return ()
        seen = SeenCertificate(
            known.serial, known.since_s, known.ends_s, renewer.is_own, renewer.trouble
        )
        return judge_certificate(seen, time.time(), self._base.kept.findings.book.open_keys)

    async def _serve_metrics(self) -> None:
        agent, base = self._agent, self._base
        if not base.config.metrics_address:
            await asyncio.Event().wait()
        from everstep_agent.metrics.collector import AgentCounts, MetricSources, serve

        disposal = socket_disposal()

        def counts() -> AgentCounts:
            return AgentCounts(
                connected=base.uplink.connected,
                streams=base.uplink.streams,
                outbox=base.kept.outbox.counts,
                orders_refused=base.kept.terms.refused,
                gpu_probe_replaced=base.node.nvml.replaced,
                xids=base.node.kernel_log.xids,
                connections_with_descriptors=disposal.refused,
                sockets_closing=disposal.waiting,
                refusals=base.refusals.by_name(),
                log_lines_dropped=dropped_lines(),
            )

        sources = MetricSources(
            base.node.view,
            counts,
            lambda: base.kept.findings.book.open_findings,
            agent.jobs.metrics,
        )
        revoked = base.kept.revocations.trouble_of
        await serve(base.config.metrics_address, base.config.tls, sources, revoked)
