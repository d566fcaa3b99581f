"""Rank recipe: the command and environment of a rank, from user options and the agent's order."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep.launch.command_line.options import LaunchOptions
from everstep.launch.command_line.rank_streams import ERROR, OUT, StreamPlan
from everstep.launch.memcpy_tuning import memcpy_variables
from everstep.launch.output.line_writer import LineDestination, LineWriter
from everstep.launch.output.progress_patterns import EpochCount, StepFinder
from everstep.launch.output.terminal import Terminal
from everstep.launch.rank_environment import (
    JobAccess,
    alone_with_device,
    lasting_environment,
    line_prefix,
    rank_command,
    rank_environment,
)
from everstep.launch.standby.pool import WaitingPlan
from everstep.launch.workers import WorkerPlan
from everstep.rank.import_recorder import VARIABLE
from everstep_common.launcher_messages import Start

_ENDINGS = {OUT: "out", ERROR: "err"}


@dataclass(frozen=True, slots=True)
class RankRecipe:
    """Parts of a start that are the same for all ranks of all generations on this node."""

    command: tuple[str, ...]
    environ: Mapping[str, str]
    access: JobAccess
    streams: StreamPlan
    patterns: tuple[re.Pattern[str], ...]
    virtual_local_rank: bool = False
    # Of each rank that has run here.
    epochs: dict[int, EpochCount] = field(default_factory=dict)

    @classmethod
    def of(cls, options: LaunchOptions, token: str, environ: Mapping[str, str]) -> "RankRecipe":
        """Return what the user's options make of it."""
        wanted = options.nodes_max * options.processes_per_node
        access = JobAccess(
            options.job,
            options.socket,
            token,
            options.restarts_max,
            wanted,
            options.role,
            options.keep.persist_folder,
            options.agent_log,
        )
        environ = {**environ, **memcpy_variables(environ)}
        return cls(
            options.command,
            environ,
            access,
            options.streams,
            options.progress,
            options.virtual_local_rank,
        )

    def plan(
        self,
        start: Start,
        local_rank: int,
        terminal: Terminal,
        seen: Callable[[int, int], None],
        keep: Callable[[int, bytes], None],
    ) -> WorkerPlan:
        """Return how to start one rank.

        ``seen`` is told the steps that its output tells, and ``keep`` each line of it.
        """
        rank = start.first_rank + local_rank
        finder = StepFinder(self.patterns, self.epochs.setdefault(rank, EpochCount()))

        def look(line: bytes) -> None:
            keep(rank, line)
            if (step := finder.find(line)) is not None:
                seen(rank, step)

        named = line_prefix(self.environ, self.access.role, rank, local_rank)
        prefix = named.encode(errors="surrogateescape")
        out, error = (
            LineWriter(
                terminal,
                LineDestination(
                    prefix,
                    is_error=stream == ERROR,
                    shown=self.streams.to_terminal(local_rank, stream),
                    log=self._log(start, local_rank, stream),
                ),
                look,
            )
            for stream in (OUT, ERROR)
        )
        environ = rank_environment(self.environ, self.access, start, local_rank)
        environ |= self._place(local_rank)
        return WorkerPlan(rank, rank_command(self.command, local_rank), environ, out, error)

    def waiting(self, local_rank: int, processes: int) -> WaitingPlan:
        """Return how to start a standby of one rank."""
        environ = lasting_environment(self.environ, local_rank, processes)
        environ |= self._place(local_rank)
        return WaitingPlan(rank_command(self.command, local_rank), environ)

    def _place(self, local_rank: int) -> dict[str, str]:
        return alone_with_device(self.environ, local_rank) if self.virtual_local_rank else {}

    def _log(self, start: Start, local_rank: int, stream: int) -> Path | None:
        folder = self.streams.folder
        if folder is None or not self.streams.to_file(local_rank, stream):
            return None
        rank = start.first_rank + local_rank
        return folder / f"gen-{start.generation}" / f"rank-{rank}.{_ENDINGS[stream]}"


def recording_imports(plan: WorkerPlan, descriptor: int) -> WorkerPlan:
    """Return the plan of a rank that tells by a descriptor what it has loaded."""
    environ = {**plan.environ, VARIABLE: str(descriptor)}
    return replace(plan, environ=environ, descriptors=(descriptor,))
