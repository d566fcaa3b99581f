"""Injected kernel lines: their text, written to the kernel's own log or beside it."""

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from everstep_agent.detectors.kernel import KernelLine
from everstep_agent.injections.specs import KernelSpec, XidSpec
from everstep_agent.probes.kernel.kernel_log import KernelBatch, KernelLog, Position

# Facility 1 (user) and level 3 (error): the kernel lets no process write as facility 0, so that
# everybody who reads the log sees that a process wrote the line (kmsg(4)).
_PREFIX = b"<11>"
_LEVEL = 3
# The device with this number is the kernel's log, whatever its name: Documentation/admin-guide/
# devices.txt, "1 char 11 /dev/kmsg".
_KMSG = (1, 11)


class InjectedLog:
    """A kernel log with lines of ours between its own."""

    def __init__(self, log: KernelLog, path: Path) -> None:
        self._log = log
        self._path = path
        self._lines: list[KernelLine] = []
        # Has the kernel log read at once; wired to the loop that reads all sources.
        self.wake: Callable[[], None] = lambda: None

    @property
    def position(self) -> Position:
        """See KernelLog."""
        return self._log.position

    def drain(self) -> KernelBatch:
        """See KernelLog."""
        batch = self._log.drain()
        lines, self._lines = self._lines, []
        return replace(batch, lines=(*batch.lines, *lines)) if lines else batch

    def descriptor(self) -> int | None:
        """See KernelLog."""
        return self._log.descriptor()

    def has_news(self) -> bool:
        """See KernelLog."""
        return self._log.has_news()

    def add(self, text: str, boot_ns: int) -> str:
        """Add a line, and return where it went: the kernel's log, if this process may write it."""
        if _written(self._path, text):
            self.wake()
            return f"a line in {self._path}"
        self._lines.append(KernelLine(text, injected=True, level=_LEVEL, boot_ns=boot_ns))
        self.wake()
        return "a line beside the kernel log, which this agent may not write"


def _written(path: Path, text: str) -> bool:
    try:
        status = path.stat()
        number = (os.major(status.st_rdev), os.minor(status.st_rdev))
        if not stat.S_ISCHR(status.st_mode) or number != _KMSG:
            return False
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(fd, _PREFIX + text.encode())
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


# The driver's text after the number of an Xid, as quoted in NVIDIA's catalogue.
_XID_TEXTS = {
    79: "GPU has fallen off the bus.",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}


def kernel_text(spec: XidSpec | KernelSpec) -> str:
    """Return the line for the kernel log."""
    if isinstance(spec, KernelSpec):
        return spec.text
    # The driver writes PCI addresses without the function (".0").
    pci = spec.pci.rpartition(".")[0]
    text = _XID_TEXTS.get(spec.code, "injected")
    return f"NVRM: Xid (PCI:{pci}): {spec.code}, pid='<unknown>', name=<unknown>, {text}"
