"""Shutdown of the machine: whether it is why a service manager ends the launcher.

systemd ends services the same way for a shutdown and for whoever stops a job. While it shuts down
it says so, until its bus is down as well; logins are closed then (pam_nologin(8)).
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_ASK = ("systemctl", "is-system-running")
_ASK_S = 1.0
# The bus may be down before logins are closed: both take moments.
_LOOKS, _BETWEEN_S = 30, 0.05
_CLOSED = "going down"
# What systemctl answers where it knows no state, or nobody is there.
_UNKNOWN = frozenset({"", "unknown", "offline"})


def is_shutting_down(
    run: Path = Path("/run"),
    ask: Callable[[], str] | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> bool:
    """Return whether systemd shuts this machine down; in two seconds at most, mostly at once."""
    if not (run / "systemd/system").is_dir():
        return False
    for _ in range(_LOOKS):
        told = (ask or _ask_systemd)()
        if told == "stopping" or _CLOSED in _read(run / "nologin"):
            return True
        if told not in _UNKNOWN:
            return False
        wait(_BETWEEN_S)
    return False


def _ask_systemd() -> str:
    try:
        done = subprocess.run(
            _ASK, capture_output=True, text=True, timeout=_ASK_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
