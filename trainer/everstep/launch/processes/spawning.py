"""Process start: a process in a group of its own, which dies with the launcher."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_SHIM = str(Path(__file__).with_name("rank_shim.py"))


def spawn(
    command: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a command that inherits ``descriptors``; its output comes by pipes. Raises OSError."""
    return subprocess.Popen(
        # -I and -S: nothing of the job's environment can break the shim, and it starts sooner.
        [sys.executable, "-I", "-S", _SHIM, str(os.getpid()), *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        pass_fds=tuple(descriptors),
    )
