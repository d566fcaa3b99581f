"""Wait for an agent that is not there yet: why one is to be expected, and what is said meanwhile.

A node that boots starts its jobs when it likes, and an agent that is upgraded is away for seconds.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

_UNIT = "everstep-agent.service"
# systemd.unit(5), "System Unit Search Path", most specific first.
UNIT_FOLDERS: Sequence[Path] = tuple(
    map(Path, ("/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system"))
) + tuple(map(Path, ("/usr/lib/systemd/system", "/lib/systemd/system")))

# Folders that are there without an agent.
_OF_NOBODY = frozenset(map(Path, ("/", "/run", "/var/run", "/tmp", "/var/tmp", "/dev/shm")))


def why_expected(
    socket: str,
    error: OSError,
    environ: Mapping[str, str] = os.environ,
    folders: Sequence[Path] = UNIT_FOLDERS,
) -> str:
    """Return why an agent should come to answer where one did not, in words; "": none should."""
    if isinstance(error, PermissionError):  # no waiting changes that
        return ""
    folder = Path(socket).parent
    if folder.is_dir() and folder not in _OF_NOBODY:
        return f"the folder of its socket, {folder}, is there"
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", "/"), ".config")
    for place in (*folders, Path(home) / "systemd/user"):
        if (place / _UNIT).exists():
            return f"its unit is installed: {place / _UNIT}"
    if "SLURM_JOB_ID" in environ:
        return "Slurm started this launcher"
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "Kubernetes started this launcher"
    return ""


def waits_for_agent(socket: str, why: str, wait_s: float, option: str = "--agent-wait 0") -> str:
    """Say that the launcher waits for its agent, and how long at most."""
    return (
        f"no agent answers at {socket} yet; waiting up to {wait_s:g} s for everstep-agent of this"
        f" node ({why}); {option} does not wait"
    )


def nobody_answers(
    socket: str, error: OSError, waited_s: float = 0.0, *, under_torchrun: bool = False
) -> str:
    """Say that there is no agent, and what to do about it."""
    after = f" after {waited_s:g} s" if waited_s else ""
    told = f"no agent answers at {socket}{after} ({error.strerror or error}); start everstep-agent"
    if under_torchrun:
        return f"{told} on this node, or name its socket with --rdzv-endpoint"
    return (
        f"{told} on this node, name its socket with --socket or EVERSTEP_SOCKET, or use everstep"
        " run --standalone, which needs none"
    )
