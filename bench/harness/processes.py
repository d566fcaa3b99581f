"""Processes under measurement: started in their own group, read through /proc, ended surely."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent
_PROC = Path("/proc")
_ERRORS_CHARS = 2000
# The last line of a traceback, before what an error has more lines of.
_RAISED = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception|Timeout): ")
# A start takes that long where dozens of others want the processors; one that has ended is told
# at once.
START_PATIENCE_S = 300.0


def module_command(name: str, *words: object) -> list[str | Path]:
    """Return the command of a module of the benchmarks; it needs the paths of `with_paths`."""
    return [sys.executable, "-P", "-m", name, *map(str, words)]


def with_paths(*more: Path) -> dict[str, str]:
    """Return this process's variables, by which a program finds the benchmarks and the tests."""
    paths = [BENCH, ROOT / "tests", *more, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(path) for path in paths if str(path))}


@contextlib.contextmanager
def running(
    command: Sequence[str | Path],
    environment: Mapping[str, str] | None = None,
    *,
    may_end: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """Run a program with text pipes; end its process group afterwards.

    One that ``may_end`` by itself is no fault, as a launcher that ends with another one.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env=with_paths() if environment is None else dict(environment),
        )
        try:
            yield process
            if process.poll() is not None and not may_end:
                words = " ".join(map(str, command))
                raise SystemExit(f"ended early, with {process.returncode}: {words}")
        except SystemExit as end:
            errors.seek(0)
            raise SystemExit(f"{end}\n{why(errors.read())}".rstrip()) from end
        finally:
            _end(process)


def why(errors: str) -> str:
    """Return the end of what a program wrote to standard error, and before it what it raised."""
    end = errors[-_ERRORS_CHARS:]
    raised = [one for one in errors.splitlines() if _RAISED.match(one)]
    return end if not raised or raised[-1] in end else f"{raised[-1]}\n...\n{end}"


def _end(process: subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            break
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def end_descendants(pid: int, patience_s: float = 5.0) -> None:
    """End all processes below one; this one's own children are reaped."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, asked = time.monotonic() + patience_s, set[int]()
        while left := tree(pid)[1:]:
            for one in left:
                if one not in asked:
                    asked.add(one)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, number)
            if time.monotonic() > deadline:
                break
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.02)


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in (_PROC / str(parent) / "task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process tree in seconds (nanosecond resolution, live threads)."""
    return sum(_cpu_ns(member) for member in tree(pid)) / 1e9


def process_cpu_s(pid: int) -> float:
    """Return the CPU time of one process in seconds, that of threads that have ended included."""
    # Its clock's number, as clock_getcpuclockid(3) makes it on Linux.
    return time.clock_gettime(~pid << 3 | 2)


def main_thread_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's first thread, which has its event loop, in seconds."""
    # Of schedstat: nanoseconds that it has run.
    return int((_PROC / f"{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def reaped_children_cpu_s(pid: int) -> float:
    """Return the CPU time of a process's children that have ended, and of theirs, in seconds."""
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def children_cpu_s(pid: int) -> float:
    """Return the same without the process itself."""
    return sum(_cpu_ns(member) for member in tree(pid)[1:]) / 1e9


def _cpu_ns(pid: int) -> int:
    total_ns = 0
    for task in (_PROC / str(pid) / "task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            total_ns += int(task.read_text().split()[0])
    return total_ns


def memory_bytes(pid: int) -> int:
    """Return the proportional memory of a process tree: shared pages count once."""
    return sum(_rollup(member).get("Pss", 0) for member in tree(pid))


def memory_alone_bytes(pid: int) -> int:
    """Return about what a process tree would take if no other process shared pages with it."""
    members = [_rollup(member) for member in tree(pid)]
    own = sum(m.get("Private_Clean", 0) + m.get("Private_Dirty", 0) for m in members)
    shared = (m.get("Shared_Clean", 0) + m.get("Shared_Dirty", 0) for m in members)
    # Its members share the interpreter and the C library with each other: the largest part counts.
    return own + max(shared, default=0)


def _rollup(pid: int) -> dict[str, int]:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    return {
        name: int(size.split()[0]) * 1024 for name, _, size in (s.partition(":") for s in lines)
    }


def free_port() -> int:
    """Return a TCP port of loopback that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for_port(
    port: int, process: subprocess.Popen[str], patience_s: float = START_PATIENCE_S
) -> None:
    """Return when something listens on the port of loopback. Raises SystemExit after a while."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    words = process.args if isinstance(process.args, str) else " ".join(map(str, process.args))  # type: ignore[arg-type]
    raise SystemExit(f"nothing listens on port {port} after {patience_s:g} s: {words}")
