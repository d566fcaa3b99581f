"""Own services of a launcher: a controller and an agent for its job alone, where none are there."""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from everstep.launch.processes.sweeper import IGNORED
from everstep.launch.standalone import supervisor
from everstep.launch.standalone.supervisor import AGENT_SOCKET, CONTROLLER_SOCKET
from everstep_common.extras import install_line

# One of each extra's packages: who has these has the others.
_NEEDED = ("psutil", "apscheduler")
_STOP_S = 15.0
# Less than that is 0.0 in the line.
_SHOWN_S = 0.05
_ASK_S = 10.0


class StandaloneError(Exception):
    """No controller and agent can be started; one sentence with the next step."""


@dataclass(frozen=True, slots=True)
class OwnServices:
    """A running controller and agent; everything of theirs is in the folder."""

    folder: Path

    @property
    def socket(self) -> str:
        """Return where the launcher and its ranks find the agent."""
        return str(self.folder / AGENT_SOCKET)

    @property
    def controller(self) -> str:
        """Return the controller's address, for the command line."""
        return f"unix:{self.folder / CONTROLLER_SOCKET}"

    @property
    def agent_log(self) -> Path:
        """Return where the agent's log is."""
        return self.folder / "agent.log"

    @property
    def token_file(self) -> Path:
        """Return where the job's secret goes, so that it goes with the folder."""
        return self.folder / "job.token"


@contextlib.contextmanager
def own_services(say: Callable[[str], None]) -> Iterator[OwnServices]:
    """Start a controller and an agent; stop them at the end. Raises StandaloneError.

    ``say`` tells people what a start waits for that takes long.

    When the launcher is killed, they end as well: their supervisor reads a pipe of the launcher's.
    """
    if not all(map(importlib.util.find_spec, _NEEDED)):
        raise StandaloneError(
            "--standalone starts a controller and an agent, which need more than the base install;"
            f" run: {install_line('all')}"
        )
    process = _start_supervisor()
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield OwnServices(_started(process.stdout, say))
    finally:
        process.stdin.close()
        process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a disk that takes no file away
            process.wait(_STOP_S)


def _started(said: IO[str], say: Callable[[str], None]) -> Path:
    """Wait until both run; return their folder. Raises StandaloneError."""
    try:
        word, rest = _next_words(said)
        while word == "waiting":
            say(f"--standalone: {rest}")
            word, rest = _next_words(said)
    except KeyboardInterrupt:
        say("--standalone: Ctrl-C ends it before the job has begun; what was started is stopped")
        raise
    if word != "ready":
        raise StandaloneError(f"--standalone: {rest or 'nothing could be started'}")
    return Path(rest)


def _next_words(said: IO[str]) -> tuple[str, str]:
    word, _, rest = said.readline().strip().partition(" ")
    return word, rest


def _start_supervisor() -> "subprocess.Popen[str]":
    # Blocked until it handles them, as with the sweeper.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Not in reach of what is sent to the launcher's group or comes from its terminal.
            start_new_session=True,
        )
    except OSError as error:
        raise StandaloneError(f"--standalone: {error.strerror}") from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ledger_line(services: OwnServices, job: str) -> str:
    """Ask the controller where the job's time went, or say that it does not tell."""
    command = [sys.executable, "-P", "-m", "everstep.entry", "ettr", job, "--json"]
    environ = {**os.environ, "EVERSTEP_CONTROLLER": services.controller}
    try:
        asked = subprocess.run(
            command, env=environ, capture_output=True, timeout=_ASK_S, check=True
        )
        return ledger_words(json.loads(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return "where its time went is not known: its controller did not tell"


_NO_STEP = (
    "no step was seen, so there is no ETTR: print 'step N', tell how your lines look"
    " (--progress-pattern 'batch ([0-9]+) done'), or call everstep.step(N)"
)
# What the beginning of a category's name is called in the line, beside steps that count.
_PARTS = {
    "init": "start",
    "inc": "recovery",
    "lost": "lost steps",
    "ckpt": "snapshots",
    "planned": "planned work",
    "gap": "after the last step",
    "inflight": "the last step",
}
_COUNTED = ("productive", "slow")
# What failures cost, where there were any; planned work can lose steps as well.
_OF_FAILURES = ("recovery", "lost steps")


def ledger_words(ledger: Mapping[str, Any]) -> str:
    """Return a ledger, as ``everstep ettr --json`` prints it, in a line that accounts for all."""
    if not ledger["steps"]:
        return _NO_STEP
    wall_s, share = ledger["wall_ns"] / 1e9, ledger["ettr_time"]
    told = f"ETTR {share:.1%}: {share * wall_s:.1f} of {wall_s:.1f} s went into steps that count"
    spent: dict[str, float] = {}
    for category in ledger["categories"]:
        kind: str = category["name"].partition(".")[0]
        if kind not in _COUNTED:
            part = _PARTS.get(kind, kind)
            spent[part] = spent.get(part, 0.0) + category["time_ns"] / 1e9
    failures = ledger["failures"]
    parts = ["nothing failed"]
    if failures:
        cost_s = sum(spent.pop(part, 0.0) for part in _OF_FAILURES)
        parts = [f"{failures} failure{'s' * (failures > 1)} cost {cost_s:.1f} s"]
    parts += [f"{part} {part_s:.1f} s" for part, part_s in spent.items() if part_s >= _SHOWN_S]
    return f"{told}; {', '.join(parts)}"
