"""The warm standbys of this node: one for each of its ranks, made one after another."""

import selectors
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep.launch.standby.candidate import Candidate, Taken, WarmUp
from everstep.launch.standby.imports import imports_of
from everstep.launch.standby.python_command import PythonCommand, python_command
from everstep.launch.terminal import Terminal

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """What the user wants of warm standbys."""

    enabled: bool = True
    # Imported by each; empty: what the script's own first lines import.
    modules: tuple[str, ...] = ()
    # The most that one may take.
    memory_bytes: int = 4 * _GIB
    device: bool = True


class StandbyPool:
    """Keeps a process ready for each local rank while nothing else needs the processors."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        terminal: Terminal,
        command: tuple[str, ...],
        options: StandbyOptions,
        folder: Path,
    ) -> None:
        self._selector = selector
        self._terminal = terminal
        self._options = options
        self._folder = folder
        self._command = python_command(command) if options.enabled else None
        self._candidates: dict[int, Candidate] = {}
        self._environs: dict[int, Mapping[str, str]] = {}
        # Local ranks that are still to get one, and why nobody gets one any more.
        self._due: list[int] = []
        self._hopeless = ""
        self._told = ""

    @property
    def pids(self) -> set[int]:
        """Return the processes that wait here."""
        return {one.process.pid for one in self._candidates.values()}

    def fill(self, environs: Mapping[int, Mapping[str, str]]) -> None:
        """Have one for each of these local ranks; the environment is what is known of it now."""
        if self._command is None or self._hopeless:
            return
        self._environs = dict(environs)
        self._due = [rank for rank in environs if rank not in self._candidates]
        self._advance()

    def pause(self) -> None:
        """Make no more for now: the ranks are being started."""
        self._due = []

    def take(self, local_rank: int, environ: Mapping[str, str]) -> Taken | None:
        """Make the one of this local rank a rank; None without one."""
        candidate = self._candidates.pop(local_rank, None)
        return candidate.become(environ) if candidate else None

    def close(self) -> None:
        """End them all."""
        self._due = []
        for candidate in self._candidates.values():
            candidate.end()
        self._candidates.clear()

    def ready(self) -> int:
        """Return how many could become ranks at once."""
        return sum(one.ready for one in self._candidates.values())

    def memory_bytes(self) -> int:
        """Return what they take together."""
        return sum(one.memory_bytes() for one in self._candidates.values())

    def _advance(self) -> None:
        """Warm up the next one: one at a time, for the ranks need the processors."""
        if self._command is None or any(not one.ready for one in self._candidates.values()):
            return
        if not self._due:
            self._tell()
            return
        rank = self._due.pop(0)
        warm_up = WarmUp(
            self._command, self._modules(self._command), rank if self._options.device else -1
        )
        try:
            candidate = Candidate(self._selector, warm_up, self._environs[rank], self._changed)
        except OSError as error:
            self._give_up(f"cannot be started: {error}")
            return
        self._candidates[rank] = candidate

    def _modules(self, command: PythonCommand) -> tuple[str, ...]:
        path = command.path(self._folder)
        if self._options.modules or path is None:
            return self._options.modules
        folder = path.parent if command.script else self._folder
        return tuple(imports_of(path, folder))

    def _changed(self, candidate: Candidate) -> None:
        if candidate.ended:
            self._give_up(f"ended while it waited: {candidate.remark}")
        elif (size := candidate.memory_bytes()) > self._options.memory_bytes:
            limit = self._options.memory_bytes / _GIB
            self._give_up(f"takes {size / _GIB:.1f} GiB, more than --standby-memory {limit:.1f}GiB")
        else:
            self._advance()

    def _give_up(self, why: str) -> None:
        self._hopeless = why
        self.close()
        self._terminal.say(f"no warm standbys: one {why}; restarts are slower")

    def _tell(self) -> None:
        count, size = len(self._candidates), self.memory_bytes()
        remarks = sorted({one.remark for one in self._candidates.values() if one.remark})
        missing = f"; not imported: {', '.join(remarks)}" if remarks else ""
        told = f"{count} warm standbys are ready{missing}"
        if count and told != self._told:
            self._told = told
            self._terminal.say(f"{told} ({size / 1024**2:.0f} MiB together)")
