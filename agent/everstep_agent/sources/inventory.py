"""Present inventory: what the node has by the newest readings, to compare with the expected one."""

from pathlib import Path

from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_agent.detectors.inventory.detector import SeenGpu, SeenInventory
from everstep_agent.detectors.inventory.expected import LINK_KINDS
from everstep_agent.detectors.inventory.links import SeenLink
from everstep_agent.inventory.accelerators import accelerators_by_vendor
from everstep_agent.inventory.node_view import NodeView


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
