"""A file system that takes requests and never answers: who asks waits in the kernel, unkillable."""

import contextlib
import os
import select
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from real.fuse_mount import fuse_mount

# linux/fuse.h: fuse_in_header, fuse_out_header, and the first fields of fuse_init_out, of 64 bytes.
_IN = struct.Struct("=IIQQIIII")
_OUT = struct.Struct("=IiQ")
_INIT = 26
_INIT_OUT = struct.pack("=IIIIHHI", 7, 31, 65536, 0, 12, 9, 65536).ljust(64, b"\0")
_REQUEST_BYTES_MAX = 1 << 20


@contextlib.contextmanager
def hung(folder: Path) -> Iterator[None]:
    """Cover a folder with one. In the end all who wait get an error, and it is as it was."""
    with fuse_mount(folder, blocking=False) as device:
        stop, stopping = os.pipe()
        server = threading.Thread(target=_swallow, args=(device, stop), daemon=True)
        server.start()
        try:
            yield
        finally:
            os.close(stopping)
            server.join()
            os.close(stop)


def _swallow(device: int, stop: int) -> None:
    """Take every request: one that nobody has taken, a signal could still end."""
    while stop not in select.select([device, stop], [], [])[0]:
        with contextlib.suppress(BlockingIOError):
            request = os.read(device, _REQUEST_BYTES_MAX)
            _, operation, unique, *_ = _IN.unpack_from(request)
            if operation == _INIT:
                os.write(device, _OUT.pack(_OUT.size + len(_INIT_OUT), 0, unique) + _INIT_OUT)
