"""Host metrics: the kernel's limits, clock, memory modules, mounts, services and links."""

from collections.abc import Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from everstep_agent.detectors.host.clock import ClockReading
from everstep_agent.detectors.host.services import ServicesReading
from everstep_agent.detectors.host.usage import KernelUsage
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.inventory.node_view import NodeView


def host_metrics(view: NodeView) -> Iterator[Metric]:
    """Yield every family that has been read."""
    if view.usage is not None:
        yield from _usage(view.usage)
    if view.clock is not None:
        yield from _clock(view.clock)
    if view.tasks is not None:
        yield _gauge("processes", "Processes.", view.tasks.processes)
        yield _gauge("processes_zombie", "Ended and not collected.", view.tasks.zombies)
        yield _gauge("processes_blocked", "Waiting in the kernel.", len(view.tasks.waiting))
    if view.host is not None:
        yield _gauge("tasks", "Tasks, threads among them.", view.host.tasks)
        yield _gauge("swap_used_bytes", "Memory that is swapped out.", view.host.swap_used_bytes)
    if view.services is not None:
        yield from _services(view.services)
    yield from _modules(view)
    yield from _mounts(view)


def _usage(usage: KernelUsage) -> Iterator[Metric]:
    for name, text, used in (
        ("open_files", "Open files", usage.open_files),
        ("tracked_connections", "Connections that the firewall tracks", usage.connections),
    ):
        if used is not None:
            yield _gauge(name, f"{text}.", used.used)
            yield _gauge(f"{name}_limit", f"{text}, at most.", used.limit)
    if usage.tasks_max is not None:
        yield _gauge("tasks_limit", "Tasks, at most.", usage.tasks_max)
    if usage.booted_at_s is not None:
        yield _gauge("boot_time_seconds", "When the node booted (Unix time).", usage.booted_at_s)
    if usage.oom_kills is not None:
        yield CounterMetricFamily(
            "everstep_node_oom_kills",
            "Processes that the kernel killed for memory.",
            value=usage.oom_kills,
        )


def _clock(clock: ClockReading) -> Iterator[Metric]:
    if clock.synchronized is None:
        return
    yield _gauge("clock_synchronized", "The kernel's clock is kept.", clock.synchronized)
    yield _gauge("clock_offset_seconds", "Offset that is being corrected.", clock.offset_s)
    yield _gauge("clock_max_error_seconds", "Largest error of the clock.", clock.max_error_s)


def _services(services: ServicesReading) -> Iterator[Metric]:
    active = GaugeMetricFamily(
        "everstep_node_service_active", "The service is active.", labels=["service"]
    )
    restarts = CounterMetricFamily(
        "everstep_node_service_restarts", "Automatic restarts.", labels=["service"]
    )
    for unit in services.units:
        # A service that is not installed has no series.
        if unit.load == "not-found":
            continue
        active.add_metric([unit.name], unit.active == "active")
        if unit.restarts is not None:
            restarts.add_metric([unit.name], unit.restarts)
    yield from (active, restarts)


def _modules(view: NodeView) -> Iterator[Metric]:
    labels = ["module", "label"]
    corrected = CounterMetricFamily(
        "everstep_node_memory_corrected_errors", "Corrected memory errors.", labels=labels
    )
    uncorrected = CounterMetricFamily(
        "everstep_node_memory_uncorrected_errors", "Uncorrected memory errors.", labels=labels
    )
    for module in view.modules:
        corrected.add_metric([module.name, module.label], module.corrected)
        uncorrected.add_metric([module.name, module.label], module.uncorrected)
    yield from (corrected, uncorrected)


def _mounts(view: NodeView) -> Iterator[Metric]:
    labels = ["mount", "filesystem"]
    answers = GaugeMetricFamily(
        "everstep_node_mount_answers",
        "The network or user-space file system answers without an error.",
        labels=labels,
    )
    seconds = GaugeMetricFamily(
        "everstep_node_mount_answer_seconds", "Time of its last answer.", labels=labels
    )
    for mount in view.mounts:
        fine = not mount.hang and not mount.error
        answers.add_metric([mount.mount, mount.filesystem], fine)
        if fine:
            seconds.add_metric([mount.mount, mount.filesystem], mount.answered_s)
    yield from (answers, seconds)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"everstep_node_{name}", text, value=value)


# Counted in units of four octets (InfiniBand architecture, PortCountersExtended).
_WORDS = {"port_xmit_data": "transmitted_bytes", "port_rcv_data": "received_bytes"}
_WORD_BYTES = 4
_BYTES = {"tx_bytes": "transmitted_bytes", "rx_bytes": "received_bytes"}
# Series must not grow without bound on a node with hundreds of interfaces.
_LINKS_MAX = 64


def link_metrics(view: NodeView) -> Iterator[Metric]:
    """Yield every metric family of links."""
    yield from _states(view)
    yield from _counters("link", view.link_statistics)
    yield from _counters("infiniband", view.port_counters)


def _states(view: NodeView) -> Iterator[Metric]:
    labels = ["link", "kind"]
    up = GaugeMetricFamily("everstep_node_link_up", "The link is up.", labels=labels)
    speed = GaugeMetricFamily(
        "everstep_node_link_speed_bytes", "Speed in bytes per second.", labels=labels
    )
    for link in view.links or ():
        if link.up is not None:
            up.add_metric([link.name, link.kind], link.up)
        if link.speed_bits_per_s:
            speed.add_metric([link.name, link.kind], link.speed_bits_per_s / 8)
    yield from (up, speed)


def _counters(kind: str, readings: Sequence[CountersReading]) -> Iterator[Metric]:
    shown = readings[:_LINKS_MAX]
    for counter in dict.fromkeys(name for reading in shown for name in reading.values):
        name = _WORDS.get(counter) or _BYTES.get(counter) or counter.lower()
        factor = _WORD_BYTES if counter in _WORDS else 1
        family = CounterMetricFamily(
            f"everstep_node_{kind}_{name}", f"The kernel's counter {counter}.", labels=["link"]
        )
        for reading in shown:
            if (value := reading.values.get(counter)) is not None:
                family.add_metric([reading.link], value * factor)
        yield family
