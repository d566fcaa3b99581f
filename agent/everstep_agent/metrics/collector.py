"""Metrics collector: all of the agent's metric families, as text for Prometheus."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.samples import Sample

from everstep_agent.inventory.node_view import NodeView
from everstep_agent.jobs.metrics import JobsMetrics
from everstep_agent.metrics.accelerators import accelerator_metrics
from everstep_agent.metrics.gpus import gpu_metrics
from everstep_agent.metrics.host import host_metrics, link_metrics
from everstep_agent.metrics.server import MetricsServer
from everstep_agent.persistence.outbox import OutboxCounts
from everstep_common.addresses import is_loopback, split_address
from everstep_common.judging.book import BookEntry
from everstep_common.version import VERSION
from everstep_proto.tls import RefreshedContext, TlsSettings

# How the text format calls what a family's name does not say itself.
_SUFFIXES = {"counter": "_total"}


def prometheus_text(families: Iterable[Metric]) -> bytes:
    """Return gauges and counters in the text format, version 0.0.4."""
    return "".join(line for family in families for line in _lines(family)).encode()


def _lines(family: Metric) -> Iterator[str]:
    name = family.name + _SUFFIXES.get(family.type, "")
    documentation = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {documentation}\n# TYPE {name} {family.type}\n"
    for sample in family.samples:
        yield _line(sample)


def _line(sample: Sample) -> str:
    # Every number that Python writes is one for Prometheus too, "nan" and "inf" included.
    if not sample.labels:
        return f"{sample.name} {float(sample.value)!r}\n"
    return f"{sample.name}{{{_labels(sample.labels)}}} {float(sample.value)!r}\n"


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in sorted(labels.items())])


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCounts:
    """Counts of the agent itself since it started."""

    connected: bool
    streams: int
    outbox: OutboxCounts
    orders_refused: int
    gpu_probe_replaced: int
    xids: Mapping[int, int]
    # By user, -1 for those beyond a number of users.
    connections_with_descriptors: Mapping[int, int]
    sockets_closing: int
    # By user, as above, and by the quota that refused it.
    refusals: Mapping[tuple[int, str], int]
    log_lines_dropped: int


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Sources of the collector; everything is looked at when Prometheus asks."""

    view: NodeView
    counts: Callable[[], AgentCounts]
    findings: Callable[[], tuple[BookEntry, ...]]
    jobs: Callable[[], JobsMetrics]


class NodeCollector:
    """A collector of its own: nothing is kept twice, and a device that is gone has no series."""

    def __init__(self, sources: MetricSources) -> None:
        self._from = sources

    def describe(self) -> list[Metric]:
        """Return nothing: the registry then reads nothing while it is being built."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        yield from _agent(self._from.counts())
        yield from _own_cost(self._from.view)
        yield from _findings(self._from.findings())
        yield from _host(self._from.view)
        yield from host_metrics(self._from.view)
        yield from _disks(self._from.view)
        yield from link_metrics(self._from.view)
        yield from gpu_metrics(self._from.view.gpus)
        yield from accelerator_metrics(self._from.view)
        yield from _jobs(self._from.jobs())


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"everstep_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"everstep_{name}", text, value=value)


def _agent(counts: AgentCounts) -> Iterator[Metric]:
    build = GaugeMetricFamily(
        "everstep_agent_build_info", "Version of the agent.", labels=["version"]
    )
    build.add_metric([VERSION], 1)
    yield build
    yield _gauge(
        "agent_controller_connected", "Whether the controller is connected.", counts.connected
    )
    yield _counter(
        "agent_controller_connections", "Streams opened to the controller.", counts.streams
    )
    outbox = counts.outbox
    yield _gauge(
        "agent_outbox_records_pending", "Records that are not acknowledged yet.", outbox.waiting
    )
    yield _counter("agent_outbox_records", "Records made.", outbox.recorded)
    yield _counter(
        "agent_outbox_records_dropped", "Records dropped by a full outbox.", outbox.dropped
    )
    yield _counter("agent_orders_refused", "Orders refused for their term.", counts.orders_refused)
    yield _counter(
        "agent_gpu_probe_restarts", "GPU probe processes replaced.", counts.gpu_probe_replaced
    )
    passed = CounterMetricFamily(
        "everstep_agent_connections_with_descriptors",
        "Connections to the agent's Unix sockets that were ended because their user passed "
        "descriptors, by user (-1: further users).",
        labels=["user"],
    )
    for user, count in counts.connections_with_descriptors.items():
        passed.add_metric([str(user)], count)
    yield passed
    yield _gauge(
        "agent_sockets_closing",
        "Sockets whose close takes long; from 1,024 on no connection is accepted.",
        counts.sockets_closing,
    )
    refused = CounterMetricFamily(
        "everstep_agent_user_refusals",
        "Connections and jobs that were refused because their user had, or asked for, more than "
        "one user may, by user (-1: further users) and quota.",
        labels=["user", "quota"],
    )
    for (user, quota), count in counts.refusals.items():
        refused.add_metric([str(user), quota], count)
    yield refused
    yield _counter(
        "agent_log_lines_dropped",
        "Lines of the log that were counted and not written: too many of one kind by one user, "
        "host or job.",
        counts.log_lines_dropped,
    )
    xids = CounterMetricFamily(
        "everstep_node_xid_errors", "Xid errors in the kernel log.", labels=["xid"]
    )
    for code, count in counts.xids.items():
        xids.add_metric([str(code)], count)
    yield xids


def _own_cost(view: NodeView) -> Iterator[Metric]:
    if (cost := view.own_cost) is None:
        return
    yield _gauge("agent_processes", "Processes of the agent, itself included.", cost.processes)
    yield _counter("agent_tree_cpu_seconds", "CPU time of all of them.", cost.cpu_s)
    yield _gauge("agent_tree_private_bytes", "Memory that none of them shares.", cost.private_bytes)


# Series of findings about jobs, whose names users choose: more are only in 'everstep findings'.
_OF_JOBS_MAX = 256


def _findings(findings: tuple[BookEntry, ...]) -> Iterator[Metric]:
    labels = ["component", "condition", "severity", "injected"]
    family = GaugeMetricFamily(
        "everstep_node_finding_open", "Open findings; 1 each.", labels=labels
    )
    of_jobs = 0
    for known in findings:
        finding = known.finding
        of_jobs += bool(finding.key.job)
        if finding.key.job and of_jobs > _OF_JOBS_MAX:
            continue
        injected = str(finding.injected).lower()
        severity = finding.severity.value
        family.add_metric([finding.component, finding.condition, severity, injected], 1)
    yield family


def _host(view: NodeView) -> Iterator[Metric]:
    if (host := view.host) is None:
        return
    yield _gauge("node_cpu_busy_ratio", "Share of CPU time that was not idle.", host.cpu_busy_ratio)
    yield _gauge("node_load1", "Load average over one minute.", host.load_1m)
    yield _gauge("node_memory_size_bytes", "Main memory.", host.memory_total_bytes)
    yield _gauge(
        "node_memory_available_bytes", "Memory that can be had.", host.memory_available_bytes
    )
    for name, text, value in (
        ("disk_read_bytes", "Bytes read from disks.", host.disk_read_bytes),
        ("disk_written_bytes", "Bytes written to disks.", host.disk_written_bytes),
        ("network_received_bytes", "Bytes received.", host.network_received_bytes),
        ("network_sent_bytes", "Bytes sent.", host.network_sent_bytes),
        ("network_errors", "Network errors, both ways.", host.network_errors),
    ):
        if value is not None:
            yield _counter(f"node_{name}", text, value)
    yield _counter("agent_cpu_seconds", "CPU time of the agent.", host.agent_cpu_s)
    yield _gauge("agent_memory_bytes", "Resident memory of the agent.", host.agent_memory_bytes)


def _disks(view: NodeView) -> Iterator[Metric]:
    labels = ["device", "mount"]
    size = GaugeMetricFamily("everstep_node_disk_size_bytes", "Size of the disk.", labels=labels)
    free = GaugeMetricFamily("everstep_node_disk_free_bytes", "Free space.", labels=labels)
    for disk in view.disks or ():
        size.add_metric([disk.device, disk.mount], disk.size_bytes)
        free.add_metric([disk.device, disk.mount], disk.free_bytes)
    yield from (size, free)


def _jobs(jobs: JobsMetrics) -> Iterator[Metric]:
    for spec in fields(jobs):
        family = _counter if spec.name.endswith("_total") else _gauge
        name = f"agent_{spec.name.removesuffix('_total')}"
        yield family(name, spec.metadata["help"], float(getattr(jobs, spec.name)))


async def serve(
    address: str,
    tls: TlsSettings,
    sources: MetricSources,
    revoked: Callable[[Mapping[str, object]], str] = lambda _: "",
) -> None:
    """Serve /metrics on host:port until cancelled. Raises OSError when it cannot listen."""
    collector = NodeCollector(sources)
    server = MetricsServer(lambda: prometheus_text(collector.collect()))
    host, port = split_address(address)
    context = RefreshedContext(tls) if tls.enabled and not is_loopback(address) else None
    bound = await server.open(host, int(port), context, revoked)
    logger.info("metrics on %s:%d", host, bound)
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
