"""Supervisor of a launcher's own controller and agent: starts them, and cleans up after them.

Run by path with ``python -I -S``, in a session of its own; standard library only. It ends when its
standard input does, by whatever closed that: so there is one way to clean up, whether the launcher
ended, was interrupted, or was killed. On its standard output it says ``ready`` and its folder, or
``failed`` and why; before that ``waiting`` and for what, where the start takes long.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CONTROLLER_SOCKET = "controller/controller.sock"
AGENT_SOCKET = "run/agent.sock"
# sun_path of unix(7) has 107 bytes for a name; this leaves room for the sockets' own.
_PARENT_BYTES_MAX = 60
# The interpreters' imports are nearly all of it: 1 s on an idle machine. A slow or loaded machine
# takes minutes, and is waited for as long as they work, or wait for a CPU.
_STUCK_S = 60.0
_START_MAX_S = 1800.0
_LOOK_S = 0.05
# So often it is looked whether they go on. A daemon that is up and idle takes a fiftieth of a CPU.
_WINDOW_S = 10.0
_BUSY_SHARE = 0.2
# People are told after the first window, and then once in so long.
_TOLD_EVERY_S = 60.0
# The controller's answer to an agent takes milliseconds; a launcher that comes before it is told
# that it has to wait for the controller.
_WELCOME_S = 0.1
_RESTART_DELAY_S = 1.0
# An agent that stops tells its controller so, and ends the processes that read devices and storage.
_STOP_S = 5.0
# Less than the empty journal and the first lines of the logs take.
_NEEDED_BYTES = 1 << 20
_SHIM = str(Path(__file__).parents[1] / "processes/rank_shim.py")
# -P: a module in the folder of the user's script must not take the place of one of ours.
_PYTHON = (sys.executable, "-P", "-m")


class StartError(Exception):
    """A daemon did not start; one sentence."""


def why_silent(folder: Path, free_bytes: int) -> str:
    """Return why a service that did not start has printed nothing into its folder."""
    if free_bytes < _NEEDED_BYTES:
        return f"no space is left in {folder}; TMPDIR names another place"
    return "it said nothing"


@dataclasses.dataclass(frozen=True, slots=True)
class Sight:
    """View of a start: what is missing yet, and what the daemons have done so far."""

    missing: str
    # Time in which they ran or waited for a CPU, and how much they have printed.
    busy_s: float
    printed_bytes: int


class StartPatience:
    """How long a start is waited for: as long as something of it goes on, within bounds. Pure."""

    def __init__(self, now_s: float, sight: Sight) -> None:
        self._began_s = self._moved_s = self._seen_s = now_s
        self._told_s: float | None = None
        self._sight = sight

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to look again."""
        return now_s - self._seen_s >= _WINDOW_S

    def judge(self, now_s: float, sight: Sight) -> str:
        """Return what to tell people now; "": nothing. Raises StartError where nothing goes on."""
        if self._goes_on(now_s, sight):
            self._moved_s = now_s
        self._seen_s, self._sight = now_s, sight
        took_s = now_s - self._began_s
        if now_s - self._moved_s >= _STUCK_S or took_s >= _START_MAX_S:
            still_s = now_s - self._moved_s
            idle = f", and nothing of them has gone on for {still_s:.0f} s" if still_s else ""
            raise StartError(f"waited {took_s:.0f} s for {sight.missing}{idle}")
        if self._told_s is not None and now_s - self._told_s < _TOLD_EVERY_S:
            return ""
        self._told_s = now_s
        return f"starting takes long: for {took_s:.0f} s now it waits for {sight.missing}"

    def _goes_on(self, now_s: float, sight: Sight) -> bool:
        worked_s = sight.busy_s - self._sight.busy_s
        news = (sight.missing, sight.printed_bytes) != (
            self._sight.missing,
            self._sight.printed_bytes,
        )
        return news or worked_s >= _BUSY_SHARE * (now_s - self._seen_s)


class Daemon:
    """One of the two, with its log; it dies with the supervisor."""

    def __init__(self, name: str, folder: Path, *command: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._command = command
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
        environ.setdefault("GRPC_VERBOSITY", "ERROR")
        shim = [sys.executable, "-I", "-S", _SHIM, str(os.getpid())]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*shim, *self._command],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def restart_if_ended(self) -> None:
        """Start it again, as a service manager does."""
        if self.process.poll() is not None:
            self.process = self._start()

    def last_line(self) -> str:
        """Return the end of what it printed; of nothing, why that may be."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        disk = os.statvfs(self.log.parent)
        return said or why_silent(self.log.parent, disk.f_bavail * disk.f_frsize)

    def stop(self, deadline: float) -> None:
        """Wait for its end until the deadline, and kill it then."""
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def make_folder(parent: str) -> Path:
    """Return a new folder that only this user may enter, with a path short enough for sockets."""
    if len(os.fsencode(parent)) > _PARENT_BYTES_MAX:
        parent = "/tmp"
    return Path(tempfile.mkdtemp(prefix="everstep-", dir=parent))


def write_configuration(folder: Path) -> None:
    """Write the configurations of both: all they have is in the folder, and every port is free."""
    (folder / "controller").mkdir(mode=0o700)
    texts = {
        "controller": {
            "listen": f"unix:{folder / CONTROLLER_SOCKET}",
            "metrics": "",
            "journal": str(folder / "controller/journal.sqlite"),
            "log_style": "text",
        },
        "agent": {
            "controller": f"unix:{folder / CONTROLLER_SOCKET}",
            "host": "127.0.0.1",
            "data_folder": str(folder / "agent"),
            "metrics_address": "",
            "liveness_address": "127.0.0.1:0",
            "health_check_socket": "",
            "log_style": "text",
        },
    }
    tables = {"controller": "", "agent": f"[jobs]\nruntime_folder = {_toml(folder / 'run')}\n"}
    tables["agent"] += "bulk_port = 0\n"
    for name, values in texts.items():
        lines = [f"{key} = {_toml(value)}\n" for key, value in values.items()]
        (folder / f"{name}.toml").write_text("".join(lines) + tables[name], encoding="utf-8")


def _toml(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def start_daemons(folder: Path) -> list[Daemon]:
    """Start both. The holder keeps the snapshots' memory while the agent is restarted."""
    agent = (*_PYTHON, "everstep_agent.main")
    controller = (*_PYTHON, "everstep_controller.main")
    return [
        Daemon("agent", folder, *agent, "hold", "--", *agent, "--config", f"{folder}/agent.toml"),
        Daemon("controller", folder, *controller, "--config", f"{folder}/controller.toml"),
    ]


def answers(path: Path) -> bool:
    """Return whether somebody listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            return client.connect_ex(str(path)) == 0
        except OSError:  # a path that is too long
            return False


def is_connected(path: Path, sockets: Path = Path("/proc/net/unix")) -> bool:
    """Return whether somebody has connected to a Unix socket; it is not touched for that."""
    # proc_net(5): Num RefCount Protocol Flags Type St Inode Path. State 3 is a connection; its end
    # at the server has the server's path. State 1 is a socket that listens.
    return "03" in _states(path, sockets)


def _states(path: Path, sockets: Path) -> set[str]:
    lines = sockets.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (line.split(maxsplit=7) for line in lines)
    return {fields[5] for fields in found if fields[7:] == [str(path)]}


def missing(folder: Path, sockets: Path = Path("/proc/net/unix")) -> str:
    """Return what the start waits for, in words; "": nothing is missing."""
    if not _states(folder / CONTROLLER_SOCKET, sockets):
        return "its controller to listen"
    if not answers(folder / AGENT_SOCKET):
        return "its agent to listen"
    if not is_connected(folder / CONTROLLER_SOCKET, sockets):
        return "its agent to connect to the controller"
    return ""


def busy_s(groups: set[int], proc: Path = Path("/proc")) -> float:
    """Return for how long processes of these groups have run or have waited for a CPU."""
    spent_ns = 0
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # one that ends meanwhile
            # proc(5): behind the name in parentheses come the state, the parent and the group.
            if int(stat.read_text(errors="replace").rpartition(")")[2].split()[2]) in groups:
                # sched-stats.rst: time on a CPU, and time of waiting for one, in nanoseconds.
                spent_ns += sum(map(int, (stat.parent / "schedstat").read_text().split()[:2]))
    return spent_ns / 1e9


def await_ready(folder: Path, daemons: list[Daemon]) -> bool:
    """Return True once the agent listens and has connected, False when nobody wants them.

    Raises StartError.
    """

    def sight(told: str) -> Sight:
        sizes = [daemon.log.stat().st_size for daemon in daemons]
        return Sight(told, busy_s({daemon.process.pid for daemon in daemons}), sum(sizes))

    patience = StartPatience(time.monotonic(), sight(missing(folder)))
    while told := missing(folder):
        for daemon in daemons:
            if daemon.process.poll() is not None:
                raise StartError(f"its {daemon.name} did not start: {daemon.last_line()}")
        if patience.is_due(time.monotonic()):
            _judge(patience, sight(told), daemons)
        if dismissed(_LOOK_S):
            return False
    return not dismissed(_WELCOME_S)


def _judge(patience: StartPatience, sight: Sight, daemons: list[Daemon]) -> None:
    """Go on waiting, and tell the launcher of it now and then. Raises StartError."""
    try:
        words = patience.judge(time.monotonic(), sight)
    except StartError as error:
        said = "; ".join(f"{daemon.name}: {daemon.last_line()}" for daemon in daemons)
        raise StartError(f"{error} ({said})") from error
    if words:
        logs = " ".join(str(daemon.log) for daemon in daemons)
        print("waiting", f"{words}; more is in its logs: tail {logs}", flush=True)


def dismissed(wait_s: float | None) -> bool:
    """Return whether the launcher is gone or has closed the pipe, after waiting so long."""
    return bool(select.select([sys.stdin], [], [], wait_s)[0])


def serve(daemons: list[Daemon]) -> None:
    """Keep both running until the launcher needs them no more."""
    while True:
        pidfds = [os.pidfd_open(daemon.process.pid) for daemon in daemons]
        ready = select.select([sys.stdin, *pidfds], [], [])[0]
        for pidfd in pidfds:
            os.close(pidfd)
        if sys.stdin in ready or dismissed(_RESTART_DELAY_S):
            return
        for daemon in daemons:
            daemon.restart_if_ended()


def run(folder: Path) -> None:
    """Run both until the launcher's end of the pipe is closed."""
    write_configuration(folder)
    daemons = start_daemons(folder)
    try:
        if await_ready(folder, daemons):
            print("ready", folder, flush=True)
            serve(daemons)
    finally:
        for daemon in daemons:
            with contextlib.suppress(ProcessLookupError):
                daemon.process.terminate()
        deadline = time.monotonic() + _STOP_S
        for daemon in daemons:
            daemon.stop(deadline)


def keep_logs(folder: Path) -> list[Path]:
    """Remove all but the logs that say something, for a start that failed; return these."""
    kept = [log for log in sorted(folder.glob("*.log")) if log.stat().st_size]
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path not in kept:
            path.unlink(missing_ok=True)
    return kept


def main() -> int:
    """Run both, and remove every trace of them."""
    # What ends the launcher, and is sent to all of its processes, must not end this one first.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    folder = make_folder(tempfile.gettempdir())
    held = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    kept: list[Path] = []
    try:
        # systemd-tmpfiles, which removes what is old below /tmp, passes over what is locked.
        fcntl.flock(held, fcntl.LOCK_EX)
        run(folder)
    except (StartError, OSError) as error:
        kept = keep_logs(folder)
        more = f"; all that they said: less {' '.join(map(str, kept))}" if kept else ""
        with contextlib.suppress(OSError):  # nobody reads it any more
            print("failed", f"{error}{more}", flush=True)
        return 1
    finally:
        if not kept:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
