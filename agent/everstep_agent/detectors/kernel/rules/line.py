"""Kernel line: one kernel message, and the PCI addresses that stand in it."""

import re
from dataclasses import dataclass

# An address as the drivers write it: "0000:3b:00", "00000000:3B:00.0", "PCI:0001:81:00.0".
PCI = r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_FUNCTION = re.compile(r"\.[0-9a-f]+$")
# Paths of files and of control groups: the kernel repeats them as a process chose them, and a
# control group may be called "NVRM: Xid (PCI:…".
_CHOSEN = re.compile(r"^(?:oom-kill:|audit:)|[\s=,:(\"']/")


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel message. ``injected``: it was written by a process, not by the kernel.

    ``level`` as syslog numbers it, 0 (emergency) to 7 (debug), and ``boot_ns``, when it was logged;
    None where the source does not say.
    """

    text: str
    injected: bool = False
    level: int | None = None
    boot_ns: int | None = None


def is_the_kernels(match: re.Match[str]) -> bool:
    """Return whether a match begins in kernel message, not in those of a process."""
    return _CHOSEN.search(match.string, 0, match.start()) is None


def pci_address(text: str) -> str:
    """Return a PCI address the way Linux writes it: "0000:3b:00.0"."""
    domain, _, rest = text.lower().removeprefix("pci:").partition(":")
    if not _FUNCTION.search(rest):
        rest += ".0"
    return f"{domain[-4:].rjust(4, '0')}:{rest}"
