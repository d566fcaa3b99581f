"""Owners of the other ends of TCP connections on loopback, as /proc/net/tcp tells them."""

import ipaddress
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_ESTABLISHED = "01"
_TABLES = ("tcp", "tcp6")

End = tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]


@dataclass(frozen=True, slots=True)
class _Row:
    """One end of a connection."""

    local: End
    remote: End
    uid: int
    # 0 before a process has accepted it: whose it is going to be is not known.
    inode: int


def owners_of_far_ends(host: str, port: int, proc: Path = Path("/proc")) -> set[int]:
    """Return the uids at the other ends of this user's connections to an address of this machine.

    ``host`` is an address, or a name for any loopback address. Empty when there are no connections.
    Raises OSError where the kernel does not tell.
    """
    rows = list(_established(proc, port))
    ends = {(row.local, row.remote): row for row in rows}
    ours = (row for row in rows if row.uid == os.geteuid() and _is_to(row.remote, host, port))
    far = (ends.get((row.remote, row.local)) for row in ours)
    return {row.uid for row in far if row is not None and row.inode}


def _is_to(remote: End, host: str, port: int) -> bool:
    address, at = remote
    if at != port:
        return False
    try:
        return address == ipaddress.ip_address(host)
    except ValueError:
        return address.is_loopback


def _established(proc: Path, port: int) -> Iterator[_Row]:
    """Yield the ends of connections from and to a port; the others are not worth parsing."""
    mark = f":{port:04X} "
    for table in _TABLES:
        path = proc / "self" / "net" / table
        if table == "tcp6" and not path.exists():  # a kernel without IPv6
            continue
        lines = path.read_text(encoding="ascii").splitlines()[1:]
        yield from _rows(line for line in lines if mark in line)


def _rows(lines: Iterable[str]) -> Iterator[_Row]:
    for line in lines:
        fields = line.split()
        if fields[3] == _ESTABLISHED:
            yield _Row(_end(fields[1]), _end(fields[2]), int(fields[7]), int(fields[9]))


def _end(text: str) -> End:
    """Read ``0100007F:1D09``: words in the byte order of the machine, which is little-endian."""
    words, _, port = text.partition(":")
    packed = b"".join(bytes.fromhex(words[at : at + 8])[::-1] for at in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address, int(port, 16)
