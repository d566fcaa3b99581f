"""Namespaces of a run on booted machines: all that it starts is within, and ends with it."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from field.machines.image import REPOSITORY, build_image
from field.machines.machine import remove_groups
from real.booted_box import NEEDS, can_boot
from real.sandbox import denies_containers


def run_inside(module: str, words: Sequence[str]) -> int:
    """Run a module in namespaces of its own; its arguments are a folder, an image and ``words``.

    Returns its exit code, or 1 where machines cannot be booted here. Nothing of it is left.
    """
    reason = denies_containers() if can_boot() else f"needs root and {', '.join(NEEDS)}"
    if reason:
        print(f"no machines can be booted: {reason} (apt: systemd-container dbus)")
        return 1
    image = build_image(REPOSITORY / ".venv/field")
    # Machines are named after it, and no machine's name has the underscores of tempfile's.
    work = Path(f"/tmp/everstep-field-{secrets.token_hex(4)}")
    work.mkdir(mode=0o700)
    try:
        return _run(module, [str(work), str(image), *words])
    finally:
        remove_groups(work.name)
        shutil.rmtree(work, ignore_errors=True)


def stop_at_signals(stop: Callable[[], object]) -> None:
    """Have SIGTERM and SIGINT call it."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def _run(module: str, words: Sequence[str]) -> int:
    # If this process is killed, what it started is killed as well, and so is all within.
    unshare = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *unshare, sys.executable, "-m", module, *words],
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )

    def forward(number: int, _: object) -> None:
        # unshare itself minds no signal: it waits for its child.
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            for child in children.split():
                os.kill(int(child), number)

    before = {one: signal.signal(one, forward) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()
        for one, handler in before.items():
            signal.signal(one, handler)
