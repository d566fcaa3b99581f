"""Generation under torchrun: its ranks, which torchrun starts, and the reports to the agent."""

import signal
from collections.abc import Callable, Iterable
from typing import Protocol

from everstep.launch.free_port import FreePort
from everstep.launch.processes.rank_failure import RankEnd, RankFailure
from everstep_common.clock import boot_ns
from everstep_common.launcher_messages import RankProcess, Start, Started
from everstep_common.reports import GenerationFinished, GenerationStopped, RankExited

# Exit codes of ranks that torchrun ended because another one had failed.
_OF_TORCHRUN = (-signal.SIGTERM, -signal.SIGKILL)
# Exit codes of ranks to which torchrun passed on the signal by which its user ended it.
_PASSED_ON = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, -signal.SIGQUIT)


class WatchedWorkers(Protocol):
    """The processes that torchrun has started for the generation."""

    def begin(self, generation: int) -> None:
        """Look for those of another generation."""
        ...

    def find_started(self) -> None:
        """Find those that have been started meanwhile."""
        ...

    def running(self) -> dict[int, int]:
        """Return the process of each rank that runs."""
        ...

    def missed(self) -> list[RankEnd]:
        """Return the ends that torchrun saw first, once it has seen all."""
        ...

    def kill(self) -> None:
        """Kill those that run and all in their process groups."""
        ...


class WatchedGeneration:
    """Generation whose ranks torchrun starts and stops: reports their ends to the agent."""

    def __init__(
        self, workers: WatchedWorkers, tell: Callable[[object], None], port: FreePort | None = None
    ) -> None:
        """``port`` is one that is held already."""
        self._workers = workers
        self._tell = tell
        self._started: Started | None = None
        self._exits: list[RankExited] = []
        self._ended: set[int] = set()
        # Ends of ranks of which only torchrun's next call tells whether they are failures.
        self._unsure: list[RankEnd] = []
        self._finished: GenerationFinished | None = None
        self._abandoned: tuple[int, ...] = ()
        self._ranks = range(0)
        self.port = port or FreePort()
        self.number = 0
        self.stopped = True

    @property
    def awaits_workers(self) -> bool:
        """Whether torchrun has yet to start some of them, as far as is known."""
        return not self.stopped and self._started is None and not self._ended

    @property
    def failed(self) -> bool:
        """Whether a rank has failed here."""
        return bool(self._exits)

    @property
    def finished(self) -> bool:
        """Whether all ranks here have come to their good end."""
        return self._finished is not None

    def begin(self, start: Start) -> None:
        """Torchrun is about to start the ranks of this node."""
        self.number, self.stopped = start.generation, False
        self._ranks = range(start.first_rank, start.first_rank + start.processes)
        self._exits, self._ended, self._unsure = [], set(), []
        self._started, self._finished, self._abandoned = None, None, ()
        self._workers.begin(start.generation)

    def report_started(self) -> None:
        """Tell that all ranks run, once they do."""
        self._workers.find_started()
        running = self._workers.running()
        if self._started is None and len(running) == len(self._ranks):
            processes = tuple(RankProcess(rank, pid) for rank, pid in sorted(running.items()))
            self._started = Started(self.number, processes, boot_ns())
            self._tell(self._started)

    def rank_ended(self, end: RankEnd) -> None:
        """A rank ended, and torchrun was not about to stop it."""
        self._ended.add(end.rank)
        if end.code == 0:
            self._maybe_finished()
        elif self.failed and end.code in _OF_TORCHRUN:
            return
        elif end.code in _PASSED_ON:
            self._unsure.append(end)
        else:
            self._fail(RankFailure.of(self.number, end))

    def gone(self, *, told: bool, succeeded: bool) -> None:
        """Torchrun has come back from its ranks: none that it could end is left."""
        if self.stopped:
            return
        if succeeded:
            self._ended = set(self._ranks)
            self._maybe_finished()
        elif not told and not self.failed:
            self._fail(RankFailure.of(self.number, self._first_failure()))
        self._workers.kill()
        self._abandoned = tuple(sorted(self._workers.running().values()))
        self.stopped = True
        self.port.release()
        self.port = FreePort()

    def tell_again(self) -> None:
        """Tell all that is known, to an agent that may have missed any of it."""
        if self.stopped and not self.finished:
            if self.number:
                self.tell_stopped()
            return
        for message in (self._started, *self._exits, self._finished):
            if message is not None:
                self._tell(message)

    def tell_stopped(self) -> None:
        """Tell that no process is left that could be waited for."""
        self._tell(GenerationStopped(self.number, self.port.number, boot_ns(), self._abandoned))

    def _fail(self, failure: RankFailure) -> None:
        exited = failure.report()
        self._exits.append(exited)
        self._tell(exited)

    def _first_failure(self) -> RankEnd:
        ends = [end for end in (*self._unsure, *self._workers.missed()) if end.code]
        # SIGTERM is what torchrun ended the others with when it had seen this one fail.
        first = sorted(ends, key=lambda end: (-end.code == signal.SIGTERM, end.at_boot_ns))[:1]
        return first[0] if first else _unseen(self._ranks)

    def _maybe_finished(self) -> None:
        if self._ended >= set(self._ranks) and not self._exits and self._finished is None:
            self._finished = GenerationFinished(self.number, boot_ns())
            self._tell(self._finished)


def _unseen(ranks: Iterable[int]) -> RankEnd:
    """Return the end of a rank that torchrun told of only by starting anew."""
    lines = ("torchrun has seen a rank of this node fail, and keeps to itself which and how",)
    return RankEnd(
        rank=min(ranks), code=1, core_dumped=False, at_boot_ns=boot_ns(), last_lines=lines
    )
