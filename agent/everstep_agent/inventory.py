"""What this node consists of, from the latest readings, as the controller wants to hear it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.gpu import GpusReading
from everstep_agent.detectors.host import DiskReading, HostReading
from everstep_agent.detectors.links import LinkReading
from everstep_proto.generated import fleet_pb2


@dataclass(slots=True)
class NodeView:
    """The latest reading of each probe; None until it has read once."""

    host: HostReading | None = None
    disks: tuple[DiskReading, ...] | None = None
    links: tuple[LinkReading, ...] | None = None
    gpus: GpusReading | None = None
    gpus_on_bus: int = 0
    # Why the kernel log cannot be read; empty when it can.
    kernel_log: str | None = None

    def inventory(self, proc: Path) -> fleet_pb2.Inventory:
        """Return the facts."""
        return fleet_pb2.Inventory(
            kernel=os.uname().release,
            cpu_model=cpu_model(proc),
            cpu_count=os.cpu_count() or 0,
            memory_bytes=self.host.memory_total_bytes if self.host else 0,
            disks=[_disk(disk) for disk in self.disks or ()],
            interfaces=[_interface(link) for link in self.links or ()],
            accelerators=_accelerators(self.gpus),
            notes=self._notes(),
        )

    def _notes(self) -> Sequence[str]:
        notes = []
        if self.gpus is None:
            notes.append("NVIDIA GPUs: the driver has not answered yet")
        elif self.gpus.absent:
            notes.append(f"NVIDIA GPUs: {self.gpus.absent}")
        for name, reading in (("host", self.host), ("disks", self.disks), ("links", self.links)):
            if reading is None:
                notes.append(f"{name}: not read yet")
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


def _disk(disk: DiskReading) -> fleet_pb2.Disk:
    return fleet_pb2.Disk(
        device=disk.device,
        mount=disk.mount,
        filesystem=disk.filesystem,
        size_bytes=disk.size_bytes,
        free_bytes=disk.free_bytes,
    )


def _interface(link: LinkReading) -> fleet_pb2.Interface:
    return fleet_pb2.Interface(
        name=link.name,
        kind=link.kind,
        up=bool(link.up),
        speed_bits_per_s=link.speed_bits_per_s,
        address=link.address,
    )


def _accelerators(reading: GpusReading | None) -> list[fleet_pb2.Accelerator]:
    if reading is None:
        return []
    return [
        fleet_pb2.Accelerator(
            uuid=gpu.uuid,
            name=gpu.name,
            vendor="nvidia",
            pci_address=gpu.pci,
            memory_bytes=gpu.memory_bytes,
            driver=reading.driver,
        )
        for gpu in reading.gpus
    ]
