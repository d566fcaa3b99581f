"""Inventory file writer: the node's present inventory as TOML with comments."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from everstep_agent.detectors.inventory.detector import SeenGpu, SeenInventory
from everstep_agent.detectors.inventory.expected import LINK_KINDS
from everstep_agent.detectors.inventory.links import SeenLink

_HEAD = """\
# What a node of this type should have. The agent compares with it and reports what is missing;
# what is not in here is not judged. Written by `everstep-agent inventory` on {node}, {when}.
# Nothing in here is of this one node, so that the same file can serve all of its type; lines that
# begin with # are for those who want to be stricter. Install as /etc/everstep/inventory.toml,
# or name another place with the key `inventory` of the agent.
"""


def as_toml(found: SeenInventory, node: str, when: str) -> str:
    """Return the file."""
    parts = [_HEAD.format(node=node, when=when), *_host(found), *_gpus(found)]
    parts += [*_links(found.links or ()), *_disks(found), *_accelerators(found)]
    return "\n".join(parts)


def _host(found: SeenInventory) -> Iterator[str]:
    yield "[host]"
    if found.cpus is not None:
        yield f"cpus = {found.cpus}"
    if found.numa_nodes is not None:
        yield f"numa_nodes = {found.numa_nodes}"
    if found.memory_bytes is not None:
        yield f"memory_bytes = {found.memory_bytes}"
        yield "# Share that may be missing: kernels reserve differently."
        yield "memory_tolerance = 0.02"
    yield ""


def _gpus(found: SeenInventory) -> Iterator[str]:
    gpus = found.gpus or ()
    if not gpus:
        yield "# No NVIDIA GPU answers here.\n"
        return
    yield "[gpus]"
    yield f"count = {len(gpus)}"
    answering = [gpu for gpu in gpus if not gpu.error]
    if answering and len({gpu.name for gpu in answering}) == 1:
        yield f"name = {json.dumps(answering[0].name)}"
    yield from _least(answering)
    if found.driver:
        yield "# Only while the whole fleet should have one version:"
        yield f"#driver = {json.dumps(found.driver)}"
    yield "# To be told which GPU is missing; the same on nodes of one build:"
    yield f"#pci = {json.dumps([gpu.pci for gpu in gpus])}\n"


def _least(gpus: Sequence[SeenGpu]) -> Iterator[str]:
    """Yield what every GPU has at least."""
    for key, values in (
        ("memory_bytes", [gpu.memory_bytes for gpu in gpus]),
        ("nvlinks", [gpu.nvlinks for gpu in gpus]),
        ("pcie_generation", [gpu.pcie_generation for gpu in gpus]),
        ("pcie_width", [gpu.pcie_width for gpu in gpus]),
    ):
        known = [value for value in values if value is not None]
        if known and min(known) > 0:
            yield f"{key} = {min(known)}"


def _links(links: Sequence[SeenLink]) -> Iterator[str]:
    up = [link for link in links if link.up and link.kind in LINK_KINDS]
    for kind, bits in dict.fromkeys((link.kind, link.bits_per_s) for link in up):
        names = [link.name for link in up if (link.kind, link.bits_per_s) == (kind, bits)]
        yield "[[links]]"
        yield f"kind = {json.dumps(kind)}"
        if bits:
            yield f"rate_gbit_per_s = {bits / 1e9:g}"
        yield "# Where names differ from node to node, use a count in their place:"
        yield f"#count = {len(names)}"
        yield f"names = {json.dumps(names)}\n"
    if down := [link.name for link in links if not link.up]:
        yield f"# Not up, and so not expected: {', '.join(down)}\n"


def _disks(found: SeenInventory) -> Iterator[str]:
    for mount, size_bytes in found.disks or ():
        if mount.startswith("/dev/"):
            continue  # memory, of a size that follows the node's
        yield "[[disks]]"
        yield f"mount = {json.dumps(mount)}"
        yield f"size_bytes = {size_bytes}\n"


def _accelerators(found: SeenInventory) -> Iterator[str]:
    for vendor, count in found.accelerators or ():
        yield "[[accelerators]]"
        yield f"vendor = {json.dumps(vendor)}"
        yield f"count = {count}\n"


def write_new(path: Path, text: str, *, replace: bool) -> None:
    """Write a file at once. Raises FileExistsError unless it may be replaced, and OSError."""
    fd, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            os.fchmod(fd, 0o644)
            file.write(text)
            file.flush()
            os.fsync(fd)
        if replace:
            temporary.replace(path)
        else:
            # Unlike a rename, a link never takes the place of a file that came in between.
            path.hardlink_to(temporary)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
