"""Blows to the daemons: an agent or the controller is killed, away, frozen, moved, set back."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from field.faults.world import Done, NothingToHitError, World
from field.machines.fleet import enable
from field.machines.image import REPOSITORY
from field.machines.machine import Machine

AGENT, CONTROLLER = "everstep-agent.service", "everstep-controller.service"
_CRASHES = "[Service]\nExecStartPre=/bin/false\n"
_MISTAKE = "no_such_key = 1\n"
_JOURNAL = "var/lib/everstep-controller"
_PACKED = "root/everstep-controller.tar"
_BACKUP = "var/backups/everstep/journal.sqlite"
_MOVING = REPOSITORY / "docs/moving-the-controller.md"
_OPERATIONS = REPOSITORY / "docs/operations.md"
_BACKING_UP = "Backing up and moving the controller"
_ALL_LINES = re.MULTILINE | re.DOTALL
_CLOCK = "[Service]\nEnvironment=LD_PRELOAD=/opt/skew.so SKEW_FILE=/run/skew\n"
_SKEWS_S = (-7200, -30, 30, 7200)
# Hours back, no certificate of the field is valid yet.
_CONTROLLER_SKEWS_S = (-30, 30, 7200)


def _agents(world: World) -> Machine:
    return world.machine()


def _controllers(world: World) -> Machine:
    if world.fleet.control in world.held or not world.fleet.controller.is_up:
        raise NothingToHitError("the controller is hit already")
    return world.fleet.controller


def _place(unit: str, world: World) -> Machine:
    return _agents(world) if unit == AGENT else _controllers(world)


def _kill(unit: str, world: World) -> Done:
    machine = _place(unit, world)
    machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", unit)
    return Done((machine.name,))


def _stop(unit: str, world: World) -> Done:
    machine = _place(unit, world)
    machine.run("systemctl", "stop", unit)
    return Done(
        (machine.name,), undo=partial(machine.run, "systemctl", "start", "--no-block", unit)
    )


def _freeze(unit: str, world: World) -> Done:
    machine = _place(unit, world)
    signal_main = ("systemctl", "kill", "--kill-who=main")
    machine.run(*signal_main, "--signal=STOP", unit)
    # One that systemd has replaced meanwhile minds it as little, and there may be none yet.
    go_on = partial(machine.run, *signal_main, "--signal=CONT", unit, check=False)
    return Done((machine.name,), undo=go_on)


def _crash(unit: str, world: World) -> Done:
    machine = _place(unit, world)
    drop_in = f"/etc/systemd/system/{unit}.d/crash.conf"
    machine.write(drop_in, _CRASHES)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", unit)

    def undo() -> None:
        (machine.root / drop_in.strip("/")).unlink()
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "start", "--no-block", unit)

    return Done((machine.name,), undo=undo)


def _misconfigure(world: World) -> Done:
    machine = _agents(world)
    path = machine.root / "etc/everstep/agent.toml"
    right = path.read_text()
    path.write_text(_MISTAKE + right)
    machine.run("systemctl", "restart", "--no-block", AGENT)

    def undo() -> None:
        path.write_text(right)
        machine.run("systemctl", "restart", "--no-block", AGENT)

    return Done((machine.name,), undo=undo)


def _leave_job_without_agent(world: World) -> Done:
    """Stop the agent below a job that saves its steps, for so long that people are told."""
    job, machine, _ = world.ranks(lambda shape: shape.longer > 1)
    machine.run("systemctl", "stop", AGENT)
    start = partial(machine.run, "systemctl", "start", "--no-block", AGENT)
    return Done((machine.name,), job.spec.name, undo=start)


def _step_clock(unit: str, world: World) -> Done:
    """Start a daemon with a clock of its own, and step that: machines share the kernel's."""
    machine = _place(unit, world)
    by_s = world.chance.choice(_SKEWS_S if unit == AGENT else _CONTROLLER_SKEWS_S)
    drop_in = f"/etc/systemd/system/{unit}.d/clock.conf"
    machine.write(drop_in, _CLOCK)
    machine.write("/run/skew", "0")
    # /run is a mount of the machine's own: it is written from inside.
    machine.run("sh", "-c", "echo 0 >/run/skew; chmod 644 /run/skew; systemctl daemon-reload")
    machine.run("systemctl", "restart", unit)
    machine.run("sh", "-c", f"echo {by_s} >/run/skew")

    def undo() -> None:
        machine.run("sh", "-c", "echo 0 >/run/skew")
        (machine.root / drop_in.strip("/")).unlink()
        machine.run("systemctl", "daemon-reload")

    return Done((machine.name,), detail=f"by {by_s} s", undo=undo)


def page_commands(page: Path, heading: str) -> list[str]:
    """Return what a page has people type below a heading, block by block."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), _ALL_LINES)
    return re.findall(r"^```sh\n(.*?)^```", found[1] if found else "", _ALL_LINES)


def _move_controller(world: World) -> Done:
    """Take the controller to another machine by the commands of the page."""
    fleet, old = world.fleet, _controllers(world)
    others = [fleet.site.control, fleet.site.other_control]
    new = fleet.machine(next(name for name in others if name != old.name))
    if not new.is_up or new.name in world.held:
        raise NothingToHitError(f"{new.name} is hit already")
    with _started_where_it_fails(old):
        (packs,) = page_commands(_MOVING, "1. On the old machine")
        unpacks, _ = page_commands(_MOVING, "3. On the new machine")
        old.run("sh", "-ec", packs)
        shutil.copy(old.root / _PACKED, new.root / _PACKED)
        # What lies there of an earlier move: the page has people look, and move it away.
        shutil.rmtree(new.root / _JOURNAL, ignore_errors=True)
        (new.root / _JOURNAL).mkdir(parents=True)
        new.run("sh", "-ec", unpacks)
        new.run("rm", "-r", "/root/everstep-moved", f"/{_PACKED}")
        old.run("rm", f"/{_PACKED}")
    text = (new.root / "etc/everstep/controller.toml").read_text()
    moved = text.replace(f'"{old.place.address}:', f'"{new.place.address}:')
    (new.root / "etc/everstep/controller.toml").write_text(moved)
    fleet.control = new.name
    fleet.name_controller()
    enable(new, "everstep-controller")
    new.run("systemctl", "daemon-reload")
    new.run("systemctl", "start", "--no-block", CONTROLLER)
    return Done((old.name, new.name), detail=f"from {old.name} to {new.name}")


@contextlib.contextmanager
def _started_where_it_fails(machine: Machine) -> Iterator[None]:
    """Start the controller where it was, should a command of a page fail meanwhile."""
    try:
        yield
    except (AssertionError, OSError, subprocess.SubprocessError):
        enable(machine, "everstep-controller")
        machine.run("systemctl", "start", "--no-block", CONTROLLER, check=False)
        raise


def _restore_old_journal(world: World) -> Done:
    """Put a backup in place of the journal that is older than what was decided since."""
    machine = _controllers(world)
    backs_up, puts_back = page_commands(_OPERATIONS, _BACKING_UP)
    copy = machine.root / _BACKUP
    if not copy.exists():
        machine.run("sh", "-ec", backs_up)
        return Done((machine.name,), detail="a backup is made, for the next time")
    # Recovery is asked for by the unit here, which goes on where the page starts anew.
    places, _, _ = puts_back.partition("runuser")
    with _started_where_it_fails(machine):
        machine.run("sh", "-ec", places)
    _recover(machine)
    copy.unlink()
    return Done((machine.name,), detail="the journal of the last backup")


def _recover(machine: Machine) -> None:
    """Start the controller once by `recover`, as the unit starts it otherwise."""
    drop_in = f"/etc/systemd/system/{CONTROLLER}.d/recover.conf"
    program = "/opt/everstep/bin/everstep-controller recover --config /etc/everstep/controller.toml"
    machine.write(drop_in, f"[Service]\nExecStart=\nExecStart={program}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "start", "--no-block", CONTROLLER)
    (machine.root / drop_in.strip("/")).unlink()


BLOWS: Mapping[str, Callable[[World], Done]] = MappingProxyType(
    {
        "kill_agent": partial(_kill, AGENT),
        "stop_agent": partial(_stop, AGENT),
        "freeze_agent": partial(_freeze, AGENT),
        "crash_agent": partial(_crash, AGENT),
        "misconfigure_agent": _misconfigure,
        "step_clock": partial(_step_clock, AGENT),
        "leave_job_without_agent": _leave_job_without_agent,
        "step_controller_clock": partial(_step_clock, CONTROLLER),
        "kill_controller": partial(_kill, CONTROLLER),
        "stop_controller": partial(_stop, CONTROLLER),
        "freeze_controller": partial(_freeze, CONTROLLER),
        "crash_controller": partial(_crash, CONTROLLER),
        "move_controller": _move_controller,
        "restore_old_journal": _restore_old_journal,
    }
)
