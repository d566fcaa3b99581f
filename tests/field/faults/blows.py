"""Blows to ranks and machines, and the table of all blows by the names that the catalogue uses."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from field.faults import cuts, daemons, disks, operators
from field.faults.world import Done, World
from field.machines.fleet import KERNEL_LOG

_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"

# As hanging.py takes them.
_HOLDS = {"waits": signal.SIGUSR1, "computes": signal.SIGUSR2}


def _signal_rank(number: signal.Signals, every: bool, world: World) -> Done:
    job, machine, pids = world.ranks()
    hit = pids if every else [world.chance.choice(pids)]
    send(hit, number)
    return Done((machine.name,), job.spec.name, f"{number.name} to {len(hit)} of {len(pids)} ranks")


def _freeze_rank(world: World) -> Done:
    job, machine, pids = world.ranks()
    pid = world.chance.choice(pids)
    send([pid], signal.SIGSTOP)
    undo = partial(send, [pid], signal.SIGCONT)
    # The generation after it has other processes.
    is_over = partial(_is_gone, pid)
    return Done((machine.name,), job.spec.name, "SIGSTOP to one rank", undo, is_over)


def _hold_lock(world: World) -> Done:
    """Have a rank hold the interpreter's lock: a C library that waits, or one that computes."""
    job, machine, pids = world.ranks(lambda shape: shape.can_hold_lock)
    pid = world.chance.choice(pids)
    how = world.chance.choice(list(_HOLDS))
    send([pid], _HOLDS[how])
    undo = partial(send, [pid], signal.SIGKILL)
    is_over = partial(_is_gone, pid)
    return Done((machine.name,), job.spec.name, f"one rank {how} for ever", undo, is_over)


def _kill_launcher(world: World) -> Done:
    job, machine, _ = world.ranks()
    machine.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", job.unit)
    return Done((machine.name,), job.spec.name)


def _pull_power(world: World) -> Done:
    machine = world.machine(but_the_controller=True)
    machine.pull_power()
    return Done((machine.name,), undo=machine.boot)


def _shut_down(world: World) -> Done:
    machine = world.machine(but_the_controller=True)
    machine.shut_down()
    return Done((machine.name,), undo=machine.boot)


def _freeze_machine(world: World) -> Done:
    machine = world.machine(but_the_controller=True)
    machine.freeze()
    return Done((machine.name,), undo=machine.thaw)


def _log_fatal_xid(world: World) -> Done:
    machine = world.machine()
    with (machine.root / KERNEL_LOG.strip("/")).open("a") as log:
        log.write(_XID)
    # No driver tells the agent of a new GPU here: the operator answers for it.
    words = ("--reason", "GPU replaced", "--accept", "XidFatal")
    release = partial(operators.everstep, world, "release", machine.name, *words)
    return Done((machine.name,), undo=release)


def _is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return True
    return state == "Z"


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes that may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


BLOWS: Mapping[str, Callable[[World], Done]] = MappingProxyType(
    {
        "kill_rank": partial(_signal_rank, signal.SIGKILL, False),
        "abort_rank": partial(_signal_rank, signal.SIGSEGV, False),
        "kill_all_ranks": partial(_signal_rank, signal.SIGKILL, True),
        "freeze_rank": _freeze_rank,
        "hold_lock": _hold_lock,
        "kill_launcher": _kill_launcher,
        "pull_power": _pull_power,
        "shut_down": _shut_down,
        "freeze_machine": _freeze_machine,
        "log_fatal_xid": _log_fatal_xid,
        **daemons.BLOWS,
        **cuts.BLOWS,
        **disks.BLOWS,
        **operators.BLOWS,
    }
)
