"""Device locations: links and accelerators with their NUMA node and the links nearest to them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from everstep_agent.detectors.links.reading import RDMA_KINDS, LinkReading
from everstep_agent.inventory.topology import PciPlace, nearest
from everstep_common.reports import Accelerator, Interface

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
