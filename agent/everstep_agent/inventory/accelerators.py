"""Accelerator inventory: devices of any vendor but NVIDIA, as they are reported."""

from collections import Counter
from collections.abc import Iterable

from everstep_agent.detectors.accelerators.reading import AcceleratorReading, AcceleratorsReading
from everstep_common.reports import Accelerator

# The devices by the tool that reads them; None for a tool that has not been asked yet.
Readings = Iterable[AcceleratorsReading | None]


def devices_of(readings: Readings) -> list[AcceleratorReading]:
    """Return the devices of all tools that have answered."""
    return [device for reading in readings if reading for device in reading.devices]


def accelerators_by_vendor(readings: Readings) -> tuple[tuple[str, int], ...] | None:
    """Return how many devices of each vendor answer; None until every tool was asked."""
    asked = list(readings)
    if not asked or None in asked:
        return None
    counts = Counter(device.vendor for device in devices_of(asked) if not device.error)
    return tuple(sorted(counts.items()))


def accelerators_of(readings: Readings) -> list[Accelerator]:
    """Return the devices of all tools; one without a serial is named by its place."""
    return [
        Accelerator(
            uuid=device.serial or f"{device.vendor}-{device.id}",
            name=device.name,
            vendor=device.vendor,
            pci_address=device.pci,
            memory_bytes=device.memory_bytes or 0,
            driver=device.driver,
        )
        for device in devices_of(readings)
    ]
