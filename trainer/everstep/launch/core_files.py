"""Core dump of a rank: where the kernel has put it, by its core_pattern."""

import glob
import re
from pathlib import Path

# core(5)
_SPECIFIER = re.compile(r"%(.)")


def core_file(pid: int, folder: Path, kernel: Path = Path("/proc/sys/kernel")) -> str:
    """Return its path, or the command that shows it; "" where neither is known.

    ``folder`` is where the rank worked, ``pid`` its number as it knows it itself.
    """
    try:
        pattern = (kernel / "core_pattern").read_text(encoding="utf-8").strip()
        adds_pid = (kernel / "core_uses_pid").read_text(encoding="ascii").strip() != "0"
    except (OSError, ValueError):
        return ""
    if pattern.startswith("|"):
        return f"coredumpctl info {pid}" if "systemd-coredump" in pattern else ""
    if adds_pid and "%p" not in pattern:
        pattern += ".%p"
    wanted = folder / _SPECIFIER.sub(lambda found: _expanded(found[1], pid), pattern)
    there = [path for path in glob.glob(str(wanted)) if Path(path).is_file()]
    return max(there, key=_written_s, default="")


def _expanded(specifier: str, pid: int) -> str:
    if specifier == "p":
        return str(pid)
    # Name, time, signal and the like: whatever they were.
    return "%" if specifier == "%" else "*"


def _written_s(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0
