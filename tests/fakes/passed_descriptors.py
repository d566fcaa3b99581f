"""Descriptors that processes pass to each other: the right ones, and every wrong kind."""

import fcntl
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from everstep_common.sealed_memory import SIZE_SEALS


def sealed_memory(size_bytes: int, seals: int = SIZE_SEALS) -> int:
    """Return new memory with seals."""
    fd = os.memfd_create("memory", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


@contextmanager
def wrong_descriptors() -> Iterator[dict[str, int]]:
    """Yield descriptors that are no sealed memory, by what each of them is called."""
    with ExitStack() as stack:
        own = stack.enter_context(socket.socket())
        reader, writer = os.pipe()
        file = stack.enter_context(tempfile.TemporaryFile(dir="/var/tmp"))
        opened = {
            "a pipe": reader,
            "a folder": os.open("/", os.O_RDONLY),
            "a character device": os.open("/dev/zero", os.O_RDWR),
            "a descriptor of the kernel without a file": os.eventfd(0),
            "memory whose size can change": sealed_memory(4096, fcntl.F_SEAL_SHRINK),
        }
        for fd in (writer, *opened.values()):
            stack.callback(os.close, fd)
        yield {"a socket": own.fileno(), **opened, "a file of a disk": file.fileno()}
