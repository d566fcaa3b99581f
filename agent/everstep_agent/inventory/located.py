"""Device locations: links and accelerators with their NUMA node and the links nearest to them."""

from collections.abc import Mapping, Sequence

from everstep_agent.detectors.links.reading import RDMA_KINDS, LinkReading
from everstep_agent.detectors.readings.topology import PciPlace, nearest
from everstep_proto.generated import fleet_pb2

# "00000000:3B:00.0" of NVML and "0000:3b:00.0" of sysfs differ in the width of the domain.
_ADDRESS_CHARACTERS = len("0000:3b:00.0")


def interface(link: LinkReading) -> fleet_pb2.Interface:
    """Return a link as the controller wants to hear it."""
    return fleet_pb2.Interface(
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
    accelerators: Sequence[fleet_pb2.Accelerator],
    links: Sequence[LinkReading],
    places: Mapping[str, PciPlace],
) -> Sequence[fleet_pb2.Accelerator]:
    """Return the accelerators with their NUMA node and the links nearest to each."""
    for accelerator in accelerators:
        address = accelerator.pci_address.lower()[-_ADDRESS_CHARACTERS:]
        place = places.get(address)
        if place is not None and place.numa_node is not None:
            accelerator.numa_node = place.numa_node
        near = nearest(address, _cards(links), places)
        accelerator.nearest_interfaces.extend(near.links)
        accelerator.nearest_distance = near.distance
    return accelerators


def _cards(links: Sequence[LinkReading]) -> dict[str, str]:
    """Return the addresses of the ports that carry RDMA; of Ethernet where there are none."""
    ports = {link.name: link.pci for link in links if link.kind in RDMA_KINDS and link.pci}
    return ports or {link.name: link.pci for link in links if link.kind == "ethernet" and link.pci}
