"""What operators do: take nodes out and back, restart and stop jobs, upgrade the agents."""

import contextlib
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from field.faults.daemons import AGENT
from field.faults.world import Done, NothingToHitError, World
from field.machines.machine import Machine

_WINDOW = re.compile(r"\bm-\d+\b")


def everstep(world: World, *words: str) -> str:
    """Run a command as an operator. Raises OSError when it is refused."""
    done = world.fleet.everstep(*words)
    if done.returncode:
        raise OSError(f"everstep {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _hold(command: str, world: World) -> Done:
    name = world.machine(but_the_controller=True).name
    everstep(world, command, name, "--reason", "a drill")
    release = partial(everstep, world, "release", name, "--reason", "the drill is over")
    return Done((name,), undo=release)


def _maintain(world: World) -> Done:
    """Work on a node from now on; it is over when somebody says so, before its time."""
    name = world.machine(but_the_controller=True).name
    words = ("--from", "now", "--for", "1h", "--reason", "new fans")
    told = _WINDOW.search(everstep(world, "maintenance", "add", name, *words))
    if told is None:
        raise OSError(f"no window is named for {name}")
    cancel = partial(everstep, world, "maintenance", "cancel", told[0])
    return Done((name,), detail=told[0], undo=cancel)


def _end_job(command: str, reason: str, world: World) -> Done:
    jobs = world.jobs()
    if not jobs:
        raise NothingToHitError("no job runs")
    job = world.chance.choice(jobs)
    everstep(world, "job", job.spec.name, command, "--reason", reason)
    return Done(job.spec.machines, job.spec.name)


def _upgrade_agents(world: World) -> Done:
    """Install the same wheel again on one machine after the other, and restart its agent."""
    fit = [one for one in world.fleet.machines.values() if one.is_up and one.name not in world.held]
    # It takes a while, beside other faults.
    return Done(tuple(one.name for one in fit), undo=partial(_upgrade, fit, world.wheel))


def _upgrade(machines: Sequence[Machine], wheel: str) -> None:
    # Two of them at once would take each other's files away.
    pip = (
        *("flock", "/run/everstep-upgrade", "/opt/everstep/bin/pip", "install", "--quiet"),
        *("--no-index", "--no-deps"),
    )
    for one in machines:
        # One that has gone meanwhile is left as it is.
        with contextlib.suppress(AssertionError, subprocess.SubprocessError):
            one.run(*pip, "--force-reinstall", wheel, timeout_s=180.0)
            one.run("systemctl", "restart", AGENT)


BLOWS: Mapping[str, Callable[[World], Done]] = MappingProxyType(
    {
        "drain": partial(_hold, "drain"),
        "isolate": partial(_hold, "isolate"),
        "maintain": _maintain,
        "restart_job": partial(_end_job, "restart", "another script"),
        "stop_job": partial(_end_job, "stop", "the budget is spent"),
        "upgrade_agents": _upgrade_agents,
    }
)
