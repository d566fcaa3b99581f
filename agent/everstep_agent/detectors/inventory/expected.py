"""Expected inventory: what nodes of one type should have, as their operator wrote it in a file."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from everstep_common.setting import setting

# As the kernel writes it; nvidia-smi has more zeros and capitals, and that would match no GPU.
_PCI = re.compile(r"(?:|[1-9a-f][0-9a-f]{0,3})[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
LINK_KINDS = ("infiniband", "roce", "ethernet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedHost:
    """Processors and memory; 0 expects nothing."""

    cpus: int = setting(0, help="Logical CPUs that are online.")
    numa_nodes: int = setting(0, help="NUMA nodes.")
    memory_bytes: int = setting(0, unit="bytes", help="Main memory as the kernel counts it.")
    memory_tolerance: float = setting(
        0.02,
        help="Share that may be missing: kernels reserve differently, and the smallest module of a "
        "node with 32 of them is 3 %.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGpus:
    """NVIDIA GPUs, all of one type; empty and 0 expect nothing."""

    count: int = setting(0, help="GPUs that answer; gpus_expected of the agent goes before it.")
    name: str = setting("", help="Product name as the driver says it.")
    memory_bytes: int = setting(0, unit="bytes", help="Memory of each as the driver counts it.")
    nvlinks: int = setting(0, help="Active NVLinks of each.")
    pcie_generation: int = setting(0, help="PCIe generation that each can reach in its slot.")
    pcie_width: int = setting(0, help="PCIe lanes that each can use in its slot.")
    driver: str = setting("", help="Driver version; empty accepts any.")
    pci: tuple[str, ...] = setting(
        (), help='PCI addresses ("0000:3b:00.0"): with them a missing GPU is told by its place.'
    )

    @property
    def wanted(self) -> int:
        """Return how many GPUs this asks for."""
        return max(self.count, len(self.pci))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedLinks:
    """Links of one kind and rate; with names each is looked for by its own."""

    kind: str = setting(help='"infiniband", "roce" or "ethernet".')
    count: int = setting(0, help="How many must be up; not needed with names.")
    rate_gbit_per_s: float = setting(0.0, unit="Gbit/s", help="Lowest rate; 0 accepts any.")
    names: tuple[str, ...] = setting((), help='Interfaces ("eth0") and ports ("mlx5_0/1").')

    @property
    def wanted(self) -> int:
        """Return how many links this asks for."""
        return max(self.count, len(self.names))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDisk:
    """A mounted file system."""

    mount: str = setting(help="Where it is mounted.")
    size_bytes: int = setting(0, unit="bytes", help="Least size, less 5 %; 0 accepts any.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAccelerators:
    """Accelerators of another vendor."""

    vendor: str = setting(help='Vendor as the agent calls it: "amd".')
    count: int = setting(help="How many must be there.")


_Table = ExpectedHost | ExpectedGpus | ExpectedLinks | ExpectedDisk | ExpectedAccelerators


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedInventory:
    """The whole file. What is not in it is not judged."""

    host: ExpectedHost = field(default_factory=ExpectedHost)
    gpus: ExpectedGpus = field(default_factory=ExpectedGpus)
    links: tuple[ExpectedLinks, ...] = setting((), help="Links, by kind and rate.")
    disks: tuple[ExpectedDisk, ...] = setting((), help="Mounts.")
    accelerators: tuple[ExpectedAccelerators, ...] = setting((), help="Other accelerators.")

    @property
    def required_links(self) -> tuple[str, ...]:
        """Return the links that must be up from the beginning."""
        return tuple(name for links in self.links for name in links.names)

    def problems(self) -> list[str]:
        """Say what is wrong with the values, in the operator's words."""
        return [*self._numbers(), *self._links(), *self._gpus(), *self._others()]

    def _numbers(self) -> Iterator[str]:
        tables: dict[str, _Table] = {"host": self.host, "gpus": self.gpus}
        lists: dict[str, Sequence[_Table]] = {
            "links": self.links,
            "disks": self.disks,
            "accelerators": self.accelerators,
        }
        for name, entries in lists.items():
            tables |= {f"{name}[{i}]": entry for i, entry in enumerate(entries)}
        for table, values in tables.items():
            for key in (spec.name for spec in fields(values)):
                value = getattr(values, key)
                if isinstance(value, int | float) and value < 0:
                    yield f"{table}.{key}: must be 0 or more, got {value:g}"
        if self.host.memory_tolerance >= 1:
            yield f"host.memory_tolerance: must be below 1, got {self.host.memory_tolerance:g}"

    def _links(self) -> Iterator[str]:
        for i, links in enumerate(self.links):
            if links.kind not in LINK_KINDS:
                known = ", ".join(LINK_KINDS)
                yield f"links[{i}].kind: expected one of {known}, got {links.kind!r}"
            if links.names and links.count not in (0, len(links.names)):
                yield f"links[{i}].count: {links.count}, but {len(links.names)} names are listed"
            if not links.wanted:
                yield f"links[{i}].count: missing; expected a count or names"
        by_name = {links.kind for links in self.links if links.names}
        for kind in sorted(by_name & {links.kind for links in self.links if not links.names}):
            yield f"links: {kind} is expected by names here and by a count there; use one of them"
        yield from _repeated("links", self.required_links)

    def _gpus(self) -> Iterator[str]:
        gpus = self.gpus
        if gpus.pci and gpus.count not in (0, len(gpus.pci)):
            yield f"gpus.count: {gpus.count}, but {len(gpus.pci)} PCI addresses are listed"
        for i, pci in enumerate(gpus.pci):
            if not _PCI.fullmatch(pci):
                yield f'gpus.pci[{i}]: expected an address like "0000:3b:00.0", got {pci!r}'
        yield from _repeated("gpus.pci", gpus.pci)

    def _others(self) -> Iterator[str]:
        for i, disk in enumerate(self.disks):
            if not disk.mount.startswith("/"):
                yield f"disks[{i}].mount: expected a path from the root, got {disk.mount!r}"
        yield from _repeated("disks", [disk.mount for disk in self.disks])
        yield from _repeated("accelerators", [one.vendor for one in self.accelerators])


def _repeated(key: str, names: Sequence[str]) -> Iterator[str]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"{key}: {name} is listed more than once"
