"""Standby pool of this node: one for each of its ranks, made one after another."""

import selectors
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep.launch.output.terminal import Terminal
from everstep.launch.standby.candidate import Candidate, Taken, WarmUp
from everstep.launch.standby.known_imports import KnownImports
from everstep.launch.standby.python_command import python_command
from everstep.launch.standby.schedules import MemorySchedule, is_news
from everstep_common.preload import Preload
from everstep_common.reports import Standbys

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class StandbyOptions:
    """Options on warm standbys, as the user gave them."""

    enabled: bool = True
    # Imported by each; empty: what ranks have been seen to import, or the script's first lines.
    modules: tuple[str, ...] = ()
    # The most that one may take.
    memory_bytes: int = 4 * _GIB
    # Whether it opens the rank's device, which takes memory there.
    device: bool = False


@dataclass(frozen=True, slots=True)
class WaitingPlan:
    """Command and variables of the rank that a standby will become, as far as known beforehand."""

    command: Sequence[str]
    environ: Mapping[str, str]


class StandbyPool:
    """Standbys of a node: one per local rank, made while nothing else needs the processors."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        terminal: Terminal,
        options: StandbyOptions,
        folder: Path,
        report: Callable[[Standbys | Preload], None],
    ) -> None:
        """``report`` hears which there are, and what ranks load, whenever that changes."""
        self._known = KnownImports(options.modules, folder)
        self._selector = selector
        self._terminal = terminal
        self._options = options
        self._candidates: dict[int, Candidate] = {}
        self._plans: dict[int, WaitingPlan] = {}
        self._due: list[int] = []
        self._told = ""
        self._report = report
        self._reported = Standbys()
        self._preload: Preload | None = None
        self._watch = MemorySchedule()
        self._why_none = ""
        # Whether there may be any; it ends when one fails, for the others would as well.
        self.usable = options.enabled

    def pids(self) -> set[int]:
        """Return the processes that wait here."""
        return {one.process.pid for one in self._candidates.values()}

    def fill(self, plans: Mapping[int, WaitingPlan]) -> None:
        """Have one for each of these local ranks."""
        if self.usable:
            self._report_preload(self._known.for_others(plans))
            self._plans = dict(plans)
            self._due = [rank for rank in plans if rank not in self._candidates]
            self._advance()
            self._report_news()

    def recording(self, local_rank: int) -> int:
        """Return the descriptor by which a rank tells what it has loaded. Raises OSError."""
        return self._known.files.descriptor(local_rank)

    def renew(self) -> None:
        """Use none that was made so far."""
        self._drop()
        self._report_news()

    def receive_preload(self, preload: Preload) -> None:
        """Make them import what ranks on other nodes have loaded."""
        if self._known.receive(preload) and self._plans:
            self._drop()
            self.fill(self._plans)

    def pause(self) -> None:
        """Make no more for now: the ranks need the processors."""
        self._due, self._plans = [], {}
        self._report_news()

    def start_rank(self, local_rank: int, environ: Mapping[str, str]) -> Taken | None:
        """Make the one of this local rank a rank; None without one."""
        self._told = ""
        self._known.files.begins(local_rank, environ)
        candidate = self._candidates.pop(local_rank, None)
        taken = candidate.become(environ) if candidate else None
        self._report_news()
        return taken

    def due_in_s(self, now_s: float) -> float | None:
        """Return after how long `look` has to be called at the latest, if at all."""
        return self._watch.due_in_s(now_s)

    def check_memory(self, now_s: float) -> None:
        """Look at their memory, if it is time; one that takes too much ends them."""
        making = any(not one.ready for one in self._candidates.values())
        if self._watch.claim_due(now_s, making=making):
            if not self._candidates:
                self._watch.end()
            elif all(map(self._fits, tuple(self._candidates.values()))):
                self._report_news()

    def report_again(self) -> None:
        """Report to an agent that may have missed it."""
        self._report(self._reported)
        if self._preload is not None:
            self._report(self._preload)

    def close(self) -> None:
        """End them all."""
        self._drop()
        self._known.files.close()

    def memory_bytes(self) -> int:
        """Return what they took together when they were measured: no rank waits for that."""
        return sum(one.memory_bytes for one in self._candidates.values())

    def _drop(self) -> None:
        self._due = []
        for candidate in self._candidates.values():
            candidate.end()
        self._candidates.clear()

    def _report_preload(self, preload: Preload | None) -> None:
        if preload is not None and preload != self._preload:
            self._preload = preload
            self._report(preload)

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
        recorded, must = self._known.of(rank, command)
        try:
            warm_up = WarmUp(
                command=command,
                modules=recorded.modules,
                quiet=not must,
                device=int(plan.environ["LOCAL_RANK"]) if self._options.device else -1,
                descriptor=self.recording(rank),
            )
            environ = {**plan.environ, **recorded.environ}
            candidate = Candidate(self._selector, warm_up, environ, self._changed)
        except OSError as error:
            self._give_up(f"cannot be started: {error}")
            return
        self._candidates[rank] = candidate
        self._watch.begin()

    def _changed(self, candidate: Candidate) -> None:
        if candidate.ended:
            self._give_up(f"ended while it waited: {candidate.remark}")
        elif self._fits(candidate):
            self._advance()
            self._report_news()

    def _fits(self, candidate: Candidate) -> bool:
        size = candidate.measure()
        if size <= self._options.memory_bytes:
            return True
        limit = _shown(self._options.memory_bytes).replace(" ", "")
        self._give_up(f"takes {_shown(size)}, more than --standby-memory {limit}")
        return False

    def _give_up(self, why: str) -> None:
        self.usable = False
        self._drop()
        self._why_none = f"one {why}"
        self._terminal.say(f"no warm standbys: one {why}; restarts take longer")
        self._report_news()

    def _report_news(self) -> None:
        ready = sum(one.ready for one in self._candidates.values())
        making = len(self._candidates) - ready + len(self._due)
        now = Standbys(ready, making, self.memory_bytes(), self._why_none)
        if is_news(self._reported, now):
            self._reported = now
            self._report(now)

    def _tell(self) -> None:
        count = len(self._candidates)
        remarks = sorted({one.remark for one in self._candidates.values() if one.remark})
        missing = f"; not imported: {', '.join(remarks)}" if remarks else ""
        standbys = "1 warm standby is" if count == 1 else f"{count} warm standbys are"
        known = ", with what ranks of other nodes import" if self._known.is_of_other_nodes else ""
        told = f"{standbys} ready{known}{missing}"
        if count and told != self._told:
            self._told = told
            take = "it takes" if count == 1 else "they take"
            size = _shown(self.memory_bytes())
            self._terminal.say(f"{told}; {take} {size} (--standby none: no standbys)")


def _shown(size: int) -> str:
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / 1024**2:.0f} MiB"
