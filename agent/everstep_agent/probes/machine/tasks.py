"""Task probe: the state of every process, a slice of /proc at a time."""

import re
from collections import Counter
from pathlib import Path

from everstep_agent.detectors.host.tasks import TasksReading, WaitingTask, is_of_system
from everstep_agent.probes.machine.kernel_files import names_in, read_file, text_of
from everstep_agent.probes.machine.proc_tables import process_fields

# include/linux/sched.h
_PF_KTHREAD = 0x00200000
# A large node has 3,000 kernel threads that rest for ever: they are looked at in every tenth round.
_ROUNDS_PER_FULL = 10
_UID = re.compile(r"^Uid:\t(\d+)\t", re.MULTILINE)


class TaskScan:
    """Reads /proc in ``slices`` parts, one each time it is called: no look takes long.

    The first look is at everything at once, so that a check has its answer.
    """

    def __init__(self, proc: Path, slices: int) -> None:
        self._proc = proc
        self._slices = slices
        self._due: list[str] = []
        self._per_look = 0
        self._round = 0
        self._kernel: frozenset[str] = frozenset()
        self._waiting: list[WaitingTask] = []
        self._zombies: Counter[int] = Counter()
        self._processes = 0
        self._resting: set[str] = set()

    def read(self) -> TasksReading | None:
        """Read the next slice; the reading when it was the last of a round. Raises OSError."""
        if not self._due:
            self._begin()
        slice_, self._due = self._due[: self._per_look], self._due[self._per_look :]
        for pid in slice_:
            self._look_at(pid)
        if self._due:
            return None
        self._kernel = frozenset(self._resting)
        # Not to be collected is the fault of the parent, whoever the ended process was.
        of_users = sum(n for pid, n in self._zombies.items() if not is_of_system(self._uid(pid)))
        of_system = self._zombies.total() - of_users
        return TasksReading(tuple(self._waiting), of_system, of_users, self._processes)

    def _begin(self) -> None:
        pids = [name for name in names_in(self._proc) if name.isdecimal()]
        if not pids:
            raise OSError(f"{self._proc} shows no process")
        if self._round % _ROUNDS_PER_FULL == 0:
            self._kernel = frozenset()
        known = self._kernel.intersection(pids)
        self._due = [pid for pid in pids if pid not in known]
        self._per_look = len(self._due) if self._round == 0 else -(-len(self._due) // self._slices)
        self._resting = set(known)
        self._waiting, self._zombies, self._processes = [], Counter(), len(pids)
        self._round += 1

    def _look_at(self, pid: str) -> None:
        try:
            name, fields = process_fields(read_file(f"{self._proc}/{pid}/stat"))
            state, parent, flags = fields[0], int(fields[1]), int(fields[6])
            started = int(fields[19])
        except (OSError, ValueError):
            # It ended in between.
            return
        is_kernel = bool(flags & _PF_KTHREAD)
        is_driver = name.startswith("nvidia")
        if is_kernel and not is_driver:
            self._resting.add(pid)
        elif state == b"Z":
            self._zombies[parent] += 1
        elif state == b"D":
            where = text_of(f"{self._proc}/{pid}/wchan") or ""
            told = where if where != "0" else ""
            uid = 0 if is_kernel else self._uid(int(pid))
            self._waiting.append(WaitingTask(int(pid), started, name, is_kernel, uid, told))

    def _uid(self, pid: int) -> int:
        """Return whose process it is; 0 where nobody can tell. Its folder's owner may be root."""
        found = _UID.search(text_of(f"{self._proc}/{pid}/status") or "")
        return int(found[1]) if found else 0
