"""``everstep run``: this node's part of a job. It starts and stops ranks as the agent tells it.

One thread and one selector: the ranks' death signal is tied to the thread that started them.
"""

import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from everstep.launch import children
from everstep.launch.generation import LocalGeneration
from everstep.launch.job_token import TokenError, job_token
from everstep.launch.link import LaunchLink
from everstep.launch.options import LaunchOptions, UsageError, parse_options
from everstep.launch.rank_environment import JobAccess
from everstep.launch.signals import SignalPipe
from everstep.launch.terminal import Terminal
from everstep.launch.workers import Workers
from everstep_common.trainer_messages import (
    End,
    Join,
    Joined,
    Leave,
    Notice,
    Refused,
    Start,
    Stop,
)
from everstep_common.version import TRAINER_PROTOCOL, VERSION

_EXIT_USAGE = 2
# While ranks are being stopped their descendants are looked for this often, besides on SIGCHLD.
_STOPPING_POLL_S = 0.1
# A little more than the agent itself takes at most (jobs.storage_end_s); a second signal ends it.
_STORAGE_WAIT_S = 330.0


class Launcher:
    """Does what the agent says, generation after generation, until the job or the user ends it."""

    def __init__(
        self,
        options: LaunchOptions,
        token: str,
        terminal: Terminal,
        environ: Mapping[str, str] = os.environ,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._token = token
        self._terminal = terminal
        self._environ = environ
        self._selector = selectors.DefaultSelector()
        self._link = LaunchLink(options.socket, self._selector, self._received, monotonic)
        self._workers = Workers(self._selector, terminal, self._rank_ended)
        self._generation = LocalGeneration(self._workers, terminal, self._link.send, monotonic)
        self._next: Start | None = None
        self._joined = False
        self._exit_code: int | None = None  # once known, the launcher waits only for its ranks
        self._last_words: list[str] = []
        self._monotonic = monotonic
        # Until then a launcher that leaves waits for the agent to say that all is stored.
        self._stored_by = 0.0

    def run(self) -> int:
        """Return the exit code when the job is over or its user has had enough."""
        try:
            self._link.connect(self._join())
        except OSError as error:
            self._terminal.say(
                f"no agent answers at {self._options.socket} ({error.strerror or error}); start"
                " everstep-agent on this node, or name its socket with --socket or EVERSTEP_SOCKET"
            )
            return 1
        signals = SignalPipe(self._selector, self._signalled)
        try:
            code = self._serve()
        finally:
            signals.close()
            self._workers.signal_groups(signal.SIGKILL)
            self._link.drop()
        for line in self._last_words:
            self._terminal.say(line)
        return code

    def _serve(self) -> int:
        while self._exit_code is None or not self._generation.stopped or self._awaits_storage():
            for key, _ in self._selector.select(self._wait_s()):
                key.data()
            if self._exit_code is None:
                self._link.retry(self._join())
            if self._generation.advance() and self._next and self._exit_code is None:
                self._start(self._next)
        return self._exit_code

    def _awaits_storage(self) -> bool:
        """Return whether a user who leaves still waits for the newest step to be stored."""
        return self._link.connected and self._monotonic() < self._stored_by

    def _wait_s(self) -> float | None:
        waits = [self._link.due_in_s() if self._exit_code is None else None]
        if self._exit_code is not None and self._generation.stopped:
            waits.append(max(0.0, self._stored_by - self._monotonic()))
        if (due := self._generation.due_in_s()) is not None:
            waits.append(min(due, _STOPPING_POLL_S))
        return min((wait for wait in waits if wait is not None), default=None)

    def _join(self) -> Join:
        options = self._options
        return Join(
            protocol=TRAINER_PROTOCOL,
            version=VERSION,
            job=options.job,
            token=self._token,
            nodes_min=options.nodes_min,
            nodes_max=options.nodes_max,
            processes_per_node=options.processes_per_node,
            reform=options.reform,
            restarts_max=options.restarts_max,
            free_port=self._generation.free_port,
            running_generation=0 if self._generation.stopped else self._generation.number,
            storage=options.keep.storage,
            snapshot_bytes=options.keep.memory_bytes,
            snapshot_every_min=options.keep.every_min,
            snapshot_every_max=options.keep.every_max,
        )

    def _received(self, message: object) -> None:
        match message:
            case Joined(node):
                self._on_joined(node)
            case Refused(reason):
                self._end(1, [f"refused: {reason}"])
            case Start():
                self._on_start(message)
            case Stop():
                self._on_stop(message)
            case End(succeeded, reason):
                self._stored_by = 0.0
                self._end(0 if succeeded else 1, self._summary(succeeded, reason))
            case Notice(text):
                self._terminal.say(text)
            case _:
                pass

    def _on_joined(self, node: str) -> None:
        self._link.settled()
        again = "connected again" if self._joined else f"job {self._options.job}: joined"
        self._terminal.say(f"{again} on {node}")
        self._joined = True
        self._generation.tell_again()

    def _on_start(self, start: Start) -> None:
        if start.generation <= self._generation.number or self._exit_code is not None:
            return
        if self._generation.stopped:
            self._start(start)
        else:
            self._next = start
            self._generation.stop(0.0)

    def _start(self, start: Start) -> None:
        self._next = None
        self._terminal.say(
            f"{start.reason}; {start.processes} of {start.world_size} ranks run here"
        )
        access = JobAccess(
            self._options.job, self._options.socket, self._token, self._options.restarts_max
        )
        self._generation.start(
            start, self._options.command, self._environ, access, self._options.logs
        )

    def _on_stop(self, stop: Stop) -> None:
        if stop.generation < self._generation.number:
            return  # an order to a generation that has been stopped already
        if self._generation.stopped:
            self._generation.tell_stopped()
        else:
            self._terminal.say(f"generation {self._generation.number} stops: {stop.reason}")
            self._generation.stop(stop.grace_s)

    def _end(self, code: int, last_words: list[str]) -> None:
        if self._exit_code is None:
            self._exit_code = code
            self._last_words = last_words
        self._generation.stop(self._options.grace_s)

    def _summary(self, succeeded: bool, reason: str) -> list[str]:
        words = [f"job {self._options.job} {'succeeded' if succeeded else 'failed'}: {reason}"]
        failure = self._generation.failure
        if failure and not succeeded:
            words += [f"first failure here: {failure.sentence()}"]
            words += [f"  {line}" for line in failure.last_lines]
        return words

    def _rank_ended(self, rank: int, code: int, last_lines: tuple[str, ...]) -> None:
        self._generation.rank_ended(rank, code, last_lines)

    def _signalled(self, number: signal.Signals) -> None:
        if number == signal.SIGCHLD:
            self._workers.reap_strays()
        elif self._exit_code is None:
            self._link.send(Leave(f"interrupted by its user ({number.name})"))
            if self._options.keep.storage:
                self._stored_by = self._monotonic() + _STORAGE_WAIT_S
                self._terminal.say("waiting for the newest step to be stored; Ctrl-C: do not wait")
            self._end(128 + number, [f"job {self._options.job}: left on {number.name}"])
        else:
            self._stored_by = 0.0
            self._generation.stop(0.0)  # asked twice: now


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node's part of a job; return the exit code."""
    terminal = Terminal()
    try:
        options = parse_options(sys.argv[2:] if arguments is None else arguments)
        token = job_token(options.job, options.token_file)
    except (UsageError, TokenError) as error:
        terminal.say(str(error))
        return _EXIT_USAGE
    children.adopt_orphans()
    return Launcher(options, token, terminal).run()
