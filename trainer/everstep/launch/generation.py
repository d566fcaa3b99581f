"""Generation on this node: its ranks and their steps, from the agent's Start to their end."""

import os
import signal
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from everstep.launch.free_port import FreePort
from everstep.launch.inspection.rank_watch import RankWatch
from everstep.launch.output.output_reports import OutputReports
from everstep.launch.output.terminal import Terminal
from everstep.launch.processes.memory_kills import MemoryKills
from everstep.launch.processes.rank_failure import (
    RankEnd,
    RankFailure,
    failed_by_itself,
    first_failure,
)
from everstep.launch.rank_recipe import RankRecipe, recording_imports
from everstep.launch.standby.pool import StandbyPool
from everstep.launch.workers import WorkerPlan, Workers
from everstep.rank.termination import VARIABLE
from everstep_common.clock import boot_ns
from everstep_common.launcher_messages import RankProcess, Start, Started, StepSeen
from everstep_common.reports import GenerationFinished, GenerationStopped, RankExited

# Killed processes end within milliseconds, with large GPUs within seconds; one that waits for a
# dead disk or driver does not. The others of the job wait for this node meanwhile.
_UNKILLABLE_S = 10.0


class LocalGeneration:
    """Ranks of this node: starts and stops them, and tells the agent what becomes of them."""

    def __init__(
        self,
        recipe: RankRecipe,
        workers: Workers,
        standbys: StandbyPool,
        terminal: Terminal,
        tell: Callable[[object], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._recipe = recipe
        self._workers = workers
        self._standbys = standbys
        self._terminal = terminal
        self._tell = tell
        self._monotonic = monotonic
        self._port = FreePort()
        self._memory_kills = MemoryKills()
        self._exits: list[RankExited] = []
        self._finished: GenerationFinished | None = None
        self._abandoned: tuple[int, ...] = ()
        self._kill_at: float | None = None
        self._told_ns = 0  # when the ranks were told to end
        self._told_how = ""  # and how long they have, and by which signal; empty: they are killed
        self._started_ns = 0  # when the last rank was about to be started: it is quick to call in
        self._killed = False
        self._failures: list[RankFailure] = []
        self._notice: EndNotice | None = None
        self.steps = SeenSteps(tell)
        self.output = OutputReports(tell, monotonic)
        self.watch = RankWatch(tell, workers.running)
        self.number = 0
        self.stopped = True

    @property
    def free_port(self) -> int:
        """A port for the rendezvous of the next generation."""
        return self._port.number

    @property
    def failure(self) -> RankFailure | None:
        """The failure of a rank here that the others followed; None when none has failed."""
        return first_failure(self._failures)

    def ending(self) -> str:
        """Return that its ranks are being stopped, or are, in words; "" while none of that is."""
        if self._kill_at is None and not self.stopped:
            return ""
        return f"generation {self.number} is being stopped"

    def start(self, start: Start) -> None:
        """Start this node's ranks; the generation before must have stopped."""
        self.number, self.stopped = start.generation, False
        self._exits, self._failures, self._finished = [], [], None
        self._killed, self._abandoned = False, ()
        self._port.release()
        self.steps.begin(start.generation)
        self.output.begin(start.generation, start.processes)
        self._workers.begin(start.generation)
        self._memory_kills.begin()
        self._notice = EndNotice()
        ranks = range(start.first_rank, start.first_rank + start.processes)
        self.watch.begin(start.generation, ranks, start.world_size)
        for local_rank in range(start.processes):
            plan = self._recipe.plan(
                start, local_rank, self._terminal, self.steps.seen, self.output.add
            )
            added = {**self._notice.environment(), **self.watch.environment(plan.rank)}
            plan = replace(plan, environ={**plan.environ, **added})
            self._started_ns = boot_ns()
            try:
                self._start(local_rank, plan)
            except OSError as error:
                self.rank_ended(_not_started(plan.rank, error))
        self._tell_started()

    def prepare(self, processes: int) -> None:
        """Have standbys for the next generation's ranks."""
        self._standbys.fill(
            {local: self._recipe.waiting(local, processes) for local in range(processes)}
        )

    def _start(self, local_rank: int, plan: WorkerPlan) -> None:
        if self._standbys.usable:
            plan = recording_imports(plan, self._standbys.recording(local_rank))
        taken = self._standbys.start_rank(local_rank, plan.environ)
        if taken is None:
            self._workers.start(plan)
            return
        self._workers.adopt(plan, taken.process, taken.pidfd)
        plan.out.write(taken.said[0])
        plan.error.write(taken.said[1])

    def tell_again(self) -> None:
        """Tell all that is known of the generation, to an agent that may have missed any of it."""
        self.watch.tell_again()
        if not self.stopped:
            self._tell_started()
            for message in (*self._exits, *((self._finished,) if self._finished else ())):
                self._tell(message)
        elif self.number:
            self.tell_stopped()

    def tell_stopped(self) -> None:
        """Tell that no process is left that could be waited for."""
        self._tell(GenerationStopped(self.number, self.free_port, boot_ns(), self._abandoned))

    def rank_ended(self, end: RankEnd) -> RankFailure | None:
        """A rank ended; return its failure, if it failed before it was told to end."""
        if self._kill_at is not None:  # it was told to
            if failed_by_itself(end, self._told_ns):
                self._failures.append(RankFailure.of(self.number, end))
            return None
        if end.code == 0:
            self._maybe_finished()
            return None
        failure = self._memory_kills.explain(RankFailure.of(self.number, end))
        self._failures.append(failure)
        self._terminal.say(failure.sentence())
        self.steps.flush()
        self.output.flush()
        exited = failure.report()
        self._exits.append(exited)
        self._tell(exited)
        return failure

    def hold(self) -> None:
        """Have no rank end by a SIGTERM that the launcher has got as well, before it is told to."""
        if self._notice is not None:
            self._notice.hold()

    def stop(self, grace_s: float, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask the ranks to end, and kill them and all they started after ``grace_s``."""
        if self.stopped or self._killed:  # what was killed gets its time to end all the same
            return
        kill_at = self._monotonic() + grace_s
        if self._notice is not None:
            self._notice.end()
        if self._kill_at is None:
            self._told_ns = boot_ns()
        if grace_s <= 0:
            self._told_how = ""
            self._workers.signal_groups(signal.SIGKILL)
        elif self._kill_at is None:
            self._told_how = f"{round(grace_s, 1):g} s after {number.name}"
            self._workers.signal_groups(number)
        self._kill_at = kill_at if self._kill_at is None else min(kill_at, self._kill_at)

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called at the latest, if at all."""
        return None if self._kill_at is None else max(0.0, self._kill_at - self._monotonic())

    def advance(self) -> bool:
        """Go on with stopping; return whether that has just come to its end."""
        if self.stopped or self._kill_at is None:
            return False
        if not self._workers.running():
            self._workers.signal_groups(signal.SIGKILL)  # what the ranks left in their groups
        if not self._workers.gone():
            if self._monotonic() < self._kill_at:
                return False
            if not self._killed:
                self._kill()
                return False
            self._abandon()
        self.stopped, self._kill_at = True, None
        self.watch.end()
        if self._notice is not None:
            self._notice.close()
        self._port.release()
        self._port = FreePort(before=self._port.number)
        self.steps.flush()
        self.output.flush()
        self.tell_stopped()
        return True

    def _kill(self) -> None:
        if self._told_how and (late := sorted(self._workers.running())):
            self._terminal.say(
                f"killed, for it had not ended {self._told_how}: rank {', '.join(map(str, late))};"
                " --grace (core.stop_grace_s for an order of the controller) allows more"
            )
        self._killed = True
        self._workers.signal_groups(signal.SIGKILL)
        self._kill_at = self._monotonic() + _UNKILLABLE_S

    def _abandon(self) -> None:
        """The kernel holds what is left: its generation keeps it from doing any harm."""
        self._abandoned = tuple(sorted(self._workers.left()))
        self._workers.abandon()
        listed = ", ".join(map(str, self._abandoned))
        self._terminal.say(
            f"killed, but held in the kernel by a device or a file system: {listed}; generation"
            f" {self.number} is over without waiting for them (see /proc/PID/stack)"
        )

    def _maybe_finished(self) -> None:
        if not self._workers.running() and not self._exits:
            self.steps.flush()
            self.output.flush()
            self._finished = GenerationFinished(self.number, boot_ns())
            self._tell(self._finished)

    def _tell_started(self) -> None:
        running = self._workers.running().items()
        processes = tuple(RankProcess(rank, pid) for rank, pid in sorted(running))
        self._tell(Started(self.number, processes, self._started_ns))


def _not_started(rank: int, error: OSError) -> RankEnd:
    lines = (f"cannot be started: {error}",)
    return RankEnd(rank=rank, code=1, core_dumped=False, at_boot_ns=boot_ns(), last_lines=lines)


# As often as the agent tells the controller.
_INTERVAL_NS = 200_000_000
# Of a script that prints more in that time, the newest: others are counted by their numbers.
_SEEN_MAX = 64


class SeenSteps:
    """Steps of one generation, whichever rank prints them first."""

    def __init__(self, tell: Callable[[object], None]) -> None:
        self._tell = tell
        self._generation = 0
        self._newest = -1
        # The newest that each rank has printed itself.
        self.of_ranks: dict[int, int] = {}
        self._pending: deque[StepSeen] = deque(maxlen=_SEEN_MAX)
        self._next_ns = 0

    @property
    def newest(self) -> int:
        """The newest step that a rank said it has completed; -1: none has."""
        return self._newest

    def begin(self, generation: int) -> None:
        """Another generation starts."""
        self._generation, self._newest, self.of_ranks = generation, -1, {}
        self._pending.clear()

    def seen(self, rank: int, step: int) -> None:
        """A rank said that it has completed a step."""
        self.of_ranks[rank] = max(step, self.of_ranks.get(rank, -1))
        if step <= self._newest:
            return
        self._newest, now_ns = step, boot_ns()
        self._pending.append(StepSeen(self._generation, step, now_ns))
        if now_ns >= self._next_ns:
            self.flush()

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called, if at all."""
        return max(0.0, (self._next_ns - boot_ns()) / 1e9) if self._pending else None

    def advance(self) -> None:
        """Tell what is due."""
        if self._pending and boot_ns() >= self._next_ns:
            self.flush()

    def flush(self) -> None:
        """Tell what is pending now, as what comes next must not overtake it."""
        if self._pending:
            for seen in self._pending:
                self._tell(seen)
            self._pending.clear()
            self._next_ns = boot_ns() + _INTERVAL_NS


class EndNotice:
    """Pipe by which ranks learn that their launcher has got SIGTERM, and later that they end.

    Nobody reads it: it is readable for all of them from the first word on, and closed at the last.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def environment(self) -> dict[str, str]:
        """Return where ranks find it."""
        return {VARIABLE: f"/proc/{os.getpid()}/fd/{self._read}"}

    def hold(self) -> None:
        """The launcher has got the signal: no rank ends by it before the launcher says so."""
        if self._write >= 0:
            os.write(self._write, b"!")

    def end(self) -> None:
        """The ranks are to end."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def close(self) -> None:
        """No rank is left."""
        self.end()
        if self._read >= 0:
            os.close(self._read)
            self._read = -1
