"""Usage probe: how much of its limits the kernel has given out, and whom it killed for memory."""

import os
from pathlib import Path

from everstep_agent.detectors.host.usage import KernelUsage, Usage
from everstep_agent.probes.kernel_files import KeptFile, number_in, text_of
from everstep_agent.probes.proc_tables import counter_in


class UsageProbe:
    """Probe of the kernel's own counts of what it hands out."""

    def __init__(self, proc: Path) -> None:
        self._sys = proc / "sys"
        self._vmstat = KeptFile(proc / "vmstat")
        # The kernel works it out from the wall clock, which may be set meanwhile: asked once.
        self._booted_at_s = _counter(KeptFile(proc / "stat"), b"btime")

    def read(self) -> KernelUsage:
        """Read once. What the kernel does not tell is None."""
        limits = [
            limit
            for name in ("pid_max", "threads-max")
            if (limit := number_in(self._sys / "kernel" / name))
        ]
        return KernelUsage(
            cpus=os.cpu_count() or 1,
            open_files=self._open_files(),
            tasks_max=min(limits, default=None),
            connections=self._connections(),
            oom_kills=_counter(self._vmstat, b"oom_kill"),
            booted_at_s=self._booted_at_s,
        )

    def _open_files(self) -> Usage | None:
        # "allocated, unused (always 0 since 2.6), limit"
        fields = (text_of(self._sys / "fs/file-nr") or "").split()
        if len(fields) != 3 or not all(field.isdecimal() for field in fields):
            return None
        # Without a limit set, it is the largest number there is: more digits than int() likes.
        return Usage(int(fields[0][:19]), int(fields[2][:19]))

    def _connections(self) -> Usage | None:
        folder = self._sys / "net/netfilter"
        count, limit = (number_in(folder / f"nf_conntrack_{name}") for name in ("count", "max"))
        return None if count is None or limit is None else Usage(count, limit)


def _counter(table: KeptFile, name: bytes) -> int | None:
    try:
        return counter_in(table.read(), name)
    except (OSError, ValueError):
        return None
