"""GPU metrics: readings, limits, throttling and error counters of NVIDIA GPUs."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from everstep_agent.detectors.gpus.reading import ClockReason, GpuReading, GpusReading

_LABELS = ("gpu", "uuid", "pci")
_MHZ = 1_000_000

Number = Callable[[GpuReading], float | None]
# Values of further labels, and the number of each.
Numbers = Callable[[GpuReading], Iterable[tuple[tuple[str, ...], float | None]]]

_GAUGES: tuple[tuple[str, str, Number], ...] = (
    ("up", "The GPU answers.", lambda gpu: not gpu.error),
    ("temperature_celsius", "Temperature of the GPU.", lambda gpu: gpu.temperature_c),
    (
        "memory_temperature_celsius",
        "Temperature of the device memory.",
        lambda gpu: gpu.memory_temperature_c,
    ),
    (
        "thermal_margin_celsius",
        "Degrees left to its own limit.",
        lambda gpu: gpu.thermal_margin_c,
    ),
    ("power_watts", "Power draw.", lambda gpu: gpu.power_w),
    ("power_limit_watts", "Enforced power limit.", lambda gpu: gpu.power_limit_w),
    ("utilization_ratio", "Share of time with a kernel running.", lambda gpu: gpu.busy_ratio),
    ("memory_size_bytes", "Device memory.", lambda gpu: gpu.memory_bytes),
    ("memory_used_bytes", "Device memory in use.", lambda gpu: gpu.memory_used_bytes),
    ("sm_clock_hertz", "Clock of the multiprocessors.", lambda gpu: _hertz(gpu.sm_clock_mhz)),
    ("memory_clock_hertz", "Clock of the memory.", lambda gpu: _hertz(gpu.memory_clock_mhz)),
    ("recovery_action", "What the driver asks for (field 230).", lambda gpu: gpu.recovery_action),
    ("row_remap_pending", "A row waits for a reset.", lambda gpu: gpu.remap_pending),
    ("row_remap_failed", "A row could not be remapped.", lambda gpu: gpu.remap_failed),
    (
        "remapped_rows",
        "Rows lost to uncorrectable errors.",
        lambda g: g.remapped_uncorrected,
    ),
    ("pcie_generation", "Generation of the PCIe link.", lambda gpu: gpu.pcie_generation),
    ("pcie_lanes", "Lanes of the PCIe link.", lambda gpu: gpu.pcie_width),
    ("persistence_mode", "Persistence mode is on.", lambda gpu: gpu.persistence),
    ("mig_devices", "Slices of the GPU.", lambda gpu: len(gpu.mig_devices)),
    ("fabric_state", "NVSwitch fabric: 3 is joined.", lambda gpu: _fabric(gpu)),
)
_LABELLED_GAUGES: tuple[tuple[str, str, tuple[str, ...], Numbers], ...] = (
    (
        "clock_throttled",
        "This holds the clocks down; 1 if so.",
        ("reason",),
        lambda gpu: _reasons(gpu),
    ),
    ("nvlink_up", "The NVLink is active.", ("link",), lambda gpu: _links(gpu)),
)
_COUNTERS: tuple[tuple[str, str, tuple[str, ...], Numbers], ...] = (
    (
        "ecc_errors",
        "Memory errors: volatile since driver load, aggregate since ever.",
        ("kind", "scope"),
        lambda gpu: (
            (("corrected", "volatile"), gpu.ecc_corrected),
            (("uncorrected", "volatile"), gpu.ecc_uncorrected),
            (("corrected", "aggregate"), gpu.ecc_corrected_aggregate),
            (("uncorrected", "aggregate"), gpu.ecc_uncorrected_aggregate),
        ),
    ),
    (
        "sram_errors",
        "Errors of the caches that were not corrected: of parity, or of more bits than one.",
        ("kind", "scope"),
        lambda gpu: (
            (("parity", "volatile"), gpu.sram_parity),
            (("secded", "volatile"), gpu.sram_secded),
            (("parity", "aggregate"), gpu.sram_parity_aggregate),
            (("secded", "aggregate"), gpu.sram_secded_aggregate),
        ),
    ),
    ("pcie_replays", "Packets sent again.", (), lambda gpu: (((), gpu.pcie_replays),)),
    ("nvlink_errors", "NVLink error counters.", ("link", "kind"), lambda gpu: _link_errors(gpu)),
)
_LINK_COUNTERS = (
    "recovery_events",
    "retry_blocks",
    "receive_errors",
    "replays",
    "recoveries",
    "crc",
)


def gpu_metrics(reading: GpusReading | None) -> Iterator[Metric]:
    """Yield every metric family of GPUs."""
    gpus = reading.gpus if reading else ()
    for name, text, value in _GAUGES:
        plain = GaugeMetricFamily(f"everstep_node_gpu_{name}", text, labels=_LABELS)
        yield _filled(plain, gpus, _single(value))
    for name, text, labels, values in _LABELLED_GAUGES:
        gauge = GaugeMetricFamily(f"everstep_node_gpu_{name}", text, labels=(*_LABELS, *labels))
        yield _filled(gauge, gpus, values)
    for name, text, labels, values in _COUNTERS:
        counter = CounterMetricFamily(f"everstep_node_gpu_{name}", text, labels=(*_LABELS, *labels))
        yield _filled(counter, gpus, values)
    if reading is not None:
        yield GaugeMetricFamily(
            "everstep_agent_gpu_response_seconds",
            "How long the driver took over its last answer.",
            value=reading.spent_s,
        )


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, gpus: Sequence[GpuReading], values: Numbers
) -> Metric:
    for gpu in gpus:
        for labels, number in values(gpu):
            if number is not None:
                family.add_metric([str(gpu.index), gpu.uuid, gpu.pci, *labels], number)
    return family


def _single(value: Number) -> Numbers:
    return lambda gpu: (((), value(gpu)),)


def _fabric(gpu: GpuReading) -> int | None:
    return gpu.fabric.state if gpu.fabric else None


def _hertz(megahertz: int | None) -> float | None:
    return None if megahertz is None else megahertz * _MHZ


def _reasons(gpu: GpuReading) -> Iterator[tuple[tuple[str, ...], float | None]]:
    if gpu.clock_reasons is not None:
        for reason in ClockReason:
            yield (str(reason.name).lower(),), bool(gpu.clock_reasons & reason.value)


def _links(gpu: GpuReading) -> Iterator[tuple[tuple[str, ...], float | None]]:
    for link in gpu.nvlinks:
        yield (str(link.link),), link.active


def _link_errors(gpu: GpuReading) -> Iterator[tuple[tuple[str, ...], float | None]]:
    for link in gpu.nvlinks:
        for counter in _LINK_COUNTERS:
            yield (str(link.link), counter), getattr(link, counter)
