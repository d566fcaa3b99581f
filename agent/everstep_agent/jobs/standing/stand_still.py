"""Standing still: whether the ranks of a job on this node do nothing for longer than usual. Pure.

Their collectives decide, as the launcher reads them; where those tell nothing, the gaps between
steps. Nothing is judged before enough was learned, nor while a rank does what is no step.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from everstep_common.launcher_messages import RanksWatched
from everstep_common.reports import RanksGoOn, RanksStandStill
from everstep_common.reports.rank_columns import RankRow

LEAST_NS = 3 * 10**9
_MS = 10**6
# So many of them are kept: 4 KB a rank.
GAPS_MAX = 512
# The first steps of a generation load, compile and fill caches.
FIRST_STEPS = 3
# Steps alone: half as long again as 99 of 100 gaps that were no stands. Who looks at ranks that
# stand still knows how long that is usual where they stand; but a stand that comes again within so
# many gaps is the rhythm of these steps.
_TIMES = 1.5
_STANDS_OF_RHYTHM, _STANDS_WITHIN = 3, 64
_SHARE = 0.99
_GAPS_LEAST = 16
# Of fewer gaps so many times the longest one, and what follows also at least: a few steps may have
# been short by chance, and what looks at the ranks then restarts only what cannot go on.
_TIMES_EARLY = 10
# Where neither steps nor collectives have been seen for so long, none will be: this node's word is
# that it has seen no move, and counts where the controller knows some steps of the job.
_UNSEEING_NS = 10 * 10**9
# A launcher tells every 5 s how its ranks stand.
_SILENT_NS = 15 * 10**9
# Nobody has looked for so long: the node was suspended, or the agent stopped.
_UNSEEN_NS = 5 * 10**9
# So many stands are told as soon as they are seen, and further ones once in so long: a launcher
# may say one thing and the other in turn.
_TELLINGS = 16
_TELLING_NS = 60 * 10**9
_OLD_LAUNCHER = "the launcher tells nothing of the ranks' collectives"
_SILENT_LAUNCHER = "the launcher has told nothing of the ranks' collectives for 15 s"


@dataclass(frozen=True, slots=True)
class Stand:
    """A time in which nothing happens, and from when on that is unusual."""

    since_ns: int
    usual_ns: int
    blind: str
    # So few moves were seen that it is for others to say whether steps are made.
    young: bool = False


class StepGaps:
    """Steps of one rank in one generation; times are nanoseconds of the boot clock."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.at_ns = 0
        self._gaps: deque[int] = deque(maxlen=GAPS_MAX)
        self._steps = 0
        self._sorted: list[int] | None = None
        # Whether something else than steps was done in the gap that goes on; and the newest gaps
        # that were stands, by their number.
        self._spoiled = False
        self._stands: deque[int] = deque(maxlen=_STANDS_OF_RHYTHM)

    @property
    def count(self) -> int:
        """How many gaps are known."""
        return len(self._gaps)

    def add(self, step: int, at_ns: int, *, stood: bool = False) -> None:
        """Take a step; ``stood``: it ends a stand that was told."""
        if self.step is not None and step <= self.step:
            return
        gap_ns = max(0, at_ns - self.at_ns)
        taught = self._steps >= FIRST_STEPS and not self._spoiled
        self.step, self.at_ns = step, max(at_ns, self.at_ns)
        self._steps += 1
        self._spoiled = False
        if taught and not (stood and self._is_rare()):
            self._gaps.append(gap_ns)
            self._sorted = None

    def _is_rare(self) -> bool:
        """Note a stand; return whether the last ones are long ago."""
        self._stands.append(self._steps)
        few = len(self._stands) < _STANDS_OF_RHYTHM
        return few or self._steps - self._stands[0] >= _STANDS_WITHIN

    def spoil(self) -> None:
        """Learn nothing from the gap that goes on."""
        self._spoiled = True

    def quantile_ns(self, share: float) -> int:
        """Return the gap that this share of them does not exceed; 0 where none is known."""
        if not self._gaps:
            return 0
        if self._sorted is None:
            self._sorted = sorted(self._gaps)
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]


class StandStill:
    """Judge of one job's ranks on this node, generation after generation."""

    def __init__(self) -> None:
        self.begin(0, ())

    def begin(self, generation: int, ranks: Sequence[int], *, unsure: bool = False) -> None:
        """Another generation begins; ``unsure``: what was told of it before is not known."""
        self.generation = generation
        self._gaps = {rank: StepGaps() for rank in ranks}
        self._watched: RanksWatched | None = None
        self._heard_ns = self._judged_ns = self._begun_ns = 0
        self._pauses: dict[int, str] = {}
        # The newest step that each rank has printed, and when that was heard of first.
        self._printed: dict[int, tuple[int, int]] = {}
        # Since when, as reported; None: nothing was reported.
        self._told_ns: int | None = None
        self._told_young = False
        self._unsure = unsure
        self._moved_ns = self._from_ns = 0
        # Until when the stands that were told are paid for, each with its share of time.
        self._paid_ns = 0
        self._over = not ranks

    def end(self) -> None:
        """Its ranks end, by themselves or by an order: they do not stand still any more."""
        self._over = True

    def add_step(self, rank: int, step: int, at_ns: int) -> None:
        """A rank completed a step."""
        if (gaps := self._gaps.get(rank)) is None:
            return
        gaps.add(step, at_ns, stood=self._told_ns is not None)
        self._moved_ns = max(self._moved_ns, at_ns)

    def add_pause(self, rank: int, name: str) -> None:
        """A rank does what is no step; "": it goes on."""
        if rank in self._gaps:
            self._pauses[rank] = name
            self._spoil()

    def end_pause(self, rank: int) -> None:
        """The process of a rank is gone, and with it its pause."""
        if self._pauses.pop(rank, ""):
            self._spoil()

    def add_watched(self, watched: RanksWatched, now_ns: int) -> None:
        """The launcher told how its ranks stand."""
        if watched.generation == self.generation:
            self._watched, self._heard_ns = watched, now_ns
            if not watched.printed:  # its ranks have begun to tell their steps themselves
                self._printed.clear()
            for rank, printed in zip(watched.ranks, watched.printed, strict=False):
                if printed and self._printed.get(rank, (-1, 0))[0] != printed - 1:
                    self._printed[rank] = (printed - 1, now_ns)

    def judge(self, now_ns: int) -> RanksStandStill | RanksGoOn | None:
        """Return what is to be told to the controller at this moment; None: nothing."""
        if self._over:
            return None
        # A stand that was told lasts, though nobody looked, until something has moved.
        lasts = self._told_ns is not None and self._moved_ns <= self._told_ns
        if now_ns - self._judged_ns > _UNSEEN_NS and not lasts:
            self._from_ns = now_ns
        self._judged_ns = now_ns
        self._begun_ns = self._begun_ns or now_ns
        if self._pause():
            self._from_ns = now_ns
            self._spoil()
            return self._go_on(now_ns)
        stand = self._stand(now_ns)
        if stand is None:
            return self._go_on(now_ns) if self._moves() else None
        told = self._told_ns is not None and (stand.young or not self._told_young)
        if told or not self._may_tell(now_ns):
            return None
        return self._tell(stand, now_ns)

    def _may_tell(self, now_ns: int) -> bool:
        """Return whether another stand may be told, and count it."""
        paid_ns = max(self._paid_ns, now_ns - _TELLINGS * _TELLING_NS) + _TELLING_NS
        if paid_ns > now_ns:
            return False
        self._paid_ns = paid_ns
        return True

    def _tell(self, stand: Stand, now_ns: int) -> RanksStandStill:
        self._told_ns, self._unsure = stand.since_ns, False
        self._told_young = stand.young
        return RanksStandStill(
            generation=self.generation,
            step=self.completed_step(),
            since_boot_ns=stand.since_ns,
            usual_ns=stand.usual_ns,
            blind=stand.blind,
            looked_boot_ns=now_ns,
            young=stand.young,
        )

    def _go_on(self, now_ns: int) -> RanksGoOn | None:
        if self._told_ns is None and not self._unsure:
            return None
        self._told_ns, self._unsure = None, False
        self._from_ns = now_ns
        return RanksGoOn(self.generation, now_ns)

    def _moves(self) -> bool:
        """Return whether something has moved since it was told that nothing does."""
        watched, told_ns = self._watched, self._told_ns or 0
        collectives = watched is not None and not watched.blind and not watched.still_since_ns
        return self._moved_ns > told_ns or collectives

    def _stand(self, now_ns: int) -> Stand | None:
        watched, silent = self._watched, now_ns - self._heard_ns > _SILENT_NS
        if watched is None or silent or watched.blind:
            blind = _OLD_LAUNCHER if watched is None else _SILENT_LAUNCHER
            if watched is not None and not silent:
                return self._by_steps(watched.blind, now_ns) or self._unseeing(watched, now_ns)
            return self._by_steps(blind, now_ns)
        if not watched.still_since_ns:
            return None
        since_ns = max(min(watched.still_since_ns, now_ns), self._moved_ns, self._from_ns)
        usual_ns = max(LEAST_NS, watched.usual_ns)
        if now_ns - since_ns <= usual_ns:
            return None
        return Stand(since_ns, usual_ns, "", young=watched.young)

    def _by_steps(self, blind: str, now_ns: int) -> Stand | None:
        since_ns, fewest = max(self._moved_ns, self._from_ns), self._fewest_gaps()
        if not fewest or now_ns - since_ns <= LEAST_NS:
            return None
        young = fewest < _GAPS_LEAST
        gap_ns = max(one.quantile_ns(1.0 if young else _SHARE) for one in self._gaps.values())
        usual_ns = max(LEAST_NS, int(_TIMES * gap_ns))
        if young:
            usual_ns = max(_UNSEEING_NS, _TIMES_EARLY * gap_ns)
        return Stand(since_ns, usual_ns, blind, young) if now_ns - since_ns > usual_ns else None

    def _fewest_gaps(self) -> int:
        return min(one.count for one in self._gaps.values())

    def _unseeing(self, watched: RanksWatched, now_ns: int) -> Stand | None:
        """Return what a node says that can see no move of its ranks, and so never saw one."""
        since_ns = max(self._begun_ns, self._from_ns)
        steps = any(one.step is not None for one in self._gaps.values())
        if steps or now_ns - since_ns <= _UNSEEING_NS:
            return None
        return Stand(since_ns, LEAST_NS, watched.blind, young=True)

    def _pause(self) -> str:
        told = self._watched.pause if self._watched is not None else ""
        return told or next((name for name in self._pauses.values() if name), "")

    def _spoil(self) -> None:
        for gaps in self._gaps.values():
            gaps.spoil()

    def completed_step(self) -> int | None:
        """Return the newest step that all ranks completed; None where one has told of none."""
        steps = [one.step for one in self._gaps.values()]
        known = [step for step in steps if step is not None]
        return min(known) if known and len(known) == len(steps) else None

    def progress(self, now_ns: int) -> Iterator[RankRow]:
        """Yield how far each rank is."""
        if self._over:
            return
        phases, own, roles = _phases(self._watched), _own(self._watched), _roles(self._watched)
        for rank, gaps in self._gaps.items():
            since_ns = max(0, now_ns - gaps.at_ns) if gaps.step is not None else 0
            printed, printed_ns = self._printed.get(rank, (None, 0))
            yield RankRow(
                rank=rank,
                step=gaps.step,
                median_ms=gaps.quantile_ns(0.5) // _MS,
                p99_ms=gaps.quantile_ns(_SHARE) // _MS,
                since_ms=since_ns // _MS,
                phase=phases.get(rank, self._pauses.get(rank, "")),
                own=own.get(rank, 0),
                role=roles.get(rank, ""),
                printed=printed,
                printed_ms=max(0, now_ns - printed_ns) // _MS if printed is not None else 0,
            )


def _phases(watched: RanksWatched | None) -> dict[int, str]:
    """Return the phase of each rank, of what a launcher told."""
    if watched is None:
        return {}
    return _named(watched.ranks, watched.rank_phases, watched.phases)


def _own(watched: RanksWatched | None) -> dict[int, int]:
    return dict(zip(watched.ranks, watched.own, strict=False)) if watched is not None else {}


def _roles(watched: RanksWatched | None) -> dict[int, str]:
    return _named(watched.ranks, watched.rank_roles, watched.roles) if watched is not None else {}


def _named(ranks: Sequence[int], numbers: Sequence[int], names: Sequence[str]) -> dict[int, str]:
    pairs = zip(ranks, numbers, strict=False)
    return {rank: names[number] for rank, number in pairs if number < len(names)}
