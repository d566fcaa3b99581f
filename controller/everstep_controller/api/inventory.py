"""Inventory of a node: its hardware as the agent's message says it, as a value of the core."""

from everstep_controller.core.model.node import Accelerator, Disk, Interface, Inventory
from everstep_proto.generated import fleet_pb2


def inventory(wire: fleet_pb2.Inventory) -> Inventory:
    """Return what a node consists of."""
    return Inventory(
        kernel=wire.kernel,
        cpu_model=wire.cpu_model,
        cpu_count=wire.cpu_count,
        memory_bytes=wire.memory_bytes,
        disks=tuple(
            Disk(d.device, d.mount, d.filesystem, d.size_bytes, d.free_bytes) for d in wire.disks
        ),
        interfaces=tuple(_interface(interface) for interface in wire.interfaces),
        accelerators=tuple(_accelerator(accelerator) for accelerator in wire.accelerators),
        notes=tuple(wire.notes),
    )


def _interface(wire: fleet_pb2.Interface) -> Interface:
    return Interface(
        name=wire.name,
        kind=wire.kind,
        up=wire.up,
        speed_bits_per_s=wire.speed_bits_per_s,
        address=wire.address,
        pci_address=wire.pci_address,
        numa_node=wire.numa_node if wire.HasField("numa_node") else None,
        firmware=wire.firmware,
    )


def _accelerator(wire: fleet_pb2.Accelerator) -> Accelerator:
    return Accelerator(
        uuid=wire.uuid,
        name=wire.name,
        vendor=wire.vendor,
        pci_address=wire.pci_address,
        memory_bytes=wire.memory_bytes,
        driver=wire.driver,
        numa_node=wire.numa_node if wire.HasField("numa_node") else None,
        nearest_interfaces=tuple(wire.nearest_interfaces),
        nearest_distance=wire.nearest_distance,
    )
