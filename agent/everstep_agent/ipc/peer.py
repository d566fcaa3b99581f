"""Peer credentials: the process at the other end of a Unix socket, by the kernel's word."""

import re
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
# As they were when the connection was made: /proc could already be about another process.
_SO_PEERGROUPS = 59
_GROUP = struct.Struct("I")
# What socket.getsockopt of Python takes: 256 groups.
_OPTION_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Peer:
    """Process at the other end of a Unix socket, by the kernel's word."""

    pid: int
    uid: int
    gid: int = -1
    groups: tuple[int, ...] = ()


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected. Raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid, gid, _groups_of(connection, pid))


def user_of(connection: socket.socket) -> int:
    """Return the number of the user who connected. Raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])


def user_name(user: int, passwd: Path = Path("/etc/passwd")) -> str:
    """Return the name that this node's own file has for a user, "" where it has none.

    A directory service is not asked: it may take seconds to answer.
    """
    try:
        lines = passwd.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    fields = (line.split(":") for line in lines)
    return next((one[0] for one in fields if len(one) > 2 and one[2] == str(user)), "")


def _groups_of(connection: socket.socket, pid: int) -> tuple[int, ...]:
    try:
        listed = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _OPTION_BYTES_MAX)
        return tuple(group for (group,) in _GROUP.iter_unpack(listed))
    except OSError:  # ERANGE: more groups than Python takes from a socket
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^Groups:(.*)$", status, re.MULTILINE)
        return tuple(map(int, found[1].split())) if found else ()
