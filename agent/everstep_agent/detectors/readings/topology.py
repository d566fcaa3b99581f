"""Node topology: which links are near to which device, on the scale of ``nvidia-smi topo``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# From near to far. PIX: at most one PCIe switch between them; PXB: several, but no root complex;
# PHB: the root complex of a CPU; NODE: several of them in one NUMA node; SYS: between NUMA nodes.
DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")


@dataclass(frozen=True, slots=True)
class PciPlace:
    """Place of a device: root complex, bridges from there on, itself; and its NUMA node."""

    path: tuple[str, ...]
    numa_node: int | None = None
    accelerator: bool = False


@dataclass(frozen=True, slots=True)
class Nearest:
    """The links nearest to a device, and how near they are."""

    links: tuple[str, ...] = ()
    distance: str = ""


def distance(one: PciPlace, other: PciPlace) -> str:
    """Return how far two devices are from each other, as one of DISTANCES."""
    common = 0
    for left, right in zip(one.path, other.path, strict=False):
        if left != right:
            break
        common += 1
    if common == 0:
        known = one.numa_node is not None and one.numa_node == other.numa_node
        return "NODE" if known else "SYS"
    if common == 1:
        return "PHB"
    # Behind one common PCIe switch a path has at most two more parts: a port and the device.
    below = max(len(one.path), len(other.path)) - common
    return "PIX" if below <= 2 else "PXB"


def nearest(device: str, links: Mapping[str, str], places: Mapping[str, PciPlace]) -> Nearest:
    """Return which links are nearest to a device; both are given by their PCI address.

    ``links`` maps the name of a link to its address.
    """
    here = places.get(device)
    if here is None:
        return Nearest()
    found: dict[str, list[str]] = {}
    for name, address in links.items():
        if (place := places.get(address)) is not None:
            found.setdefault(distance(here, place), []).append(name)
    for word in DISTANCES:
        if word in found:
            return Nearest(_in_order(found[word]), word)
    return Nearest()


def beside_the_rails(links: Mapping[str, str], places: Mapping[str, PciPlace]) -> frozenset[str]:
    """Return the links that are nearest to no accelerator: for storage or management, not rails.

    Empty where nothing tells: on a node without accelerators every link may be a rail.
    """
    rails: set[str] = set()
    for address, place in places.items():
        if place.accelerator:
            rails.update(nearest(address, links, places).links)
    return frozenset(links) - rails if rails else frozenset()


def _in_order(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted(names))
