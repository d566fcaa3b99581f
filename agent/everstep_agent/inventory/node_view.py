"""Node view: the latest reading of each probe, and the node's inventory made of them."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep_agent.detectors.accelerators.reading import AcceleratorsReading
from everstep_agent.detectors.gpus.reading import GpusReading
from everstep_agent.detectors.host.clock import ClockReading
from everstep_agent.detectors.host.disks import DiskReading
from everstep_agent.detectors.host.edac import DimmReading
from everstep_agent.detectors.host.mounts import MountReading
from everstep_agent.detectors.host.services import ServicesReading
from everstep_agent.detectors.host.tasks import TasksReading
from everstep_agent.detectors.host.usage import HostReading, KernelUsage
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import RDMA_KINDS, LinkReading
from everstep_agent.detectors.readings.topology import PciPlace, nearest
from everstep_agent.inventory.accelerators import accelerators_of
from everstep_agent.probes.own_cost import AgentCost
from everstep_common.reports import Accelerator, Disk, Interface, Inventory, LinkColumns


@dataclass(slots=True)
class NodeView:
    """The latest reading of each probe; None until it has read once."""

    host: HostReading | None = None
    usage: KernelUsage | None = None
    clock: ClockReading | None = None
    tasks: TasksReading | None = None
    modules: tuple[DimmReading, ...] = ()
    mounts: tuple[MountReading, ...] = ()
    services: ServicesReading | None = None
    disks: tuple[DiskReading, ...] | None = None
    links: tuple[LinkReading, ...] | None = None
    link_statistics: tuple[CountersReading, ...] = ()
    port_counters: tuple[CountersReading, ...] = ()
    # Errors of these ports within a day; another object after each reading.
    link_errors: LinkColumns | None = None
    # Where cards sit in the PCI tree, by their address.
    places: Mapping[str, PciPlace] = field(default_factory=dict)
    # Why a part of what a source reads cannot be read, by the source's name.
    blind: dict[str, str] = field(default_factory=dict)
    gpus: GpusReading | None = None
    gpus_on_bus: int = 0
    # Accelerators of other vendors than NVIDIA, by the tool that reads them.
    accelerators: dict[str, AcceleratorsReading | None] = field(default_factory=dict)
    own_cost: AgentCost | None = None
    # Why the kernel log cannot be read; empty when it can.
    kernel_log: str | None = None

    def inventory(self, proc: Path) -> Inventory:
        """Return the facts."""
        return Inventory(
            kernel=os.uname().release,
            cpu_model=cpu_model(proc),
            cpu_count=os.cpu_count() or 0,
            memory_bytes=self.host.memory_total_bytes if self.host else 0,
            disks=tuple(_disk(disk) for disk in self.disks or ()),
            interfaces=tuple(interface(link) for link in self.links or ()),
            accelerators=located(self._accelerators(), self.links or (), self.places),
            notes=tuple(self._notes()),
        )

    def _accelerators(self) -> list[Accelerator]:
        others = accelerators_of(self.accelerators.values())
        return [*_accelerators(self.gpus), *others]

    def _notes(self) -> Sequence[str]:
        notes = []
        if self.gpus is None:
            notes.append("NVIDIA GPUs: the driver has not answered yet")
        elif self.gpus.absent:
            notes.append(f"NVIDIA GPUs: {self.gpus.absent}")
        else:
            notes += gpu_notes(self.gpus)
        for name, reading in (("host", self.host), ("disks", self.disks), ("links", self.links)):
            if reading is None:
                notes.append(f"{name}: not read yet")
        notes += [f"{source}: {why}" for source, why in self.blind.items() if why]
        if self.kernel_log != "":
            notes.append(f"kernel log: {self.kernel_log or 'not read yet'}")
        return notes


def cpu_model(proc: Path) -> str:
    """Return the model name of the first CPU; empty when the kernel does not say (ARM does not)."""
    try:
        with (proc / "cpuinfo").open(encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":") for line in file if line.startswith("model name")]
    except OSError:
        return ""
    return lines[0][2].strip() if lines else ""


def _disk(disk: DiskReading) -> Disk:
    return Disk(
        device=disk.device,
        mount=disk.mount,
        filesystem=disk.filesystem,
        size_bytes=disk.size_bytes,
        free_bytes=disk.free_bytes,
    )


def _accelerators(reading: GpusReading | None) -> list[Accelerator]:
    if reading is None:
        return []
    return [
        Accelerator(
            uuid=gpu.uuid,
            name=gpu.name,
            vendor="nvidia",
            pci_address=gpu.pci,
            memory_bytes=gpu.memory_bytes,
            driver=reading.driver,
        )
        for gpu in reading.gpus
    ]


def gpu_notes(reading: GpusReading) -> list[str]:
    """Return the notes."""
    notes = [
        f"GPU {gpu.pci}: {len(gpu.mig_devices)} MIG devices"
        for gpu in reading.gpus
        if gpu.mig_enabled
    ]
    if reading.gpus and reading.no_events:
        notes.append(f"NVIDIA GPUs: the driver tells of no events: {reading.no_events}")
    return notes


# "00000000:3B:00.0" of NVML and "0000:3b:00.0" of sysfs differ in the width of the domain.
_ADDRESS_CHARACTERS = len("0000:3b:00.0")


def interface(link: LinkReading) -> Interface:
    """Return a link as the controller wants to hear it."""
    return Interface(
        name=link.name,
        kind=link.kind,
        up=bool(link.up),
        speed_bits_per_s=link.speed_bits_per_s,
        address=link.address,
        pci_address=link.pci,
        numa_node=link.numa_node,
        firmware=link.firmware,
    )


def located(
    accelerators: Iterable[Accelerator],
    links: Sequence[LinkReading],
    places: Mapping[str, PciPlace],
) -> tuple[Accelerator, ...]:
    """Return the accelerators with their NUMA node and the links nearest to each."""
    cards = _cards(links)
    return tuple(_located(one, cards, places) for one in accelerators)


def _located(
    accelerator: Accelerator, cards: Mapping[str, str], places: Mapping[str, PciPlace]
) -> Accelerator:
    address = accelerator.pci_address.lower()[-_ADDRESS_CHARACTERS:]
    place = places.get(address)
    near = nearest(address, cards, places)
    return replace(
        accelerator,
        numa_node=None if place is None else place.numa_node,
        nearest_interfaces=tuple(near.links),
        nearest_distance=near.distance,
    )


def _cards(links: Sequence[LinkReading]) -> dict[str, str]:
    """Return the addresses of the ports that carry RDMA; of Ethernet where there are none."""
    ports = {link.name: link.pci for link in links if link.kind in RDMA_KINDS and link.pci}
    return ports or {link.name: link.pci for link in links if link.kind == "ethernet" and link.pci}
