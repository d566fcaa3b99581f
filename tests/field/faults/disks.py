"""Blows to storage, and by another user of a node: full, hanging, unmounted; a flood of a port."""

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from field.faults.world import Done, NothingToHitError, World
from real import hung_disk

_FLOOD = """
import socket, time
end = time.monotonic() + 8
while time.monotonic() < end:
    one = socket.socket(); one.setblocking(False)
    try: one.connect(("{address}", 7436))
    except OSError: pass
    one.close()
    time.sleep(0.001)
"""
# After the module that has the file system.
_HANG = """
import signal
signal.signal(signal.SIGTERM, lambda *_: exit())
with hung(Path("/shared")):
    signal.pause()
"""


def _fill_storage(world: World) -> Done:
    ballast = world.fleet.filer / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", 0) as file:
        while True:
            file.write(bytes(1 << 20))
    return Done(world.fleet.site.names, undo=ballast.unlink)


def _tear_latest(world: World) -> Done:
    """Cut off what names the newest stored step of a job, as a crash of its file server may."""
    stored = [job for job in world.jobs() if "--persist" in job.spec.shape.options]
    found = [
        (job, path)
        for job in stored
        for path in (world.fleet.filer / job.spec.user / "steps").glob(f"{job.spec.name}/latest")
    ]
    if not found:
        raise NothingToHitError("no job has stored a step")
    job, path = world.chance.choice(found)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return Done(job.spec.machines, job.spec.name, f"{path.parent.name}/latest")


def _hang_storage(world: World) -> Done:
    """Cover a machine's mount with a file system that never answers."""
    machine = world.machine()
    program = Path(hung_disk.__file__).read_text() + _HANG
    enter = ["nsenter", "-t", str(machine.leader), "-m", "--", "/usr/bin/python3", "-c", program]
    server = subprocess.Popen(enter)

    def undo() -> None:
        server.terminate()
        server.wait(timeout=20)

    return Done((machine.name,), undo=undo)


def _hang_dataset(world: World) -> Done:
    """Let the server of the samples answer nobody, as one does that fails over or has died."""
    dataset = world.fleet.dataset
    dataset.hang()
    return Done(detail="nobody gets samples", undo=dataset.go_on)


def _unmount_storage(world: World) -> Done:
    machine = world.machine()
    machine.run("umount", "--lazy", "/shared")

    def undo() -> None:
        machine.run("systemctl", "restart", "shared.mount")

    return Done((machine.name,), undo=undo)


def _flood_bulk_port(world: World) -> Done:
    """Let another user of a node connect to its agent's port for copies, again and again."""
    machine = world.machine()
    program = _FLOOD.format(address=machine.place.address)
    become = ("setpriv", "--reuid=bob", "--regid=bob", "--clear-groups", "--")
    enter = ["nsenter", "-t", str(machine.leader), "-a", "--", *become]
    flood = subprocess.Popen([*enter, "/usr/bin/python3", "-c", program])
    return Done((machine.name,), undo=lambda: flood.wait(timeout=30))


BLOWS: Mapping[str, Callable[[World], Done]] = MappingProxyType(
    {
        "fill_storage": _fill_storage,
        "tear_latest": _tear_latest,
        "hang_storage": _hang_storage,
        "hang_dataset": _hang_dataset,
        "unmount_storage": _unmount_storage,
        "flood_bulk_port": _flood_bulk_port,
    }
)
