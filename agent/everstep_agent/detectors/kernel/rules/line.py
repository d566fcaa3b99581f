"""Kernel line: one kernel message, and the PCI addresses that stand in it."""

import re
from dataclasses import dataclass

# An address as the drivers write it: "0000:3b:00", "00000000:3B:00.0", "PCI:0001:81:00.0".
PCI = r"(?:PCI:)?(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-9a-fA-F])?)"
_FUNCTION = re.compile(r"\.[0-9a-f]+$")
# What the kernel writes before a message: a time stamp, drivers and devices with a colon, a word
# or two. Not what a process chose, which stands behind other words, quotes or brackets: a program
# that crashes may be called "NVRM: Xid (PCI:…", and a control group, or an option of a mount.
_STAMP = r"(?:<\d>)?(?:\[ *[\d.]{1,20}\] ?)?(?:\[ *[TC]\d{1,9}\] ?)?"
_BEFORE = re.compile(
    rf"{_STAMP}"
    r"(?!audit: |usb |input: |CPU: )"  # a device says its name, a crash the program's
    r"(?:(?:\{\d{1,9}\})?\[Hardware Error\]: +|[\w.-]{1,64}(?: [\w.:-]{1,32})?: ){0,3}"
    r"(?:(?:Watchdog )?detected |rcu_\w{1,16} |EXT4-fs |M|[\w-]{1,32} )?"
)
# TASK_COMM_LEN, include/linux/sched.h: 15 characters and the end.
_PROGRAM_NAME_CHARS = 15
# What the kernel writes of a program: "python[77]: segfault at …", "traps: python[77] trap …", and
# "python: page allocation failure: …". It begins with the program's name, and goes on to the name
# of a file or control group, which its user chose as well. A byte that cannot be shown may be
# written as "\\x0a" (kmsg(4)) or "#012" (rsyslog).
_OF_PROGRAM = re.compile(
    rf"{_STAMP}(?:traps: )?(?:\\x[0-9a-f]{{2}}|#\d{{3}}|.){{1,{_PROGRAM_NAME_CHARS}}}?"
    r"(?:\[\d{1,10}\]:? |: page allocation failure|: vmalloc| invoked oom-killer)"
)
# A packet that a firewall logs, with words of whoever made the rule before it.
_PACKET = re.compile(r"IN=\S* OUT=\S* ")


# What is younger is as good as new.
_CERTAIN_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One kernel message. ``injected``: it was written by a process, not by the kernel.

    ``level`` as syslog numbers it, 0 (emergency) to 7 (debug), and ``boot_ns``, when it was logged;
    None where the source does not say. ``waited``: it was there when the agent began to read.
    """

    text: str
    injected: bool = False
    level: int | None = None
    boot_ns: int | None = None
    waited: bool = False


def began_ns(line: KernelLine, now_boot_ns: int) -> int | None:
    """Return when what a line tells began, on the boot clock; None: when it was read.

    The kernel's clock for lines is not disciplined, and may be wrong by a thousandth of the time
    since the boot. Only a line that is older than that for certain has its own time.
    """
    if not line.waited or line.boot_ns is None:
        return None
    certain_ns = max(_CERTAIN_NS, now_boot_ns // 1000)
    return line.boot_ns if now_boot_ns - line.boot_ns > certain_ns else None


def is_the_kernels(match: re.Match[str], *, logged_by_program: bool = False) -> bool:
    """Return whether a match is the beginning of a kernel message, and no words of a process.

    ``logged_by_program``: it may be one about a program, which begins with the program's name.
    """
    if not logged_by_program and _OF_PROGRAM.match(match.string):
        return False
    if match.end() - match.start() <= _PROGRAM_NAME_CHARS and match.end() < len(match.string):
        # All of it may be the name of a program, behind which the kernel writes on.
        return False
    begins = _BEFORE.fullmatch(match.string, 0, match.start()) is not None
    return begins and _PACKET.search(match.string) is None


def pci_address(text: str) -> str:
    """Return a PCI address the way Linux writes it: "0000:3b:00.0"."""
    address = text.lower().removeprefix("pci:")
    if address.count(":") == 1:
        address = f"0000:{address}"
    domain, _, rest = address.partition(":")
    if not _FUNCTION.search(rest):
        rest += ".0"
    return f"{domain[-4:].rjust(4, '0')}:{rest}"
