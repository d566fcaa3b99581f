"""A container that boots this machine's own systemd, on its root; what it changes is forgotten."""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fakes.waits import wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDS = ("systemd-nspawn", "dbus-daemon", "nsenter", "mount")
# Hierarchies in which systemd makes groups; those of another container must not be the same.
_HIERARCHIES = ("systemd", "unified")
_TARGET = """\
[Unit]
Requires=basic.target dbus.service
After=basic.target dbus.service
AllowIsolate=yes
"""
# What waits for a network that is not there, or asks a person.
_MASKED = ("systemd-networkd-wait-online", "systemd-firstboot", "systemd-resolved")
# A container has about ten: systemd, its journal, its bus, and an agent in it.
_INOTIFY_NEEDED = 16
# systemd hides the folders of users from daemons, and an interpreter may live in one.
_PROGRAM = """\
#!/bin/sh
# An interpreter with a shared library finds it where it was built, which is hidden here.
export LD_LIBRARY_PATH=/opt/python/lib
PYTHONPATH={path} exec /opt/python/bin/{python} -m {module}.main "$@"
"""


def can_boot() -> bool:
    """Return whether a container can be booted here."""
    return os.geteuid() == 0 and all(shutil.which(program) for program in NEEDS)


@dataclass(frozen=True, slots=True)
class Box:
    """A booted container: its first process, and where its files are."""

    leader: int
    root: Path

    @property
    def bus(self) -> Path:
        """Return its system bus, as this process can reach it."""
        return Path(f"/proc/{self.leader}/root/run/dbus/system_bus_socket")

    def run(self, *command: str, check: bool = True) -> str:
        """Run a program inside and return what it printed."""
        entered = ["nsenter", "-t", str(self.leader), "-a", "--", *command]
        done = subprocess.run(entered, capture_output=True, text=True, timeout=60, check=False)
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """Return one property of a unit, as systemctl tells it."""
        return self.run("systemctl", "show", "--value", f"--property={name}", unit)

    def install(self, name: str, text: str) -> None:
        """Write a unit's file."""
        (self.root / "etc/systemd/system" / name).write_text(text)


@contextlib.contextmanager
def booted(folder: Path, name: str, namespace: Path | None = None) -> Iterator[Box]:
    """Boot a container with its own network and control groups; end it on the way out.

    ``namespace``: the file of a network namespace for it; None: it has a loopback alone. One whose
    system bus is missing after a minute is ended, shown, and booted once more.
    """
    # Containers of one name, on behalf of two checkouts, have one folder in /run, and one group.
    name = f"{name}-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        wait_until(_inotify_left, 60.0, "too few inotify instances (fs.inotify.max_user_instances)")
        try:
            box = stack.enter_context(_booted(folder / "first", name, 60.0, namespace))
        except AssertionError as error:
            print(f"{name} is booted once more: {error}")
            box = stack.enter_context(_booted(folder / "second", name, 120.0, namespace))
        yield box


def _inotify_left() -> bool | None:
    """Return whether enough inotify instances can be had; without one, dbus.service never starts.

    A machine has 128 of them for all processes of a user, containers of root's among these.
    """
    libc = ctypes.CDLL(None)
    made = [libc.inotify_init1(os.O_CLOEXEC) for _ in range(_INOTIFY_NEEDED)]
    had = [number for number in made if number >= 0]
    for number in had:
        os.close(number)
    return len(had) == _INOTIFY_NEEDED


@contextlib.contextmanager
def _booted(folder: Path, name: str, patience_s: float, namespace: Path | None) -> Iterator[Box]:
    folder.mkdir()
    with _overlay(folder) as root, _groups(name) as groups:
        _prepare(root)
        log = folder / "console.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f'{groups} exec "$@"', "sh", *_command(root, name, namespace)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            box = Box(wait_until(lambda: first_process(process.pid)), root)
            _await_bus(box, patience_s)
            yield box
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            # nspawn leaves its own folder where /run is on a disk.
            shutil.rmtree(Path("/run/systemd/nspawn/propagate") / name, ignore_errors=True)
            print(log.read_text(errors="replace")[-2000:])


def _command(root: Path, name: str, namespace: Path | None) -> list[str]:
    network = f"--network-namespace-path={namespace}" if namespace else "--private-network"
    return [
        *("systemd-nspawn", "--quiet", "--boot", f"--directory={root}", f"--machine={name}"),
        *("--register=no", "--keep-unit", network, "--console=pipe"),
        *("--notify-ready=no", "--bind=/dev/kmsg", "--capability=CAP_SYSLOG"),
        *(f"--bind-ro={REPOSITORY}:/opt/source", f"--bind-ro={sys.base_prefix}:/opt/python"),
        # nspawn forbids them like the clock's setting; on a machine nobody does.
        "--system-call-filter=adjtimex clock_adjtime",
        "systemd.unit=everstep-test.target",
    ]


def _await_bus(box: Box, patience_s: float) -> None:
    """Return when the bus is there. Raises AssertionError, with what systemd has said by then."""
    try:
        wait_until(box.bus.exists, patience_s)
    except AssertionError:
        for words in (("systemctl", "list-jobs"), ("journalctl", "--no-pager", "--lines=100")):
            with contextlib.suppress(subprocess.TimeoutExpired):
                print(box.run(*words, check=False))
        raise


def program(module: str) -> str:
    """Return a program that runs a package of this repository inside a container."""
    found = [Path(entry).resolve() for entry in sys.path if entry]
    inside = [entry.relative_to(REPOSITORY) for entry in found if entry.is_relative_to(REPOSITORY)]
    path = ":".join(f"/opt/source/{entry}" for entry in inside)
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return _PROGRAM.format(path=path, python=python, module=module)


@contextlib.contextmanager
def _overlay(folder: Path) -> Iterator[Path]:
    """Mount this machine's root with a layer of memory upon it."""
    memory = folder / "layer"
    memory.mkdir()
    _mount("-t", "tmpfs", "tmpfs", memory)
    try:
        for name in ("upper", "work", "root"):
            (memory / name).mkdir()
        layers = f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work"
        _mount("-t", "overlay", "overlay", "-o", layers, memory / "root")
        try:
            yield memory / "root"
        finally:
            subprocess.run(["umount", "--lazy", memory / "root"], check=True)
    finally:
        subprocess.run(["umount", "--lazy", memory], check=True)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


@contextlib.contextmanager
def _groups(name: str) -> Iterator[str]:
    """Make control groups; yield the shell's words that enter them."""
    folders = [
        Path("/sys/fs/cgroup") / hierarchy / name
        for hierarchy in _HIERARCHIES
        if (Path("/sys/fs/cgroup") / hierarchy / "cgroup.procs").exists()
    ]
    for folder in folders:
        for left in folder.parent.glob("everstep-*"):
            # Of tests that were killed; a generation of a job has a name in more parts.
            named = re.fullmatch(r"everstep-[a-z]+-(\d+)", left.name)
            if named and not Path("/proc", named[1]).exists():
                _remove_groups(left)
        folder.mkdir(exist_ok=True)
    try:
        yield " ".join(f"echo $$ >{folder}/cgroup.procs;" for folder in folders)
    finally:
        for folder in folders:
            _remove_groups(folder)


def _remove_groups(folder: Path) -> None:
    for group in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
        with contextlib.suppress(OSError):
            group.rmdir()
    with contextlib.suppress(OSError):
        folder.rmdir()


def _prepare(root: Path) -> None:
    units = root / "etc/systemd/system"
    (units / "everstep-test.target").write_text(_TARGET)
    for name in _MASKED:
        _link(units / f"{name}.service", "/dev/null")
    (root / "etc/machine-id").unlink(missing_ok=True)
    # Of an agent that once ran on this machine itself: two boxes would be two agents of one outbox.
    for left in (root / "var/lib").glob("everstep-*"):
        shutil.rmtree(left)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def first_process(pid: int) -> int | None:
    """Return the first process of the container that nspawn runs; before it, it has a helper."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{child}/status").read_text()
            numbers = status.partition("NSpid:")[2].partition("\n")[0].split()
            if len(numbers) > 1 and numbers[-1] == "1":
                return int(child)
    return None


def enable(box: Box, units: Sequence[str]) -> None:
    """Have systemd read its files again and start these units at every boot."""
    box.run("systemctl", "daemon-reload")
    if units:
        box.run("systemctl", "--quiet", "enable", *units)
