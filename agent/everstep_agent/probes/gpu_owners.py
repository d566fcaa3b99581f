"""GPU memory owners: finds processes that hold device memory and no longer exist."""

import os
from collections.abc import Iterable
from pathlib import Path

# PROC_PID_INIT_INO, include/linux/proc_ns.h: the namespace in which the driver counts processes.
_FIRST_NAMESPACE = "pid:[4026531836]"


def dead_processes(proc: Path, pids: Iterable[int]) -> tuple[int, ...] | None:
    """Return which of them do not exist; None where this agent sees other pids than the driver."""
    try:
        if os.readlink(proc / "self/ns/pid") != _FIRST_NAMESPACE:
            return None
    except OSError:
        return None
    return tuple(sorted({pid for pid in pids if not (proc / str(pid)).exists()}))
