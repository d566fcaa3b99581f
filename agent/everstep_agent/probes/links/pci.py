"""PCI devices in sysfs: addresses, virtual functions, NUMA nodes, and the PCI tree."""

import os
import re

from everstep_agent.detectors.readings.topology import PciPlace
from everstep_agent.probes.links.sysfs_file import names_in, text_of

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
_NODE = re.compile(r"[0-9]{1,5}\Z")


def pci_address(device: str) -> str:
    """Return the address of the PCI function that ``device`` links to; empty when it is none.

    virtio and other buses put a device of their own between.
    """
    path = os.path.realpath(device)
    for name in (os.path.basename(path), os.path.basename(os.path.dirname(path))):
        if _ADDRESS.match(name):
            return name
    return ""


def numa_node(device: str) -> int | None:
    """Return the NUMA node that a device is near to; None when the firmware does not say."""
    text = text_of(f"{device}/numa_node")
    return int(text) if text is not None and _NODE.match(text) else None


def is_virtual_function(device: str) -> bool:
    """Return whether a device is a virtual function of SR-IOV."""
    return os.path.exists(f"{device}/physfn")


# PCI base classes: 02 network, 03 display, 12 processing accelerators.
_CLASSES = ("0x02", "0x03", "0x12")
# 3D controllers, other display controllers, processing accelerators; and VGA only of those who make
# accelerators, as every server has one for its console.
_ACCELERATORS = ("0x0302", "0x0380", "0x12")
_VGA, _MAKERS = "0x0300", ("0x10de", "0x1002")
# A root complex: "pci0000:16", or "pci10000:e0" behind a volume management device.
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")


def read_places(sysfs: str) -> dict[str, PciPlace]:
    """Return the place of every GPU, accelerator and network card, by its PCI address."""
    folder = f"{sysfs}/bus/pci/devices"
    places = {}
    for address in names_in(folder):
        device = f"{folder}/{address}"
        kind = text_of(f"{device}/class") or ""
        if kind.startswith(_CLASSES):
            places[address] = PciPlace(
                _path(device), numa_node(device), _is_accelerator(device, kind)
            )
    return places


def _is_accelerator(device: str, kind: str) -> bool:
    vga_of_maker = kind.startswith(_VGA) and text_of(f"{device}/vendor") in _MAKERS
    return kind.startswith(_ACCELERATORS) or vga_of_maker


def _path(device: str) -> tuple[str, ...]:
    """Return the way from the root complex to a device: ("pci0000:16", "0000:16:01.0", …)."""
    parts = os.path.realpath(device).split("/")
    roots = [at for at, part in enumerate(parts) if _ROOT.match(part)]
    return tuple(parts[roots[-1] :]) if roots else (parts[-1],)
