"""Process look: what the kernel shows of a rank's process from outside, twice in a moment."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from everstep_common.hangs.reports.rank_report import ProcessState

_STATES = {
    "R": ProcessState.RUNNING,
    "S": ProcessState.SLEEPING,
    "I": ProcessState.SLEEPING,
    "D": ProcessState.UNINTERRUPTIBLE,
    "T": ProcessState.STOPPED,
    "t": ProcessState.STOPPED,
    "Z": ProcessState.DEAD,
    "X": ProcessState.DEAD,
}
# Threads of torch's worker server, which answer what ranks are asked: a thousand page faults and
# the bytes of a dump for each look, whatever the rank does.
SERVER_THREADS = "pt_workerserver"
# A frozen cgroup's processes sleep (version 2) or are uninterruptible (version 1) in these.
_FREEZERS = ("do_freezer_trap", "__refrigerator")
_ON_A_PROCESSOR = "running"


class GoneError(Exception):
    """The process is no more, or its pid is another's."""


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """State of a process at one moment; what could not be read is "" or -1."""

    at_ns: int
    state: ProcessState
    # When it started, in ticks since boot: tells it from a later one of its pid.
    started_ticks: int
    # User and system time of all its threads.
    cpu_ticks: int
    # Of the main thread: its user time, and how often it has left a processor.
    user_ticks: int
    switches: int
    wchan: str
    # Number and arguments of its system call, stack pointer and instruction pointer.
    syscall: str
    # What its threads have written so far, to files and to the sockets of gloo; those that answer
    # looks are left out, here and below.
    written_bytes: int = -1
    # Page faults of its threads so far: memory that it took, or gave back and took again.
    faults: int = -1

    def stands_like(self, earlier: "ProcessLook") -> bool:
        """Return whether the main thread has not run at all since an earlier look."""
        return (
            self.state == earlier.state
            and self.switches == earlier.switches >= 0
            and self.user_ticks == earlier.user_ticks
        )

    def same_stack(self, earlier: "ProcessLook") -> bool | None:
        """Return whether the main thread is where it was; None where that cannot be read."""
        if not self.syscall or not earlier.syscall:
            return None
        same = self.syscall == earlier.syscall != _ON_A_PROCESSOR
        return same and self.stands_like(earlier)


def look(pid: int, at_ns: int, proc: Path = Path("/proc")) -> ProcessLook:
    """Look once, microseconds for the reader and nothing for the rank. Raises GoneError."""
    folder = proc / str(pid)
    try:
        whole, main = _fields(folder / "stat"), _fields(folder / "task" / str(pid) / "stat")
        written_bytes, faults = _work_of(folder)
    except (OSError, ValueError, IndexError) as error:
        raise GoneError(f"process {pid} is gone") from error
    # proc_pid_stat(5), counted from the state, which is its third field.
    wchan = _text(folder / "wchan").strip("\0\n ")
    state = _STATES.get(whole[0], ProcessState.UNKNOWN)
    return ProcessLook(
        at_ns=at_ns,
        state=ProcessState.STOPPED if wchan in _FREEZERS else state,
        started_ticks=int(whole[19]),
        cpu_ticks=int(whole[11]) + int(whole[12]),
        user_ticks=int(main[11]),
        switches=_switches(_text(folder / "task" / str(pid) / "status")),
        wchan="" if wchan == "0" else wchan,
        syscall=_text(folder / "syscall").strip(),
        written_bytes=written_bytes,
        faults=faults,
    )


def cpu_percent(first: ProcessLook, second: ProcessLook) -> int | None:
    """Return what the process took between two looks, in percent of one core."""
    passed_s = (second.at_ns - first.at_ns) / 1e9
    if passed_s <= 0:
        return None
    spent_s = (second.cpu_ticks - first.cpu_ticks) / os.sysconf("SC_CLK_TCK")
    return max(0, round(100 * spent_s / passed_s))


def grown(before: int, first: int, second: int) -> int | None:
    """Return how much a count has grown since an earlier look, or between two; None: not known.

    Threads that have ended since take their counts along: then the two looks alone tell.
    """
    start = before if 0 <= before <= second else first
    return second - start if 0 <= start <= second else None


def owner(pid: int, proc: Path = Path("/proc")) -> int:
    """Return whose process it is: its effective user. Raises GoneError."""
    for line in _text(proc / str(pid) / "status").splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[2])
    raise GoneError(f"process {pid} is gone")


def why_unreadable(pid: int, proc: Path = Path("/proc")) -> str:
    """Return which setting keeps this process from reading more of another one."""
    scope = _text(proc / "sys/kernel/yama/ptrace_scope").strip()
    if _is_undumpable(pid, proc):
        return "the process is not dumpable (prctl(PR_SET_DUMPABLE), or a setuid program)"
    if scope in ("2", "3"):
        return f"kernel.yama.ptrace_scope is {scope}; 1 lets a launcher read its ranks"
    if scope == "1":
        return (
            "kernel.yama.ptrace_scope is 1, and the rank has not allowed this reader: only its"
            " launcher may look"
        )
    status = _text(proc / "self/status").splitlines()
    if any(line.split() == ["Seccomp:", "2"] for line in status):
        return "a seccomp filter here forbids it (a container may be given SYS_PTRACE)"
    return "the kernel forbids it (capabilities or the user namespace of the process are others)"


def _is_undumpable(pid: int, proc: Path) -> bool:
    """Return whether the kernel has given the process's files to root, as it does then."""
    try:
        return (proc / str(pid)).stat().st_uid != owner(pid, proc)
    except (OSError, GoneError):
        return False


def _fields(path: Path) -> list[str]:
    return _split(path.read_text(errors="replace"))


def _split(stat: str) -> list[str]:
    # A command's name may hold blanks and brackets.
    return stat.rpartition(")")[2].split()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _work_of(folder: Path) -> tuple[int, int]:
    """Return the bytes that a process's threads have written, and their page faults; -1: hidden."""
    written, faults = [], []
    for thread in (folder / "task").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):  # one that has ended meanwhile
            stat = (thread / "stat").read_text(errors="replace")
            if f"({SERVER_THREADS}" not in stat:
                fields = _split(stat)
                faults.append(int(fields[7]) + int(fields[9]))
                written.append(_written(_text(thread / "io")))
    return -1 if -1 in written else sum(written), sum(faults)


def _written(io: str) -> int:
    told = [line.split() for line in io.splitlines() if line.startswith("wchar:")]
    return int(told[0][1]) if told else -1


def _switches(status: str) -> int:
    told = [line.split() for line in status.splitlines() if "ctxt_switches:" in line]
    return sum(int(words[1]) for words in told) if told else -1
