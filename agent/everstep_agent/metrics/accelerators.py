"""Accelerator metrics: what the agent exports of devices of any vendor but NVIDIA."""

from collections.abc import Callable, Iterator

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from everstep_agent.detectors.accelerators.reading import AcceleratorReading
from everstep_agent.inventory.accelerators import devices_of
from everstep_agent.inventory.node_view import NodeView

_LABELS = ("vendor", "accelerator", "name")
_Value = Callable[[AcceleratorReading], float | None]
_GAUGES: tuple[tuple[str, str, _Value], ...] = (
    ("up", "The device is listed and answers.", lambda device: not device.error),
    ("temperature_celsius", "Temperature of the device.", lambda device: device.temperature_c),
    ("power_watts", "Power draw.", lambda device: device.power_w),
    ("utilization_ratio", "Share of time with work running.", lambda device: device.busy_ratio),
    ("memory_size_bytes", "Device memory.", lambda device: device.memory_bytes),
    (
        "memory_used_ratio",
        "Share of the device memory in use.",
        lambda device: device.memory_used_ratio,
    ),
)
_COUNTERS: tuple[tuple[str, str, _Value], ...] = (
    (
        "ecc_corrected_errors",
        "Corrected memory errors since driver load or reset.",
        lambda device: device.ecc_corrected,
    ),
    (
        "ecc_uncorrected_errors",
        "Uncorrected memory errors since driver load or reset.",
        lambda device: device.ecc_uncorrected,
    ),
)


def accelerator_metrics(view: NodeView) -> Iterator[Metric]:
    """Yield every family; none on a node without such devices."""
    devices = devices_of(view.accelerators.values())
    if not devices:
        return
    for name, text, value in _GAUGES:
        gauge = GaugeMetricFamily(f"everstep_accelerator_{name}", text, labels=_LABELS)
        yield _filled(gauge, devices, value)
    for name, text, value in _COUNTERS:
        counter = CounterMetricFamily(f"everstep_accelerator_{name}", text, labels=_LABELS)
        yield _filled(counter, devices, value)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily,
    devices: list[AcceleratorReading],
    value: _Value,
) -> Metric:
    for device in devices:
        if (number := value(device)) is not None:
            family.add_metric([device.vendor, device.id, device.name], number)
    return family
