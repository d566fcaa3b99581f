"""A mount of FUSE whose server is the caller: it answers what the kernel asks, or nobody does."""

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

SOURCE = "filer:/export"
_MNT_DETACH = 2


@contextlib.contextmanager
def fuse_mount(folder: Path, *, blocking: bool = True) -> Iterator[int]:
    """Mount one; yield the descriptor of its device, whose closing ends every wait."""
    device = os.open("/dev/fuse", os.O_RDWR | (0 if blocking else os.O_NONBLOCK))
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other,subtype=filer"
    command = ["mount", "--internal-only", "-t", "fuse", "-o", options, SOURCE, str(folder)]
    try:
        subprocess.run(command, check=True, pass_fds=[device])
        yield device
    finally:
        os.close(device)
        # Not by umount(8): of a mount that answers nobody it reads in /proc, which a program that
        # entered a machine's mounts alone does not have there.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.umount2(os.fsencode(folder), _MNT_DETACH):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(folder))
