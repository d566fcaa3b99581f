"""Sealed memory: what a descriptor that is passed between our processes must be."""

import fcntl
import os
import stat

# Seals by which nobody can shorten the memory under a mapping (SIGBUS in every process that maps
# it) or let it grow past the budget.
SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

_KINDS = {
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFLNK: "a symbolic link",
}
_EXPECTED = "expected memory that is sealed against shrinking and growing (a memfd)"


def sealed_memory_problem(fd: int, size_bytes: int = 0) -> str:
    """Return why a descriptor is not sealed memory of at least so many bytes; empty if it is."""
    status = os.fstat(fd)
    kind = stat.S_IFMT(status.st_mode)
    if kind != stat.S_IFREG:
        # An eventfd, a pidfd and their like have no type at all.
        return f"{_KINDS.get(kind, 'a descriptor of the kernel without a file')}; {_EXPECTED}"
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return f"a file of a disk; {_EXPECTED}"
    if seals & SIZE_SEALS != SIZE_SEALS:
        return f"memory whose size can change; {_EXPECTED}"
    if status.st_size < size_bytes:
        return f"memory of {status.st_size} bytes, which is shorter than {size_bytes}"
    return ""
