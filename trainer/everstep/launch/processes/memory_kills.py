"""Out-of-memory kills: detected by the counters of the control group that a rank runs in.

A process that is killed so leaves no word, and its end looks like anybody's SIGKILL.
"""

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from everstep.launch.processes.rank_failure import RankFailure

# cgroup-v2.rst: of this group alone since Linux 5.2, with all below it before that.
_VERSION_2: tuple[str, ...] = ("memory.events.local", "memory.events")
_LIMIT_2 = "memory.max"
# cgroup-v1/memory.rst; the count is of this group alone, since Linux 4.13.
_VERSION_1: tuple[str, ...] = ("memory.oom_control",)
_LIMIT_1 = "memory.limit_in_bytes"
# What a shell returns whose program was killed.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
# Of version 1 "no limit" is the largest multiple of a page: nobody has a petabyte.
_NO_LIMIT_BYTES = 1 << 50


class MemoryKills:
    """Counter of out-of-memory kills in the control group to which the ranks' memory is charged."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc
        self.begin()

    def begin(self) -> None:
        """Another generation begins: what was killed before does not explain its end."""
        self._place = next(_counters(self._proc), None)
        self._seen = self._count()

    def explain(self, failure: RankFailure) -> RankFailure:
        """Return the failure, with what the kernel knows of it."""
        by_kernel = failure.end.code in _KILLED and failure.kind in ("killed", "device_memory")
        # Each kill explains one end: that of a killed rank, or of one whose exception tells of a
        # killed child.
        by_kernel |= failure.kind == "killed" and "killed by signal: Killed" in failure.exception
        if not by_kernel or self._count() <= self._seen:
            return failure
        self._seen += 1
        told = f"the kernel killed it because memory ran out{self._where()}"
        said = failure.exception if failure.kind == "killed" else ""
        return replace(failure, kind="host_memory", exception=said or told)

    def _count(self) -> int:
        try:
            lines = self._place[0].read_text().splitlines() if self._place else []
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
        except (OSError, ValueError, IndexError):
            return 0

    def _where(self) -> str:
        try:
            limit = int(self._place[1].read_text()) if self._place else 0
        except (OSError, ValueError):  # "max"
            limit = 0
        if not 0 < limit < _NO_LIMIT_BYTES:
            return ""
        return f": its control group may have {limit / 2**30:.3g} GiB"


def _counters(proc: Path) -> Iterator[tuple[Path, Path]]:
    """Yield where kills are counted, and what limits memory there, the nearest group first."""
    try:
        groups = [line.split(":", 2) for line in (proc / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    for number, controllers, inside in groups:
        if "memory" in controllers.split(","):
            names, limit, kind = _VERSION_1, _LIMIT_1, "cgroup"
        elif number == "0":
            names, limit, kind = _VERSION_2, _LIMIT_2, "cgroup2"
        else:
            continue
        for folder in _folders(mounts, kind, inside):
            yield from ((folder / one, folder / limit) for one in names if (folder / one).exists())


def _folders(mounts: list[list[str]], kind: str, inside: str) -> Iterator[Path]:
    """Yield a group's folder and those above it, which count where it has no counters itself."""
    for fields in mounts:
        # proc(5): id parent device root mount-point options [optional …] - type source options
        told = fields[fields.index("-") + 1 :]
        root = fields[3].rstrip("/")
        if told[0] != kind or (kind == "cgroup" and "memory" not in told[2].split(",")):
            continue
        # A container may see its group by the name that the host has for it, mounted as the root.
        below = inside[len(root) :] if f"{inside}/".startswith(f"{root}/") else ""
        top = Path(fields[4])
        folder = Path(fields[4] + below.rstrip("/"))
        yield folder
        yield from (above for above in folder.parents if above.is_relative_to(top))
