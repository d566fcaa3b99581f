"""Leftovers of jobs that have ended: processes of users, their groups, and memory of snapshots."""

import contextlib
import subprocess
import time
from collections.abc import Iterator

from field.machines.fleet import Fleet
from field.machines.machine import Machine
from field.machines.site import USERS

# Services that were told to stop have ended by then; so has the storage of their last step.
_PATIENCE_S = 45.0


def left_behind(fleet: Fleet) -> list[str]:
    """Return what is still there of jobs when all have ended, and a while has passed."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := list(_left(fleet))) and time.monotonic() < deadline:
        time.sleep(1.0)
    return left


def _left(fleet: Fleet) -> Iterator[str]:
    for one in fleet.machines.values():
        if one.is_up:
            with contextlib.suppress(AssertionError, OSError, subprocess.SubprocessError):
                yield from _of(one)


def _of(machine: Machine) -> Iterator[str]:
    for user in USERS:
        for line in machine.run("ps", "-o", "pid=,args=", "-u", user, check=False).splitlines():
            yield f"{machine.name}: process of {user}: {line.strip()}"
    for group in machine.groups("job-*.service/everstep-*"):
        yield f"{machine.name}: control group {group.name}"
