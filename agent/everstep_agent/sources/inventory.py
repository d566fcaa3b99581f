"""Inventory source: compares what the node has now with its expected inventory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_agent.detectors.inventory.detector import SeenGpu, SeenInventory, judge_inventory
from everstep_agent.detectors.inventory.expected import LINK_KINDS, ExpectedInventory
from everstep_agent.detectors.inventory.links import SeenLink
from everstep_agent.inventory.accelerators import accelerators_by_vendor
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.sources.source import Source, threaded
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement


def read_cpus(sysfs: Path) -> tuple[int | None, int | None]:
    """Return how many CPUs and NUMA nodes are online; None where the kernel does not say."""
    return _count(sysfs / "devices/system/cpu/online"), _count(sysfs / "devices/system/node/online")


def _count(path: Path) -> int | None:
    """Return how many numbers are in a list like "0-63,128-191"."""
    try:
        ranges = path.read_text(encoding="ascii").strip().split(",")
        bounds = [one.split("-") for one in ranges if one]
        return sum(int(bound[-1]) - int(bound[0]) + 1 for bound in bounds)
    except (OSError, ValueError):
        return None


def seen(view: NodeView, cpus: tuple[int | None, int | None]) -> SeenInventory:
    """Return the node as it is."""
    reading, links, disks = view.gpus, view.links, view.disks
    return SeenInventory(
        gpus=None if reading is None else tuple(_gpu(gpu) for gpu in reading.gpus),
        driver=reading.driver if reading else "",
        links=None
        if links is None
        else tuple(
            SeenLink(name=one.name, kind=one.kind, up=one.up, bits_per_s=one.speed_bits_per_s)
            for one in links
            if one.kind in LINK_KINDS
        ),
        cpus=cpus[0],
        numa_nodes=cpus[1],
        memory_bytes=view.host.memory_total_bytes if view.host else None,
        disks=None if disks is None else tuple((one.mount, one.size_bytes) for one in disks),
        accelerators=accelerators_by_vendor(view.accelerators.values()),
    )


def _gpu(gpu: GpuReading) -> SeenGpu:
    # Before the first complete reading the NVLinks of a GPU are unknown, which is not zero links.
    active = [link.active for link in gpu.nvlinks if link.active is not None]
    return SeenGpu(
        pci=gpu.pci,
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        nvlinks=sum(active) if active else None,
        pcie_generation=gpu.pcie_generation_max,
        pcie_width=gpu.pcie_width_max,
        error=gpu.error,
    )


# Parts go missing at boots, not within seconds; what dies in between has detectors of its own.
INVENTORY_INTERVAL_S = 10.0


@dataclass(frozen=True, slots=True)
class Expectation:
    """Inventory to compare with, and the readings that are compared."""

    expected: ExpectedInventory
    view: NodeView
    open_keys: Callable[[], Iterable[FindingKey]]


def inventory_source(what: Expectation, sysfs: Path, deadline_s: float) -> Source:
    """Return the source. It judges what the other sources have read."""

    def read() -> SeenInventory:
        return seen(what.view, read_cpus(sysfs))

    def judge(reading: SeenInventory) -> Sequence[Judgement]:
        return judge_inventory(what.expected, reading, what.open_keys())

    return Source(
        name="inventory",
        group="inventory",
        interval_s=INVENTORY_INTERVAL_S,
        look=threaded("inventory", deadline_s, read, judge),
    )
