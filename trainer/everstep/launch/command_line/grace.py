"""Grace: how long a launcher has from a signal to the moment at which somebody kills it."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# slurm.conf(5): in the folder of its installation, or where slurmd keeps it when it has no file.
SLURM_CONF: Sequence[str] = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
)
_KILL_WAIT = re.compile(r"^\s*KillWait\s*=\s*(\d+)", re.IGNORECASE | re.MULTILINE)
# The defaults of slurm.conf(5), and of a pod's terminationGracePeriodSeconds.
_SLURM_S = 30.0
_KUBERNETES_S = 30.0
# A week: nobody kills later than that, and a longer time fits no message.
GRACE_MAX_S = 604_800.0
# Where nobody is known to kill anything: as long as people wait for a command to end.
_OWN_S = 10.0
# sbatch(1), --signal: [{R|B}:]SIGNAL[@SECONDS]; it comes up to a minute early.
_SIGNAL = re.compile(r"(?:[RB]+:)?(?:SIG)?(TERM|15)(?:@(\d+))?", re.IGNORECASE)
_SIGNAL_S = 60.0
_SIGNAL_LATE_S = 60.0


@dataclass(frozen=True, slots=True)
class Grace:
    """Time from a signal to SIGKILL, and who sets it; "": nobody does."""

    seconds: float
    set_by: str = ""


def known_grace(
    given: float | None,
    environ: Mapping[str, str] = os.environ,
    wall_s: float = 0.0,
    folders: Sequence[str] = SLURM_CONF,
) -> Grace:
    """Return the grace of a SIGTERM that comes now (``wall_s``, seconds of the epoch)."""
    if given is not None:
        return Grace(given, "--grace")
    if "SLURM_JOB_ID" in environ:
        return _before_time_limit(environ, wall_s) or _kill_wait(environ, folders)
    if "KUBERNETES_SERVICE_HOST" in environ:
        return Grace(_KUBERNETES_S, "Kubernetes' default of terminationGracePeriodSeconds")
    return Grace(_OWN_S)


def _before_time_limit(environ: Mapping[str, str], wall_s: float) -> Grace | None:
    """Return what is left of the allocation, where Slurm was told to warn of its end by SIGTERM."""
    told = next((environ[n] for n in ("SBATCH_SIGNAL", "SALLOC_SIGNAL") if n in environ), "")
    found = _SIGNAL.fullmatch(told)
    end = environ.get("SLURM_JOB_END_TIME", "")
    if found is None or not end.isdecimal():
        return None
    left_s = int(end) - wall_s
    ahead_s = float(found[2] or _SIGNAL_S)
    # Earlier or later it is another signal: somebody's scancel.
    grace = Grace(min(left_s, GRACE_MAX_S), f"--signal={told}")
    return grace if 0 < left_s <= ahead_s + _SIGNAL_LATE_S else None


def _kill_wait(environ: Mapping[str, str], folders: Sequence[str]) -> Grace:
    named = [environ["SLURM_CONF"]] if "SLURM_CONF" in environ else []
    for path in (*named, *folders):
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if found := _KILL_WAIT.search(text):
            return Grace(min(float(found[1]), GRACE_MAX_S), f"KillWait of {path}")
        break
    return Grace(_SLURM_S, "Slurm's default of KillWait")
