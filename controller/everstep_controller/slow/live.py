"""Live slowness: who makes the others of a running job wait, by what its nodes tell every 5 s.

Ranks tell how long they worked themselves in all their steps so far. What is judged as one step
is what came since the time before: the mean of some steps, where steps are shorter than 5 s.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from everstep_common.compute_time import MICROSECONDS, STEP_BITS, STEPS
from everstep_common.printable import printable
from everstep_common.reports import RankColumns
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.slow.analysis import SlowAnalysis
from everstep_controller.slow.peers import Floats, Indices, Mask, Roster, row_medians
from everstep_controller.slow.verdict import Advice, SlowVerdict
from everstep_controller.slow.watch import StepJudgement

# A row is judged when so many of those that tell have completed a step since the one before.
_SHARE_MOVED = 0.8
# Longer steps are not compared: an hour.
_LONGEST_S = 3600.0
# A worker that explains less of the loss does not hold the job back; as in `explanation`.
_SHARE_TO_SWAP = 0.5
# What was not found slow in so many rows is not; before, what was judged earlier holds.
SURE_ROWS = 20
_PARTS_MAX = 64
# What is usual of a rank follows its newest steps by so much.
_USUAL_FOLLOWS = 0.2
# Eleven hours of rows.
_TIMES_MAX = 8192


@dataclass(frozen=True, slots=True)
class LivePlaces:
    """Where the ranks of a generation run: the node of each, and the domain of each node."""

    nodes: tuple[str, ...]
    domains: tuple[str, ...]
    ranks_per_node: int

    @classmethod
    def of(cls, job: JobRecord, nodes: Mapping[str, NodeRecord]) -> "LivePlaces":
        """Return where the ranks of a job's generation run."""
        members = tuple(job.generation.members)
        domains = tuple(nodes[name].spec.domain if name in nodes else "" for name in members)
        return cls(members, domains, job.spec.processes_per_node)

    @property
    def ranks(self) -> int:
        """Return how many ranks there are."""
        return len(self.nodes) * self.ranks_per_node


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """What is known of the ranks of a generation at one moment."""

    parts: tuple[SlowPart, ...] = ()
    # None: nothing could be judged yet.
    verdict: SlowVerdict | None = None
    ranks: int = 0
    # How many of them tell how long they work themselves.
    telling: int = 0
    rows: int = 0
    # The nodes whose ranks worked longest and shortest in the newest steps, with their seconds.
    slowest: tuple[str, float] | None = None
    fastest: tuple[str, float] | None = None

    @property
    def is_sure(self) -> bool:
        """Whether who is not found slow is not."""
        return self.rows >= SURE_ROWS


class _StepTimes:
    """When the steps of the newest rows were made, as far as a row tells."""

    def __init__(self) -> None:
        # When the first row of all was made.
        self.first_ns = 0
        self._rows: list[tuple[int, int]] = []

    def add(self, step: int, now_ns: int) -> None:
        """Take the newest step, and when it was made."""
        self.first_ns = self.first_ns or now_ns
        if len(self._rows) >= _TIMES_MAX:
            del self._rows[: _TIMES_MAX // 2]
        self._rows.append((step, now_ns))

    def of_step(self, step: int) -> int:
        """Return when a step was made; of one longer ago, when the oldest was that is known."""
        place = bisect_left(self._rows, step, key=lambda row: row[0])
        return self._rows[min(place, len(self._rows) - 1)][1] if self._rows else 0


class LiveSlowness:
    """Follows the ranks of one generation. Its state is bounded, as that of SlowAnalysis."""

    def __init__(self, places: LivePlaces) -> None:
        self._places = places
        self._before: Indices = np.zeros(places.ranks, dtype=np.int64)
        self._roles: tuple[tuple[tuple[str, ...], bytes], ...] = ()
        self._roster: Roster | None = None
        self._analysis: SlowAnalysis | None = None
        # The role of each rank as its process groups show it; the script's own word counts first.
        self._learned: Sequence[str] | None = None
        self._rows = 0
        self._times = _StepTimes()
        # Of each rank, its own work in a step as it was lately.
        self._usual_s = np.full(places.ranks, np.nan)
        # By kind and name of a place: what the job lost while it was slow, and what of it to it.
        self._lost: dict[tuple[str, str], list[float]] = {}
        # What was worth a swap stays so while it is slow.
        self._worth: set[tuple[str, str]] = set()

    def learn_roles(self, roles: Sequence[str]) -> None:
        """Compare only ranks of one role from now on, unless their script tells roles itself."""
        if self._learned is None and len(roles) == self._places.ranks:
            self._learned = roles
            told = self._roster is not None and any(self._roster.role_names)
            if len(set(roles)) > 1 and not told:
                self._analysis = None  # what was seen so far compared different work

    def judge_told(
        self, told: Mapping[int, RankColumns], step: int, now_ns: int = 0
    ) -> LiveFinding:
        """Take the newest word of nodes, by their place in the generation; judge what is new.

        ``step`` is the newest that the job has completed.
        """
        now = self._numbers(told)
        roles = tuple(_roles_of(told.get(place)) for place in range(len(self._places.nodes)))
        if self._analysis is None or roles != self._roles:
            self._begin(roles)
        seconds = self._seconds(now)
        if seconds is not None and self._analysis is not None:
            self._rows += 1
            self._times.add(step, now_ns)
            self._follow(seconds)
            self._weigh_places(seconds, self._analysis.observe(step, seconds))
        return self._finding(int(np.count_nonzero(now)))

    def _numbers(self, told: Mapping[int, RankColumns]) -> Indices:
        """Return what each rank tells of its own work; 0 for those that tell nothing."""
        numbers, each = np.zeros(self._places.ranks, dtype=np.int64), self._places.ranks_per_node
        for place, columns in told.items():
            first = place * each
            if columns.first_rank == first and len(columns.own) >= 8:
                count = min(each, len(columns.own) // 8)
                values = np.frombuffer(columns.own, dtype="<i8", count=count)
                numbers[first : first + count] = np.maximum(values, 0)
        return numbers

    def _seconds(self, now: Indices) -> Floats | None:
        """Return how long each rank worked in a step since the row before; None: too few did."""
        known = (self._before > 0) & (now > 0)
        steps = np.where(known, (now - self._before) % STEPS, 0)
        # A count that goes back is of another process, or made up: it is compared from then on,
        # as that of who tells for the first time.
        back = steps > STEPS // 2
        moved: Mask = (steps > 0) & ~back
        first = back | (self._before == 0) & (now > 0)
        self._before = np.where(first, now, self._before)
        count = int(np.count_nonzero(moved))
        if count < 2 or count < _SHARE_MOVED * np.count_nonzero(now):
            return None
        microseconds = ((now >> STEP_BITS) - (self._before >> STEP_BITS)) % MICROSECONDS
        seconds = microseconds / 1e6 / np.maximum(steps, 1)
        self._before = np.where(moved, now, self._before)
        usable = moved & (seconds > 0) & (seconds < _LONGEST_S)
        return np.where(usable, seconds, np.nan) if np.count_nonzero(usable) > 1 else None

    def _begin(self, roles: tuple[tuple[tuple[str, ...], bytes], ...]) -> None:
        """Begin anew, with the roles that were told."""
        self._roles, self._rows = roles, 0
        self._lost.clear()
        self._worth.clear()
        each = self._places.ranks_per_node
        told = [_role(roles[rank // each], rank % each) for rank in range(self._places.ranks)]
        learned = self._learned if self._learned is not None and not any(told) else told
        self._roster = roster_of(self._places, learned)
        self._analysis = SlowAnalysis(self._roster)

    def _follow(self, seconds: Floats) -> None:
        usual = np.where(np.isnan(self._usual_s), seconds, self._usual_s)
        change = np.where(np.isnan(seconds), 0.0, seconds - usual)
        self._usual_s = usual + _USUAL_FOLLOWS * change

    def _node_seconds(self) -> Floats:
        """Return how long the ranks of each node work in a step, by their median; NaN: unknown."""
        return row_medians(self._usual_s.reshape(len(self._places.nodes), -1))

    def _weigh_places(self, seconds: Floats, judged: StepJudgement) -> None:
        """Sum up what the job would gain if slow places were as fast as others."""
        if not judged.places.found:
            return
        assert self._roster is not None
        ideal = np.nanmax(self._roster.by_role.medians(seconds).of_group)
        loss = float(np.nanmax(seconds) - ideal)
        names = self._roster.place_names
        for one in judged.places.found:
            without = seconds.copy()
            without[one.members] = judged.expected_s[one.members]
            gain = float(np.nanmax(seconds) - np.nanmax(without))
            sums = self._lost.setdefault((one.kind, names[one.kind][one.place]), [0.0, 0.0])
            sums[0] += max(loss, 0.0)
            sums[1] += max(gain, 0.0)

    # --- what was found --------------------------------------------------------------------------

    def _finding(self, telling: int) -> LiveFinding:
        verdict = self._analysis.verdict() if self._analysis is not None and self._rows else None
        parts = self._parts(verdict) if verdict is not None else ()
        finding = LiveFinding(parts, verdict, self._places.ranks, telling, self._rows)
        by_node = self._node_seconds()
        if np.count_nonzero(~np.isnan(by_node)) < 2:
            return finding
        most, least = int(np.nanargmax(by_node)), int(np.nanargmin(by_node))
        names = self._places.nodes
        return replace(
            finding,
            slowest=(names[most], float(by_node[most])),
            fastest=(names[least], float(by_node[least])),
        )

    def _parts(self, verdict: SlowVerdict) -> tuple[SlowPart, ...]:
        found = [*_slow_places(verdict, self._lost), *_slow_ranks(verdict, self._places)]
        keys = {(one.kind, one.name) for one in found}
        self._worth = {key for key in self._worth if key in keys}
        self._worth |= {(one.kind, one.name) for one in found if one.worth_swap}
        return tuple(
            replace(
                one,
                worth_swap=(one.kind, one.name) in self._worth,
                began_ns=self._times.of_step(one.since_step),
                compared_ns=self._times.first_ns,
            )
            for one in found[:_PARTS_MAX]
        )


def news_of(known: Sequence[SlowPart], finding: LiveFinding) -> tuple[SlowPart, ...] | None:
    """Return who is slow, where that is another than was known; None where it is not.

    What was known is not taken back before enough was seen: the watch may just have begun.
    """
    found = {(one.kind, one.name): one for one in finding.parts}
    if not finding.is_sure:
        found = {**{(one.kind, one.name): one for one in known}, **found}
    news = tuple(found.values())[:_PARTS_MAX]
    return news if {one.key for one in news} != {one.key for one in known} else None


def _slow_ranks(verdict: SlowVerdict, places: LivePlaces) -> list[SlowPart]:
    found = []
    for one in verdict.slow:
        if one.until_step is None:
            rank = int(one.worker.partition(" ")[0])
            found.append(
                SlowPart(
                    kind="rank",
                    name=str(rank),
                    node=places.nodes[rank // places.ranks_per_node],
                    factor=one.factor,
                    since_step=one.since_step,
                    share=one.share,
                    worth_swap=one.advice is Advice.SWAP,
                    sentence=one.sentence,
                )
            )
    return found


def _slow_places(
    verdict: SlowVerdict, sums: Mapping[tuple[str, str], Sequence[float]]
) -> list[SlowPart]:
    found = []
    for one in verdict.places:
        if one.until_step is None:
            lost, own = sums.get((one.kind, one.name), (0.0, 0.0))
            share = min(own / lost, 1.0) if lost > 0 else 0.0
            found.append(
                SlowPart(
                    kind=one.kind,
                    name=one.name,
                    node=one.name if one.kind == "node" else "",
                    factor=one.factor,
                    since_step=one.since_step,
                    share=share,
                    worth_swap=share >= _SHARE_TO_SWAP,
                    sentence=one.sentence,
                )
            )
    return found


# --- ranks, their roles and places ---------------------------------------------------------------


def _roles_of(columns: RankColumns | None) -> tuple[tuple[str, ...], bytes]:
    return (columns.roles, columns.rank_roles) if columns is not None else ((), b"")


def _place_names(places: LivePlaces) -> dict[str, list[str]]:
    domains = sorted({one for one in places.domains if one})
    return {"node": list(places.nodes), "domain": domains}


def roster_of(places: LivePlaces, roles: Sequence[str]) -> Roster:
    """Return the ranks of a generation, with the role of each."""
    each, names = places.ranks_per_node, _place_names(places)
    different = sorted(set(roles))
    numbers = {role: number for number, role in enumerate(different)}
    domains = {name: number for number, name in enumerate(names["domain"])}
    of_node = np.repeat(np.arange(len(places.nodes), dtype=np.int64), each)
    of_domain = np.array([domains.get(one, -1) for one in places.domains], dtype=np.int64)
    return Roster(
        names=[f"{rank} ({places.nodes[rank // each]})" for rank in range(places.ranks)],
        roles=np.array([numbers[role] for role in roles], dtype=np.int64),
        role_names=[printable(role) for role in different],
        places={"node": of_node, "domain": np.repeat(of_domain, each)},
        place_names=names,
    )


def _role(told: tuple[tuple[str, ...], bytes], place: int) -> str:
    names, numbers = told
    number = numbers[place] if place < len(numbers) else len(names)
    return names[number] if number < len(names) else ""
