"""Machine of the field: a container with its own systemd, disk, control groups and memory."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fakes.waits import wait_until
from field.machines.image import overlay
from field.machines.site import Place
from real.booted_box import first_process

_GROUPS = Path("/sys/fs/cgroup")
# systemd makes groups in the first two; the others limit and freeze a machine as a whole.
HIERARCHIES = ("systemd", "unified", "memory", "freezer")
_BOOT_S = 90.0
_END_S = 20.0
_COMMAND_S = 60.0


@dataclass(slots=True)
class Machine:
    """What is booted at a place, and killed, frozen and booted again there."""

    place: Place
    root: Path
    console: Path
    namespace: Path
    filer: Path
    results: Path
    dataset: Path
    group: str
    process: subprocess.Popen[bytes] | None = None
    leader: int = 0
    boots: int = 0
    # Two may not boot or end it at once: a fault and the end of the field.
    turn: threading.RLock = field(default_factory=threading.RLock)

    @property
    def name(self) -> str:
        """Return its name."""
        return self.place.name

    @property
    def is_up(self) -> bool:
        """Return whether it runs."""
        return self.process is not None and self.process.poll() is None

    def boot(self) -> None:
        """Boot it, a second time where that takes too long.

        Raises AssertionError when its system bus is not there in time either.
        """
        with self.turn:
            try:
                self._boot(_BOOT_S)
            except AssertionError as error:
                print(f"{self.name} is booted once more: {error}", flush=True)
                self.pull_power()
                self._boot(2 * _BOOT_S)

    def _boot(self, patience_s: float) -> None:
        self.boots += 1
        for hierarchy in HIERARCHIES:
            # No control group of a machine outlives its power.
            _remove_below(self._folder(hierarchy))
        with self.console.open("ab") as output:
            self.process = subprocess.Popen(
                ["/bin/sh", "-c", f'{self._enter_groups()} exec "$@"', "sh", *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        process, self.leader = self.process, 0
        told = f"no first process of {self.name}"
        self.leader = wait_until(lambda: self._first_process(process), 30.0, told)
        bus = Path(f"/proc/{self.leader}/root/run/dbus/system_bus_socket")
        wait_until(bus.exists, patience_s, f"no system bus in {self.name}")

    def pull_power(self) -> None:
        """End it as a machine ends whose power is gone; its disk stays."""
        with self.turn:
            if self.process is not None:
                self.thaw()
                # Number 0 would be this process's own group.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.leader or self.process.pid, signal.SIGKILL)
                self._reap()

    def shut_down(self) -> None:
        """End it as an operator does."""
        with self.turn:
            if self.process is not None:
                self.thaw()
                self.process.send_signal(signal.SIGTERM)
                self._reap()

    def freeze(self) -> None:
        """Stop every process of it; its kernel goes on, as the machine's under all of them does."""
        (self._folder("freezer") / "freezer.state").write_text("FROZEN")

    def thaw(self) -> None:
        """Let its processes go on."""
        (self._folder("freezer") / "freezer.state").write_text("THAWED")

    def run(self, *command: str, check: bool = True, timeout_s: float = _COMMAND_S) -> str:
        """Run a program inside and return what it printed."""
        entered = ["nsenter", "-t", str(self.leader), "-a", "--", *command]
        done = subprocess.run(
            entered, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit, as systemctl tells it."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit)

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of root's."""
        target = self.root / path.strip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def journal(self) -> Iterator[dict[str, str]]:
        """Yield what its units wrote, over all its boots."""
        command = ["journalctl", "--directory", str(self.root / "var/log/journal"), "--output=json"]
        reading = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert reading.stdout is not None
        for line in reading.stdout:
            yield json.loads(line)
        reading.wait()

    def pids(self) -> list[int]:
        """Return all its processes, by the numbers that they have outside."""
        text = (self._folder("freezer") / "cgroup.procs").read_text()
        return [int(word) for word in text.split()]

    def groups(self, pattern: str) -> list[Path]:
        """Return the control groups of its services that a pattern names."""
        tops = [self._folder(one) for one in ("systemd", "unified")]
        return [found for top in tops for found in top.glob(f"**/system.slice/{pattern}")]

    def _first_process(self, process: "subprocess.Popen[bytes]") -> int | None:
        said = self.console.read_text(errors="replace")[-400:]
        assert process.poll() is None, f"{self.name} ended with {process.returncode}: {said}"
        return first_process(process.pid)

    def _reap(self) -> None:
        assert self.process is not None
        try:
            self.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _END_S
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.process = None

    @property
    def _booted_name(self) -> str:
        return f"{self.name}-{self.group}"

    def _folder(self, hierarchy: str) -> Path:
        return _GROUPS / hierarchy / self.group / self.name

    def _enter_groups(self) -> str:
        there = [one for one in HIERARCHIES if self._folder(one).is_dir()]
        return " ".join(f"echo $$ >{self._folder(one)}/cgroup.procs;" for one in there)

    def _command(self) -> list[str]:
        return [
            *("systemd-nspawn", "--quiet", "--boot", f"--directory={self.root}"),
            *(f"--machine={self._booted_name}", f"--hostname={self.name}"),
            *("--register=no", "--keep-unit", f"--network-namespace-path={self.namespace}"),
            *("--console=pipe", "--notify-ready=no", "--capability=CAP_SYSLOG"),
            *(
                f"--bind={self.filer}:/mnt/filer",
                f"--bind={self.results}:/results",
                f"--bind={self.dataset}:/dataset",
                "--bind=/dev/kmsg",
                "--bind=/dev/fuse",
            ),
            # nspawn forbids them like the clock's setting; on a machine nobody does.
            "--system-call-filter=adjtimex clock_adjtime",
            "systemd.unit=multi-user.target",
        ]


@contextlib.contextmanager
def machine(place: Place, layers: Sequence[Path], work: Path, fixed: "Fixed") -> Iterator[Machine]:
    """Yield a machine that is installed and not booted; end it on the way out."""
    own = work / place.name
    with overlay([*layers, Path("/")], own / "upper", own) as root:
        (root / "etc/machine-id").unlink(missing_ok=True)
        (root / "etc/hostname").write_text(f"{place.name}\n")
        made = Machine(
            place,
            root,
            own / "console.log",
            fixed.namespace,
            fixed.filer,
            fixed.results,
            fixed.dataset,
            fixed.group,
        )
        for hierarchy in HIERARCHIES:
            _make_group(hierarchy, fixed.group, place.name, fixed.memory_bytes)
        try:
            yield made
        finally:
            made.pull_power()


@dataclass(frozen=True, slots=True)
class Fixed:
    """What a machine is given from outside: network, storage, control group and memory."""

    namespace: Path
    filer: Path
    results: Path
    dataset: Path
    group: str
    memory_bytes: int


def _make_group(hierarchy: str, group: str, name: str, memory_bytes: int) -> None:
    folder = _GROUPS / hierarchy / group / name
    if not (_GROUPS / hierarchy / "cgroup.procs").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    if hierarchy == "memory":
        (folder / "memory.limit_in_bytes").write_text(str(memory_bytes))


def thaw_groups(group: str) -> None:
    """Let frozen machines of a field go on: the kernel ends no process of them before."""
    for state in (_GROUPS / "freezer" / group).glob("*/freezer.state"):
        with contextlib.suppress(OSError):
            state.write_text("THAWED")


def remove_groups(group: str) -> None:
    """Remove the control groups of a field whose machines have ended."""
    for hierarchy in HIERARCHIES:
        top = _GROUPS / hierarchy / group
        _remove_below(top)
        with contextlib.suppress(OSError):
            top.rmdir()


def _remove_below(top: Path) -> None:
    below = [path for path in top.rglob("*") if path.is_dir()] if top.exists() else []
    for folder in sorted(below, reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
