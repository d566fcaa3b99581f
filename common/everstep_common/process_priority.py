"""Process priority: a helper process takes processors and memory after those whom it helps."""

import os
from pathlib import Path


def give_way(niceness: int, oom_score: int, process: Path = Path("/proc/self")) -> tuple[str, ...]:
    """Lower this process's priority by so much, and have it killed first; return what was refused.

    A refusal is one sentence for people: the process serves all the same, at others' cost.
    """
    refused = []
    if niceness:
        try:
            os.nice(niceness)
        except OSError as error:
            refused.append(f"its priority was not lowered, setpriority was refused: {error}")
    try:
        raise_oom_score(oom_score, process)
    except OSError as error:
        refused.append(f"its oom_score_adj was not raised to {oom_score}: {error}")
    return tuple(refused)


def raise_oom_score(least: int, process: Path) -> None:
    """Have the kernel kill a process at least that soon: proc_pid_oom_score_adj(5). Raises OSError.

    A higher score stays: a container begins with one, and may not lower it.
    """
    file = process / "oom_score_adj"
    if int(file.read_text(encoding="ascii")) < least:
        file.write_text(str(least), encoding="ascii")
