"""The warm standbys of this node: one for each of its ranks, made one after another."""

import selectors
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.launch.output.terminal import Terminal
from everstep.launch.standby.candidate import Candidate, Taken, WarmUp
from everstep.launch.standby.imports import imports_of
from everstep.launch.standby.lesson_file import Learned, LessonFile
from everstep.launch.standby.python_command import PythonCommand, python_command

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """What the user wants of warm standbys."""

    enabled: bool = True
    # Imported by each; empty: what ranks have been seen to import, or the script's first lines.
    modules: tuple[str, ...] = ()
    # The most that one may take.
    memory_bytes: int = 4 * _GIB
    # Whether it opens the rank's device, which takes memory there.
    device: bool = False


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """What one standby is to become, as far as it is known before its generation."""

    command: Sequence[str]
    environ: Mapping[str, str]


class StandbyPool:
    """Keeps a process ready for each local rank while nothing else needs the processors."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        terminal: Terminal,
        options: StandbyOptions,
        folder: Path,
    ) -> None:
        self.lesson = LessonFile()
        self._selector = selector
        self._terminal = terminal
        self._options = options
        self._folder = folder
        self._candidates: dict[int, Candidate] = {}
        self._plans: dict[int, WaitingPlan] = {}
        # What the first rank here was started with.
        self._given: Mapping[str, str] = {}
        self._due: list[int] = []
        self._told = ""
        # Whether there may be any; it ends when one fails, for the others would as well.
        self.usable = options.enabled

    def pids(self) -> set[int]:
        """Return the processes that wait here."""
        return {one.process.pid for one in self._candidates.values()}

    def fill(self, plans: Mapping[int, WaitingPlan]) -> None:
        """Have one for each of these local ranks."""
        if self.usable:
            self._plans = dict(plans)
            self._due = [rank for rank in plans if rank not in self._candidates]
            self._advance()

    def pause(self) -> None:
        """Make no more for now: the ranks need the processors."""
        self._due = []

    def take(self, local_rank: int, environ: Mapping[str, str]) -> Taken | None:
        """Make the one of this local rank a rank; None without one."""
        self._told = ""
        if local_rank == 0:
            self._given = environ
        candidate = self._candidates.pop(local_rank, None)
        return candidate.become(environ) if candidate else None

    def close(self) -> None:
        """End them all."""
        self._drop()
        self.lesson.close()

    def memory_bytes(self) -> int:
        """Return what they take together."""
        return sum(one.memory_bytes() for one in self._candidates.values())

    def _drop(self) -> None:
        self._due = []
        for candidate in self._candidates.values():
            candidate.end()
        self._candidates.clear()

    def _advance(self) -> None:
        """Warm up the next one: one at a time, for the ranks need the processors."""
        if any(not one.ready for one in self._candidates.values()):
            return
        if not self._due:
            self._tell()
            return
        rank = self._due.pop(0)
        plan = self._plans[rank]
        command = python_command(plan.command, plan.environ.get("PATH"))
        if command is None:  # of a shell script, say, nothing can be prepared
            self.usable = False
            return
        learned = self.lesson.read(self._given)
        modules = self._options.modules or learned.modules or self._read(command)
        warm_up = WarmUp(
            command=command,
            modules=modules,
            # What ranks have imported may not be importable by its name alone.
            quiet=bool(learned.modules),
            device=rank if self._options.device else -1,
            descriptor=self.lesson.descriptor,
        )
        try:
            candidate = Candidate(
                self._selector, warm_up, _with(plan.environ, learned), self._changed
            )
        except OSError as error:
            self._give_up(f"cannot be started: {error}")
            return
        self._candidates[rank] = candidate

    def _read(self, command: PythonCommand) -> tuple[str, ...]:
        path = command.path(self._folder)
        if path is None:
            return ()
        return tuple(imports_of(path, path.parent if command.script else self._folder))

    def _changed(self, candidate: Candidate) -> None:
        if candidate.ended:
            self._give_up(f"ended while it waited: {candidate.remark}")
        elif (size := candidate.memory_bytes()) > self._options.memory_bytes:
            limit = f"{self._options.memory_bytes / _GIB:.1f}GiB"
            self._give_up(f"takes {size / _GIB:.1f} GiB, more than --standby-memory {limit}")
        else:
            self._advance()

    def _give_up(self, why: str) -> None:
        self.usable = False
        self._drop()
        self._terminal.say(f"no warm standbys: one {why}; restarts take longer")

    def _tell(self) -> None:
        count = len(self._candidates)
        remarks = sorted({one.remark for one in self._candidates.values() if one.remark})
        missing = f"; not imported: {', '.join(remarks)}" if remarks else ""
        standbys = "1 warm standby is" if count == 1 else f"{count} warm standbys are"
        told = f"{standbys} ready{missing}"
        if count and told != self._told:
            self._told = told
            size = self.memory_bytes() / 1024**2
            take = "it takes" if count == 1 else "they take"
            self._terminal.say(f"{told}; {take} {size:.0f} MiB (--standby none: no standbys)")


def _with(environ: Mapping[str, str], learned: Learned) -> dict[str, str]:
    """Return the environment in which a rank imported what it did."""
    return {**environ, **(learned.environ or {})}
