"""A file system of one large file, whose server answers until it is told to hang, and after."""

import contextlib
import errno
import os
import select
import stat
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from real.fuse_mount import fuse_mount

NAME, SIZE_BYTES = "samples", 1 << 40
# linux/fuse.h, version 7.31: the heads of requests and answers, and the bodies of some of them.
_IN = struct.Struct("=IIQQIIII")
_OUT = struct.Struct("=IiQ")
_INIT_OUT = struct.pack("=IIIIHHI", 7, 31, 65536, 0, 12, 9, 65536).ljust(64, b"\0")
_ATTRIBUTES = struct.Struct("=6Q10I")
_READ_IN = struct.Struct("=QQI")
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 25, 26, 27, 28, 29
_INTERRUPT, _BATCH_FORGET = 36, 42
_OPENS = frozenset({_OPEN, _OPENDIR})
_NOTHING_TO_SAY = frozenset({_RELEASE, _FLUSH, _READDIR, _RELEASEDIR})
_UNANSWERED = frozenset({_FORGET, _INTERRUPT, _BATCH_FORGET})
_ROOT, _FILE = 1, 2
_REQUEST_BYTES_MAX = 1 << 20
_BLOCK_BYTES = 65536
# So long the kernel need not ask again, in seconds.
_VALID_S = 3600
_MODES: Mapping[int, int] = MappingProxyType(
    {_ROOT: stat.S_IFDIR | 0o755, _FILE: stat.S_IFREG | 0o444}
)
# FOPEN_DIRECT_IO: each read is a request of its own, as of file systems without a page cache.
_DIRECT = 1


class Storage:
    """Answers the kernel, but not while it hangs; what was asked then it answers afterwards."""

    def __init__(self, device: int, *, direct: bool) -> None:
        self._device, self._direct = device, direct
        self._hangs = False
        self._read_to = 0
        self._hangs_from: int | None = None
        self._held: list[bytes] = []
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Return how many reads wait."""
        with self._lock:
            return sum(_IN.unpack_from(one)[1] == _READ for one in self._held)

    def hang(self) -> None:
        """Answer nothing from now on."""
        with self._lock:
            self._hangs = True

    def hang_between_steps(self, step_bytes: int) -> None:
        """Answer the reads of the step that has begun, and nothing from the next step's first on.

        All ranks of a job wait then, each in its own read: in the middle of a step, those whose
        read was answered wait for the others. Each step reads in the next `step_bytes` of the file.
        """
        with self._lock:
            self._hangs_from = (self._read_to // step_bytes + 1) * step_bytes

    def go_on(self) -> None:
        """Answer again, and what waits first."""
        with self._lock:
            self._hangs, self._hangs_from = False, None
            held, self._held = self._held, []
            for request in held:
                self._answer(request)

    def serve(self, stop: int) -> None:
        """Answer until a descriptor can be read."""
        while stop not in select.select([self._device, stop], [], [])[0]:
            with contextlib.suppress(BlockingIOError):
                request = os.read(self._device, _REQUEST_BYTES_MAX)
                with self._lock:
                    self._look_at(request)
                    if self._hangs:
                        self._held.append(request)
                    else:
                        self._answer(request)

    def _look_at(self, request: bytes) -> None:
        if _IN.unpack_from(request)[1] != _READ:
            return
        self._read_to = _READ_IN.unpack_from(request, _IN.size)[1]
        if self._hangs_from is not None and self._read_to >= self._hangs_from:
            self._hangs = True

    def _answer(self, request: bytes) -> None:
        _, operation, unique, node, *_ = _IN.unpack_from(request)
        if operation in _UNANSWERED:
            return
        body = self._body(operation, node, request[_IN.size :])
        failed = -errno.ENOSYS if body is None else 0
        body = body or b""
        # A process that was killed meanwhile waits for no answer.
        with contextlib.suppress(FileNotFoundError):
            os.write(self._device, _OUT.pack(_OUT.size + len(body), failed, unique) + body)

    def _body(self, operation: int, node: int, told: bytes) -> bytes | None:
        """Return the answer to a request; None: there is none."""
        if operation == _INIT:
            return _INIT_OUT
        if operation == _LOOKUP and told.rstrip(b"\0") == NAME.encode():
            return struct.pack("=4Q2I", _FILE, 0, _VALID_S, _VALID_S, 0, 0) + _attributes(_FILE)
        if operation == _GETATTR:
            return struct.pack("=Q2I", _VALID_S, 0, 0) + _attributes(node)
        if operation == _STATFS:
            blocks = SIZE_BYTES // _BLOCK_BYTES
            free = (blocks, blocks, blocks, 1, 1)
            return struct.pack("=5Q4I24x", *free, _BLOCK_BYTES, 255, _BLOCK_BYTES, 0)
        if operation in _OPENS:
            return struct.pack("=Q2I", 1, _DIRECT if self._direct else 0, 0)
        if operation == _READ:
            return bytes(_READ_IN.unpack_from(told)[2])
        return b"" if operation in _NOTHING_TO_SAY else None


def _attributes(node: int) -> bytes:
    blocks = SIZE_BYTES // 512
    return _ATTRIBUTES.pack(
        *(node, SIZE_BYTES, blocks, 0, 0, 0), *(0, 0, 0, _MODES[node], 1, 0, 0, 0, _BLOCK_BYTES, 0)
    )


@contextlib.contextmanager
def hanging_storage(folder: Path, *, direct: bool) -> Iterator[Storage]:
    """Mount it at a folder. In the end all who wait get an error."""
    with fuse_mount(folder, blocking=False) as device:
        stop, stopping = os.pipe()
        made = Storage(device, direct=direct)
        server = threading.Thread(target=made.serve, args=(stop,), daemon=True)
        server.start()
        try:
            yield made
        finally:
            os.close(stopping)
            server.join()
            os.close(stop)
