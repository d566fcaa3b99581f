"""PCI device files: a device's address, its NUMA node, and whether it is a virtual function."""

import os
import re

from everstep_agent.probes.sysfs_file import text_of

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
