"""systemd protocol: readiness, watchdog, and file descriptors kept over a restart.

The same protocol is spoken by systemd and by the small holder process that stands in for it where
systemd is not PID 1 (``everstep-agent hold``), so a daemon has one code path.
"""

import os
import socket
from collections.abc import Iterable, Mapping

# First descriptor that a service manager passes (sd_listen_fds(3)).
LISTEN_FDS_START = 3


def notify(
    *assignments: str, fds: Iterable[int] = (), environ: Mapping[str, str] = os.environ
) -> bool:
    """Tell the service manager ``KEY=value`` lines; return whether there is one that took them."""
    address = environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    target = "\0" + address[1:] if address.startswith("@") else address
    message = "\n".join(assignments).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.settimeout(1.0)
            sender.connect(target)
            socket.send_fds(sender, [message], list(fds))
    except OSError:
        return False
    return True


def store_fd(name: str, fd: int) -> bool:
    """Ask the service manager to keep ``fd`` under ``name`` over a restart of this service."""
    return notify("FDSTORE=1", f"FDNAME={name}", fds=[fd])


def remove_fd(name: str) -> bool:
    """Ask the service manager to close the descriptors that it keeps under ``name``."""
    return notify("FDSTOREREMOVE=1", f"FDNAME={name}")


def stored_fds(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> dict[str, int]:
    """Return the descriptors that the service manager handed over, by name, all close-on-exec."""
    if environ.get("LISTEN_PID") != str(os.getpid() if pid is None else pid):
        return {}
    names = environ.get("LISTEN_FDNAMES", "").split(":")
    count = int(environ.get("LISTEN_FDS", "0"))
    passed = range(LISTEN_FDS_START, LISTEN_FDS_START + count)
    for fd in passed:
        os.set_inheritable(fd, False)
    return dict(zip(names, passed, strict=False))


def watchdog_interval_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """Return how often to send WATCHDOG=1 (seconds: half of the limit), or None without a limit."""
    limit_us = environ.get("WATCHDOG_USEC")
    return int(limit_us) / 2e6 if limit_us else None
