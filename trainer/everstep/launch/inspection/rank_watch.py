"""Rank watch of a launcher: reads once a second how far its ranks are, and tells the agent.

The agent is told at once when their collectives stand still or move again, when a pause begins or
ends, and every five seconds in which phases the ranks are.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from everstep.launch.inspection.frontier_judge import FrontierJudge, NoProgressVerdict
from everstep.launch.inspection.rank_pages import THE_END, RankFacts, RankPages
from everstep.launch.inspection.sources.gil_wait import UNHEARD_NS, GilWaits
from everstep_common.clock import boot_ns
from everstep_common.launcher_messages import RanksWatched

_INTERVAL_NS = 10**9
_TOLD_EVERY_NS = 5 * 10**9
_PHASES_MAX = 64


class RankWatch:
    """Watch of one launcher's ranks, generation after generation."""

    def __init__(
        self,
        tell: Callable[[object], None],
        running: Callable[[], Mapping[int, int]],
        now_ns: Callable[[], int] = boot_ns,
        proc: Path = Path("/proc"),
    ) -> None:
        """``running`` returns the ranks that have not ended, and their processes."""
        self._tell = tell
        self._running = running
        self._now_ns = now_ns
        self._pages: RankPages | None = None
        self._gil = GilWaits(proc)
        self._judge = FrontierJudge()
        self._generation = self._world_size = 0
        self._due_ns = self._told_ns = self._ranks = 0
        self._told: NoProgressVerdict | None = None

    def begin(self, generation: int, ranks: Sequence[int], world_size: int) -> None:
        """Another generation starts; without memory for its pages, steps alone tell.

        What the one before has learned is of use where the job has the same size.
        """
        self.end()
        self._gil.forget()
        learned_ns = self._judge.learned_ns if world_size == self._world_size else 0
        self._judge, self._world_size = FrontierJudge(learned_ns), world_size
        self._generation, self._told, self._ranks = generation, None, len(ranks)
        self._due_ns = self._now_ns() + _INTERVAL_NS
        try:
            self._pages = RankPages(ranks)
        except OSError:
            self._pages = None

    def environment(self, rank: int) -> dict[str, str]:
        """Return what a rank gets besides its other variables."""
        return self._pages.environment(rank) if self._pages else {}

    def facts(self, rank: int) -> RankFacts:
        """Return what a rank tells of itself at this moment."""
        if self._pages is None:
            return RankFacts()
        now_ns = self._now_ns()
        facts = self._pages.read(rank, now_ns)
        waits = self._gil.seen(rank, facts.watched_at_ns, now_ns)
        unheard_ns = now_ns - facts.watched_at_ns if facts.watched_at_ns else 0
        return replace(
            facts,
            waits_for_gil=waits,
            unheard_ns=unheard_ns if unheard_ns > UNHEARD_NS else 0,
            page=self._pages.place(rank),
        )

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called, if at all."""
        if self._pages is None:
            return None
        return max(0.0, (self._due_ns - self._now_ns()) / 1e9)

    def advance(self, printed: Mapping[int, int]) -> None:
        """Read what is due; ``printed`` is the newest step that the output of each rank told."""
        now_ns = self._now_ns()
        if self._pages is None or now_ns < self._due_ns:
            return
        self._due_ns = now_ns + _INTERVAL_NS
        running = self._running()
        facts = {rank: self._pages.read(rank, now_ns) for rank in sorted(running)}
        if not facts:
            return
        for rank, one in facts.items():
            # Of a rank behind a shell script its own process watches, not the one that was started.
            thread = (one.watch_process or running[rank], one.watch_thread)
            self._gil.observe(rank, thread, one.watched_at_ns, now_ns)
        told = (one.step for one in facts.values() if one.step is not None)
        verdict = self._judge.judge(
            facts, max(told, default=max(printed.values(), default=-1)), now_ns
        )
        if len(running) < self._ranks or _end(facts.values()):
            # One has ended well, or the others are about to be stopped: no collective follows.
            verdict = NoProgressVerdict(pause=THE_END)
        if verdict.due_ns:
            self._due_ns = min(self._due_ns, verdict.due_ns + 1)
        if _differ(verdict, self._told) or now_ns - self._told_ns >= _TOLD_EVERY_NS:
            self._told, self._told_ns = verdict, now_ns
            told_now = watched(self._generation, verdict, facts, now_ns)
            # Of ranks that tell their steps themselves, the output is not read.
            read = bool(printed) and all(one.step is None for one in facts.values())
            steps = tuple(printed.get(rank, -1) + 1 for rank in facts) if read else ()
            self._tell(replace(told_now, printed=steps))

    def tell_again(self) -> None:
        """The agent may have missed what it was told."""
        self._told = None

    def end(self) -> None:
        """No rank is left."""
        if self._pages is not None:
            self._pages.close()
            self._pages = None


def _end(facts: Collection[RankFacts]) -> bool:
    """Return whether ranks end: one's script is over, or all have left their process groups."""
    return any(one.is_over for one in facts) or all(one.is_leaving for one in facts)


def _differ(one: NoProgressVerdict, other: NoProgressVerdict | None) -> bool:
    if other is None:
        return True
    return _shown(one) != _shown(other)


def _shown(one: NoProgressVerdict) -> tuple[bool, bool, str, str]:
    return (one.still, one.still and one.young, one.pause, one.blind)


def watched(
    generation: int, verdict: NoProgressVerdict, facts: Mapping[int, RankFacts], now_ns: int
) -> RanksWatched:
    """Return what the agent is told. Pure."""
    phases, rank_phases = _numbered([one.shown for one in facts.values()])
    roles, rank_roles = _numbered([one.role for one in facts.values()])
    own = tuple(one.own for one in facts.values())
    return RanksWatched(
        generation=generation,
        at_boot_ns=now_ns,
        still_since_ns=verdict.since_ns,
        usual_ns=verdict.usual_ns,
        pause=verdict.pause[:40],
        blind=verdict.blind,
        young=verdict.still and verdict.young,
        phases=phases,
        ranks=tuple(facts),
        rank_phases=rank_phases,
        own=own if any(own) else (),
        roles=roles,
        rank_roles=rank_roles if any(roles) else (),
    )


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the different names, and for each one its place among them."""
    different = tuple(sorted(set(names)))[:_PHASES_MAX]
    numbers = {name: number for number, name in enumerate(different)}
    return different, tuple(numbers.get(name, 0) for name in names)
