"""One generation's ranks on this node, from the agent's Start until none of them is left."""

import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from everstep.launch.free_port import FreePort
from everstep.launch.memcpy_tuning import memcpy_variables
from everstep.launch.rank_environment import JobAccess, rank_environment
from everstep.launch.terminal import Terminal
from everstep.launch.workers import Failure, WorkerPlan, Workers
from everstep_common.clock import boot_ns
from everstep_common.trainer_messages import (
    Exited,
    Finished,
    RankProcess,
    Start,
    Started,
    Stopped,
)

# Killed processes end within milliseconds; one that waits for a dead disk or driver does not.
_UNKILLABLE_S = 10.0
_LAST_LINE_MAX = 1000


class LocalGeneration:
    """Starts and stops the ranks of this node, and tells the agent what becomes of them."""

    def __init__(
        self,
        workers: Workers,
        terminal: Terminal,
        tell: Callable[[object], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._workers = workers
        self._terminal = terminal
        self._tell = tell
        self._monotonic = monotonic
        self._port = FreePort()
        self._exits: list[Exited] = []
        self._finished: Finished | None = None
        self._kill_at: float | None = None
        self._killed = False
        self.number = 0
        self.stopped = True
        self.failure: Failure | None = None

    @property
    def free_port(self) -> int:
        """A port for the rendezvous of the next generation."""
        return self._port.number

    def start(
        self,
        start: Start,
        command: tuple[str, ...],
        base: Mapping[str, str],
        access: JobAccess,
        logs: Path | None,
    ) -> None:
        """Start this node's ranks; the generation before must have stopped."""
        self.number, self.stopped = start.generation, False
        self._exits, self._finished, self.failure = [], None, None
        self._killed = False
        self._port.release()
        folder = logs / f"gen-{start.generation}" if logs else None
        base = {**base, **memcpy_variables(base)}
        for local_rank in range(start.processes):
            rank = start.first_rank + local_rank
            environ = rank_environment(base, access, start, local_rank)
            log = folder / f"rank-{rank}" if folder else None
            try:
                self._workers.start(WorkerPlan(rank, command, environ, log))
            except OSError as error:
                self.rank_ended(rank, 1, (f"cannot be started: {error}",))
        self._tell_started()

    def tell_again(self) -> None:
        """Tell all that is known of the generation, to an agent that may have missed any of it."""
        if not self.stopped:
            self._tell_started()
            for message in (*self._exits, *((self._finished,) if self._finished else ())):
                self._tell(message)
        elif self.number:
            self.tell_stopped()

    def tell_stopped(self) -> None:
        """Tell that no process is left."""
        self._tell(Stopped(self.number, self.free_port, boot_ns()))

    def rank_ended(self, rank: int, code: int, last_lines: tuple[str, ...]) -> None:
        """A rank ended, with Popen's return code."""
        if self._kill_at is not None:
            return  # it was told to
        if code == 0:
            self._maybe_finished()
            return
        failure = Failure(self.number, rank, max(code, 0), max(-code, 0), last_lines)
        self.failure = self.failure or failure
        self._terminal.say(failure.sentence())
        exited = Exited(
            generation=self.number,
            rank=rank,
            exit_code=failure.exit_code,
            signal=failure.signal,
            at_boot_ns=boot_ns(),
            last_line=failure.last_line()[:_LAST_LINE_MAX],
        )
        self._exits.append(exited)
        self._tell(exited)

    def stop(self, grace_s: float) -> None:
        """Ask the ranks to end, and kill them and all they started after ``grace_s``."""
        if self.stopped:
            return
        kill_at = self._monotonic() + grace_s
        if grace_s <= 0:
            self._workers.signal_groups(signal.SIGKILL)
        elif self._kill_at is None:
            self._workers.signal_groups(signal.SIGTERM)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called at the latest, if at all."""
        return None if self._kill_at is None else max(0.0, self._kill_at - self._monotonic())

    def advance(self) -> bool:
        """Go on with stopping; return whether that has just come to its end."""
        if self.stopped or self._kill_at is None:
            return False
        if self._workers.running():
            if self._monotonic() >= self._kill_at:
                self._kill_harder()
            return False
        self._workers.signal_groups(signal.SIGKILL)  # what the ranks left in their groups
        if not self._workers.gone():
            if self._monotonic() >= self._kill_at:
                self._kill_harder()
            return False
        self.stopped, self._kill_at = True, None
        self._port.release()
        self._port = FreePort()
        self.tell_stopped()
        return True

    def _kill_harder(self) -> None:
        if self._killed:
            left = ", ".join(str(pid) for pid in self._workers.running().values())
            self._terminal.say(f"killed, but not gone yet: {left or 'what the ranks started'}")
        self._killed = True
        self._workers.signal_groups(signal.SIGKILL)
        self._kill_at = self._monotonic() + _UNKILLABLE_S

    def _maybe_finished(self) -> None:
        if not self._workers.running() and not self._exits:
            self._finished = Finished(self.number, boot_ns())
            self._tell(self._finished)

    def _tell_started(self) -> None:
        running = self._workers.running().items()
        processes = tuple(RankProcess(rank, pid) for rank, pid in sorted(running))
        self._tell(Started(self.number, processes, boot_ns()))
