"""Rank logs of the recovery benchmark: read back, to find when all ranks had completed a step."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# What a rank passes on its way to a step, in this order. A warm standby begins before the fault.
MARKS = ("begun", "imported", "joined", "wrapped", "restored")


@dataclass(frozen=True, slots=True)
class RankLog:
    """One training process: what it passed and which steps it completed, by the boot clock."""

    rank: int
    pid: int
    marks: Mapping[str, int]
    steps: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the fault to the first step that is new and complete on every rank."""

    seconds: float
    lost_steps: int
    # Seconds from the fault until the last rank had passed each mark.
    marks: Mapping[str, float]


def read_logs(folder: Path) -> list[RankLog]:
    """Return every training process that has written into the folder."""
    return [_read(path) for path in sorted(folder.glob("rank-*"))]


def common_step(logs: Sequence[RankLog], ranks: int) -> int:
    """Return the newest step that every rank has completed; -1 when there is none."""
    own = _by(logs, ranks)
    return min(max((max(log.steps, default=-1) for log in one), default=-1) for one in own)


def recovery(logs: Sequence[RankLog], ranks: int, fault_ns: int) -> Recovery | None:
    """Return what came after a fault; None while no new step is complete on all ranks."""
    logs = [log for log in logs if "imported" in log.marks]
    before = common_step([log for log in logs if log.marks["imported"] < fault_ns], ranks)
    after = [log for log in logs if log.marks["imported"] >= fault_ns]
    found = _first_complete(after, ranks, before)
    if found is None:
        return None
    step, at_ns = found
    there = [log for log in after if step in log.steps]
    marks = {
        mark: max(0, max(log.marks[mark] for log in there) - fault_ns) / 1e9
        for mark in MARKS
        if all(mark in log.marks for log in there)
    }
    begun_with = min(min(log.steps) for log in there)
    return Recovery((at_ns - fault_ns) / 1e9, max(0, before + 1 - begun_with), marks)


def _first_complete(after: Sequence[RankLog], ranks: int, before: int) -> tuple[int, int] | None:
    """Return the first step above ``before`` that all ranks completed, and when."""
    completed: list[dict[int, int]] = []
    for own in _by(after, ranks):
        times: dict[int, int] = {}
        for step, at_ns in (pair for log in own for pair in log.steps.items()):
            times[step] = min(at_ns, times.get(step, at_ns))
        completed.append(times)
    common = set.intersection(*(set(times) for times in completed))
    new = sorted(step for step in common if step > before)
    return (new[0], max(times[new[0]] for times in completed)) if new else None


def _by(logs: Iterable[RankLog], ranks: int) -> list[list[RankLog]]:
    found: list[list[RankLog]] = [[] for _ in range(ranks)]
    for log in logs:
        if log.rank < ranks:
            found[log.rank].append(log)
    return found


def _read(path: Path) -> RankLog:
    _, rank, pid = path.name.split("-")
    marks: dict[str, int] = {}
    steps: dict[int, int] = {}
    # Without what follows the last line end: a process was killed while it wrote that.
    for line in path.read_text(encoding="ascii").split("\n")[:-1]:
        *what, at_ns = line.split()
        if what[0] == "step":
            steps[int(what[1])] = int(at_ns)
        else:
            marks[what[0]] = int(at_ns)
    return RankLog(int(rank), int(pid), marks, steps)
