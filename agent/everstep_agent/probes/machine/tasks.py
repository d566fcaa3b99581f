"""Task probe: the state of every process, a slice of /proc at a time."""

from pathlib import Path

from everstep_agent.detectors.host.tasks import TasksReading, WaitingTask
from everstep_agent.probes.machine.kernel_files import names_in, read_file, text_of
from everstep_agent.probes.machine.proc_tables import process_fields

# include/linux/sched.h
_PF_KTHREAD = 0x00200000
# A large node has 3,000 kernel threads that rest for ever: they are looked at in every tenth round.
_ROUNDS_PER_FULL = 10


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
        self._zombies = self._processes = 0
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
        return TasksReading(tuple(self._waiting), self._zombies, self._processes)

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
        self._waiting, self._zombies, self._processes = [], 0, len(pids)
        self._round += 1

    def _look_at(self, pid: str) -> None:
        try:
            name, fields = process_fields(read_file(f"{self._proc}/{pid}/stat"))
            state, flags, started = fields[0], int(fields[6]), int(fields[19])
        except (OSError, ValueError):
            # It ended in between.
            return
        is_kernel = bool(flags & _PF_KTHREAD)
        is_driver = name.startswith("nvidia")
        if is_kernel and not is_driver:
            self._resting.add(pid)
        elif state == b"Z":
            self._zombies += 1
        elif state == b"D":
            where = text_of(f"{self._proc}/{pid}/wchan") or ""
            told = where if where != "0" else ""
            self._waiting.append(WaitingTask(int(pid), started, name, is_kernel, told))
