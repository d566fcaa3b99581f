"""Inventory: the hardware that a node consists of."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Disk:
    """A mounted disk; sizes in bytes."""

    device: str
    mount: str
    filesystem: str
    size_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface or an InfiniBand port."""

    name: str
    kind: str
    up: bool
    speed_bits_per_s: int
    address: str
    pci_address: str = ""
    numa_node: int | None = None
    firmware: str = ""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator."""

    uuid: str
    name: str
    vendor: str
    pci_address: str
    memory_bytes: int
    driver: str
    numa_node: int | None = None
    # The interfaces nearest to it, and how near: "PIX", "PXB", "PHB", "NODE" or "SYS".
    nearest_interfaces: tuple[str, ...] = ()
    nearest_distance: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Hardware of a node."""

    kernel: str = ""
    cpu_model: str = ""
    cpu_count: int = 0
    memory_bytes: int = 0
    disks: tuple[Disk, ...] = ()
    interfaces: tuple[Interface, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    notes: tuple[str, ...] = ()
