"""Mount probe: asks every network and user-space file system for a sign of life."""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.host.mounts import MountReading
from everstep_agent.probes.machine.mounts import Mount, MountTable
from everstep_agent.probes.worker import ProbeWorker

# How many mounts are asked, each on a thread: containers mount the same few servers over and over.
_MOUNTS_MAX = 64


def ask(path: str) -> None:
    """Ask for a file system's size and for one name in it. Blocks as long as it likes."""
    try:
        # statvfs is never answered from a cache, unlike a look-up of names.
        os.statvfs(path)
        with os.scandir(path) as names:
            next(names, None)
    except PermissionError:
        # It answered.
        return


@dataclass(slots=True)
class _Asked:
    """One file system, the thread that asks it, and since when it owes an answer."""

    mount: Mount
    worker: ProbeWorker
    silent_since: float | None = None


class NetworkMounts:
    """Probe of file systems, each on a thread of its own: one that hangs delays no other.

    A thread that hangs is left alone until its call returns; there is never a second one for the
    same file system.
    """

    def __init__(self, proc: Path, deadline_s: float, ask: Callable[[str], None] = ask) -> None:
        self._table = MountTable(proc)
        self._deadline_s = deadline_s
        self._ask = ask
        self._listing = ProbeWorker("mounts")
        self._asked: dict[str, _Asked] = {}
        self.left_out = 0

    async def read(self) -> tuple[MountReading, ...]:
        """Ask all of them once. Raises OSError when the table of mounts cannot be read."""
        mounts = await self._listing.call(self._table.read, self._deadline_s)
        self._take(_each_file_system_once(mount for mount in mounts if mount.is_remote))
        readings = (self._ask_one(asked) for asked in self._asked.values())
        return tuple(await asyncio.gather(*readings))

    def _take(self, mounts: dict[str, Mount]) -> None:
        """Begin to watch what is new, and let go of what is gone."""
        for device_id in [known for known in self._asked if known not in mounts]:
            self._asked.pop(device_id).worker.close()
        self.left_out = 0
        for device_id, mount in mounts.items():
            if device_id in self._asked:
                self._asked[device_id].mount = mount
            elif len(self._asked) < _MOUNTS_MAX:
                self._asked[device_id] = _Asked(mount, ProbeWorker(f"mount {mount.path}"))
            else:
                self.left_out += 1

    async def _ask_one(self, asked: _Asked) -> MountReading:
        mount, clock = asked.mount, asyncio.get_running_loop().time
        began, hang, error = clock(), "", ""
        try:
            await asked.worker.call(lambda: self._ask(mount.path), self._deadline_s)
            asked.silent_since = None
        except TimeoutError:
            asked.silent_since = began if asked.silent_since is None else asked.silent_since
            hang = f"no answer for {clock() - asked.silent_since:.0f} s"
        except OSError as problem:
            asked.silent_since = None
            error = problem.strerror or str(problem)
        return MountReading(
            mount=mount.path,
            server=mount.source,
            filesystem=mount.filesystem,
            answered_s=clock() - began,
            hang=hang,
            error=error,
        )


def _each_file_system_once(mounts: Iterable[Mount]) -> dict[str, Mount]:
    """Return one mount for each file system: containers mount the same one at many places."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        found.setdefault(mount.device_id, mount)
    return found
