"""Mount points: which file system a path should be on, and is not, as its machine is set up.

A mount point that is not mounted is an empty folder of the file system below it: whatever is
written there fills the wrong disk, and is hidden when the right one is mounted.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_OCTAL = re.compile(r"\\([0-7]{3})")
# A table of mounts is longer than this on no machine; what is beyond is not read.
_TABLE_BYTES_MAX = 4 * 1024 * 1024
_UNITS = ("*.wants/*.mount", "*.requires/*.mount")


@dataclass(frozen=True, slots=True)
class MountTables:
    """Where a machine says what is to be mounted, and what is."""

    fstab: str = "/etc/fstab"
    mounts: str = "/proc/self/mountinfo"
    # Enabled mount units are linked from folders in here.
    units: str = "/etc/systemd/system"

    def unmounted_point(self, path: str) -> str:
        """Return the mount point at or above a path that is not mounted; "" where there is none."""
        path, real = os.path.abspath(path), os.path.realpath(path)
        # Points elsewhere are not touched: the file system of one of them may hang.
        above = [
            point
            for point in {*self._in_fstab(), *self._in_units()}
            if point != "/" and (_is_at_or_above(point, real) or _is_at_or_above(point, path))
        ]
        mounted = set(self._mounted()) if above else set[str]()
        missing = (one for one in above if not {one, os.path.realpath(one)} & mounted)
        return max(missing, key=len, default="")

    def _in_fstab(self) -> Iterator[str]:
        for line in _lines(self.fstab):
            fields = line.split()
            if len(fields) >= 3 and not fields[0].startswith("#") and fields[1].startswith("/"):
                yield os.path.normpath(_unescaped(fields[1]))

    def _in_units(self) -> Iterator[str]:
        folder = Path(self.units)
        for pattern in _UNITS:
            for unit in sorted(folder.glob(pattern)):
                for line in _lines(os.fspath(unit)):
                    name, _, value = line.partition("=")
                    if name.strip() == "Where" and value.strip().startswith("/"):
                        yield value.strip()

    def _mounted(self) -> Iterator[str]:
        for line in _lines(self.mounts):
            fields = line.split(" ")
            if len(fields) > 4:
                yield _unescaped(fields[4])


def _is_at_or_above(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda matched: chr(int(matched[1], 8)), text)


def _lines(path: str) -> list[str]:
    """Return the lines of a table; none of one that cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_TABLE_BYTES_MAX).splitlines()
    except OSError:
        return []
