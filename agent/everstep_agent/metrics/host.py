"""Host metrics: the kernel's limits, clock, memory modules, mounts and services."""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from everstep_agent.detectors.host.clock import ClockReading
from everstep_agent.detectors.host.services import ServicesReading
from everstep_agent.detectors.host.usage import KernelUsage
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
