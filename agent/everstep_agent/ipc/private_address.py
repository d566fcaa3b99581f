"""Private address: a Unix socket without a name in any folder, which only those reach who hold it.

Who inherited the descriptor connects by its path in /proc; others are kept out by the kernel, which
lets nobody follow that path who may not trace the process (proc(5), /proc/pid/fd).
"""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def bind_private(bind: Callable[[str], None]) -> int:
    """Bind a socket, in a folder that only this user may enter, and remove its name again.

    Returns the descriptor by which it is reached. Raises OSError.
    """
    folder = Path(tempfile.mkdtemp(prefix="everstep-"))
    try:
        path = folder / "s"
        bind(os.fspath(path))
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def address_of(fd: int) -> str:
    """Return the path by which a process that has this descriptor reaches the socket."""
    return f"/proc/self/fd/{fd}"
