"""Control group of a generation's processes, made where the launcher is allowed to make one.

Process groups and adoption find what the ranks leave behind one by one; the kernel ends a group at
once, whatever it forks meanwhile. Without a group that was delegated to the launcher there is none.
"""

import contextlib
import os
import re
import signal
from pathlib import Path

from everstep.launch.processes.sweeper import remove_group

# Set on a group that systemd has handed over (systemd.resource-control(5), Delegate=).
_DELEGATED = ("user.delegate", "trusted.delegate")
_NAME = re.compile(r"everstep-(\d+)-gen-\d+")


class GenerationGroup:
    """One control group (version 2), with the ranks of a generation and all they started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def make(cls, name: str, proc: Path = Path("/proc/self")) -> "GenerationGroup | None":
        """Make one below the launcher's own; None where that is not its business."""
        own = own_group(proc)
        if own is None or not _is_ours(own):
            return None
        remove_left(own)
        folder = own / name
        try:
            folder.mkdir()
        except OSError:
            return None
        return cls(folder)

    def add(self, pid: int) -> None:
        """Take a process in; one that it cannot have is stopped by the other ways."""
        with contextlib.suppress(OSError):
            (self._folder / "cgroup.procs").write_text(str(pid))

    def kill(self) -> None:
        """End everything in it."""
        try:
            (self._folder / "cgroup.kill").write_text("1")
        except OSError:  # a kernel before 5.14
            for pid in self.pids():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)

    def pids(self) -> set[int]:
        """Return the processes in it, and in those that ranks made in it; zombies are not."""
        found: set[int] = set()
        for place, _, _ in os.walk(self._folder):
            with contextlib.suppress(OSError, ValueError):
                found.update(map(int, Path(place, "cgroup.procs").read_text().split()))
        return found

    def remove(self) -> bool:
        """Remove it, if nothing is left in it; return whether it is gone."""
        return remove_group(str(self._folder))


def group_name(pid: int, generation: int) -> str:
    """Return the name of the group of a launcher's generation."""
    return f"everstep-{pid}-gen-{generation}"


def remove_left(own: Path, proc: Path = Path("/proc")) -> None:
    """Remove what launchers left that were killed; the kernel keeps a group that is in use."""
    for folder in own.glob("everstep-*"):
        found = _NAME.fullmatch(folder.name)
        if found and own_group(proc / found[1], proc / "self") != own:
            remove_group(str(folder))


def own_group(proc: Path, seen_by: Path | None = None) -> Path | None:
    """Return the folder of a process's group of version 2, as itself or another process sees it.

    A launcher's groups are in its own: who has its number, and is elsewhere, is another process.
    """
    try:
        lines = (proc / "cgroup").read_text().splitlines()
        mounts = ((seen_by or proc) / "mountinfo").read_text().splitlines()
    except OSError:
        return None
    inside = next((line[3:] for line in lines if line.startswith("0::/")), None)
    if inside is None or "/.." in inside:
        return None
    for fields in map(str.split, mounts):
        # proc(5): id parent device root mount-point options [optional …] - type source options
        if fields[fields.index("-") + 1] != "cgroup2":
            continue
        root = fields[3].rstrip("/")
        if inside == root or inside.startswith(root + "/"):
            return Path(fields[4] + inside[len(root) :].rstrip("/"))
    return None


def _is_ours(folder: Path) -> bool:
    """Return whether the launcher may make groups there; root may, but not everywhere should."""
    if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        return False
    if os.geteuid() != 0 or not (folder / "cgroup.type").exists():
        return True  # cgroup.type is missing in the topmost group: a container's own
    return any(_attribute(folder, name) == b"1" for name in _DELEGATED)


def _attribute(folder: Path, name: str) -> bytes:
    try:
        return os.getxattr(folder, name)
    except OSError:
        return b""
