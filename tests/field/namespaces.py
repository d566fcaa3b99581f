"""Namespaces of a run on booted machines: all that it starts is within, and ends with it."""

import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType

from field.machines.image import REPOSITORY, build_image
from field.machines.isolation import AskedToEndError, EndRequests, run_isolated
from field.machines.machine import remove_groups, thaw_groups
from real.booted_box import NEEDS, can_boot
from real.sandbox import denies_containers

STOPPED = 143
# Machines that boot are let boot, and jobs are stopped.
_GRACE_S = 30.0


def run_inside(module: str, words: Sequence[str]) -> int:
    """Run a module in namespaces of its own; its arguments are a folder, an image and ``words``.

    Returns its exit code, 1 where machines cannot be booted here, and 143 where this process was
    asked to end: once, and what is under way ends in good order within 30 s; twice, and it is
    killed. Nothing of it is left in any case.
    """
    reason = denies_containers() if can_boot() else f"needs root and {', '.join(NEEDS)}"
    if reason:
        print(f"no machines can be booted: {reason} (apt: systemd-container dbus)")
        return 1
    with EndRequests() as requests:
        try:
            image = build_image(REPOSITORY / ".venv/field", requests)
            requests.check()
            code = _run(module, image, words, requests)
            requests.check()
        except (AskedToEndError, subprocess.CalledProcessError):
            # Ctrl-C ends programs of this terminal as well.
            if not requests.count:
                raise
            return STOPPED
    return code


def stop_when_asked(stop: Callable[[], object]) -> None:
    """Have SIGTERM call it once; a run in namespaces gets that again and again until it ends."""

    def end(number: int, frame: FrameType | None) -> None:
        # Not SIG_IGN: programs that are started now would inherit that.
        signal.signal(signal.SIGTERM, lambda *_: None)
        stop()

    signal.signal(signal.SIGTERM, end)


def _run(module: str, image: Path, words: Sequence[str], requests: EndRequests) -> int:
    # Machines are named after it, and no machine's name has the underscores of tempfile's.
    work = Path(f"/tmp/everstep-field-{secrets.token_hex(4)}")
    work.mkdir(mode=0o700)
    try:
        return run_isolated(
            [sys.executable, "-m", module, str(work), str(image), *words],
            requests,
            own_network=True,
            grace_s=_GRACE_S,
            thaw=partial(thaw_groups, work.name),
        )
    finally:
        remove_groups(work.name)
        shutil.rmtree(work, ignore_errors=True)
