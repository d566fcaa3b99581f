"""Collectives: who of a running job comes last again and again; its script says nothing.

It is made of one look at the newest collectives of all ranks. It nominates: what ranks tell of
their collectives isolates nobody, and `LiveSlowness` judges by more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from everstep_common.hangs.dumps.two_recorders import ON_CPUS
from everstep_common.hangs.reports.members import members_text
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_controller.slow.analysis import SlowAnalysis
from everstep_controller.slow.collective_arrival.arrivals import (
    NodeClock,
    NotJudged,
    Rounds,
    rounds_of,
)
from everstep_controller.slow.collective_arrival.collective_finding import (
    NAMED_MAX,
    CollectiveFinding,
    LateRank,
)
from everstep_controller.slow.collective_arrival.collective_lateness import CollectiveLateness
from everstep_controller.slow.live import SURE_ROWS, LivePlaces, roster_of
from everstep_controller.slow.peers import Floats, Mask
from everstep_controller.slow.roles import (
    ProcessGroup,
    RankRoles,
    RoleBasis,
    group_roles,
    reported_groups,
)
from everstep_controller.slow.verdict import ImbalanceKind, PauseKind, SlowVerdict, SlowWorker

_BLIND_MAX = 16
# A rank that waits elsewhere for half of its lateness was kept there.
_KEPT_SHARE = 0.5
# So much of a group comes late together that one of it may hold up the others.
_TOGETHER_SHARE = 0.5
# Groups cover as many ranks as the one that covers most.
_COVERED_SHARE = 0.9
_NOT_SURE = "its own work is not longer than its peers' by enough to be sure"
_PAUSES = (PauseKind.ONE_WORKER, PauseKind.TOGETHER)


@dataclass(frozen=True, slots=True)
class _Compared:
    """Groups side by side that have one name and no rank in common: a column for each rank."""

    groups: tuple[Rounds, ...]
    own_s: Floats
    waited_s: Floats
    length_s: Floats

    @property
    def covered(self) -> Mask:
        """Return which ranks are in one of the groups."""
        return np.asarray(~np.isnan(self.own_s).all(axis=0))

    @property
    def waited_share(self) -> float:
        """Return which part of the time the ranks wait."""
        return float(np.nanmean(self.waited_s)) / max(float(self.length_s.mean()), 1e-9)


def find_late(
    reports: Sequence[RankHangReport], places: LivePlaces, clocks: Mapping[str, NodeClock]
) -> CollectiveFinding:
    """Return who comes last, by the reports of a look; ``clocks`` are those of the nodes."""
    listed = reported_groups(reports)
    roles = group_roles(listed, places.ranks)
    rounds, without = rounds_of(reports, clocks)
    compared = _compared(rounds, places.ranks)
    blind = list(_blind(reports, rounds, without, places.ranks))
    found = CollectiveFinding(
        sentence="Who comes last to collectives cannot be told",
        blind=tuple(blind[:_BLIND_MAX]),
        role_names=roles.names,
        roles=tuple(roles.roles.tolist()),
        roles_sentence=roles.sentence if roles.basis is not RoleBasis.NOTHING else "",
    )
    if not compared:
        return found
    judge = _Judge(_main(compared), compared, places, roles, listed, clocks)
    blind += judge.verdict.blind
    return replace(
        found,
        sentence=judge.sentence(),
        late=tuple(judge.late[:NAMED_MAX]),
        common=tuple(judge.common()),
        blind=tuple(dict.fromkeys(blind))[:_BLIND_MAX],
        collectives=len(judge.main.length_s),
        ranks=int(np.count_nonzero(judge.main.covered)),
    )


# --- groups side by side -------------------------------------------------------------------------


def _compared(rounds: Iterable[Rounds], ranks: int) -> list[_Compared]:
    """Return groups of one name side by side; those that share a rank are apart."""
    beside: dict[tuple[str, int], list[tuple[list[Rounds], Mask]]] = {}
    for one in rounds:
        inside = one.ranks[one.ranks < ranks]
        if len(inside) < len(one.ranks):
            continue
        for groups, taken in beside.setdefault((one.name, one.size), []):
            if not taken[inside].any():
                groups.append(one)
                taken[inside] = True
                break
        else:
            taken = np.zeros(ranks, dtype=np.bool_)
            taken[inside] = True
            beside[one.name, one.size].append(([one], taken))
    return [_side_by_side(groups, ranks) for some in beside.values() for groups, _ in some]


def _side_by_side(groups: Sequence[Rounds], ranks: int) -> _Compared:
    rows = min(one.count for one in groups)
    own, waited = np.full((rows, ranks), np.nan), np.full((rows, ranks), np.nan)
    for one in groups:
        own[:, one.ranks] = one.own_s[-rows:]
        waited[:, one.ranks] = one.waited_s[-rows:]
    length = np.median([one.length_s[-rows:] for one in groups], axis=0)
    return _Compared(tuple(groups), own, waited, length)


def _main(compared: Sequence[_Compared]) -> _Compared:
    """Return the groups by which ranks are compared: of those that cover most, where most wait."""
    covered = [int(np.count_nonzero(one.covered)) for one in compared]
    wide = [
        one
        for one, count in zip(compared, covered, strict=True)
        if count >= _COVERED_SHARE * max(covered)
    ]
    return max(wide, key=lambda one: (len(one.length_s) >= SURE_ROWS, one.waited_share))


# --- the judge -----------------------------------------------------------------------------------


class _Judge:
    """Ranks that come last to the main groups, and why that is no slowness of their own."""

    def __init__(
        self,
        main: _Compared,
        compared: Sequence[_Compared],
        places: LivePlaces,
        roles: RankRoles,
        listed: Sequence[ProcessGroup],
        clocks: Mapping[str, NodeClock],
    ) -> None:
        self.main, self._places, self._clocks, self._listed = main, places, clocks, listed
        self._others = [one for one in compared if one is not main]
        # Which part of the time each rank waits in other groups than those that are compared.
        self._waits_elsewhere = self._elsewhere()
        self._names = [roles.names[role] for role in roles.roles.tolist()]
        self.verdict = self._verdict()
        self.late = self._late()

    def _elsewhere(self) -> Floats:
        share = np.zeros(self._places.ranks)
        same = {tuple(one.ranks.tolist()) for one in self.main.groups}
        for other in self._others:
            for group in other.groups:
                if tuple(group.ranks.tolist()) not in same:
                    share[group.ranks] += group.waited_share
        return np.minimum(share, 1.0)

    def _verdict(self) -> SlowVerdict:
        """Judge the work of each rank between collectives, as that of steps is judged."""
        waits = self._waits_elsewhere * self.main.length_s[:, None]
        own = np.maximum(self.main.own_s - waits, 0.05 * self.main.own_s)
        # The groups of all ranks are known: without a pipeline or experts all do the same.
        roster = replace(roster_of(self._places, self._names), roles_known=True)
        analysis = SlowAnalysis(roster)
        for row, seconds in enumerate(own):
            usable = np.where(seconds > 0, seconds, np.nan)
            if np.count_nonzero(~np.isnan(usable)) > 1:
                analysis.observe(row, usable)
        return analysis.verdict()

    def _late(self) -> list[LateRank]:
        slow = {
            int(one.worker.partition(" ")[0]): one
            for one in self.verdict.slow
            if one.until_step is None
        }
        last = _last_again(self.main)
        in_places = self._in_slow_places()
        found = [
            self._late_rank(group, int(rank), slow.get(int(rank)))
            for group in self.main.groups
            for rank in group.ranks.tolist()
            if rank in slow or (rank in last and rank not in in_places)
        ]
        found = self._without_together(found)
        return sorted(found, key=lambda one: (not one.nominated, -one.factor, -one.wait_ms))

    def _in_slow_places(self) -> set[int]:
        """Return the ranks of places that are late as a whole."""
        places, names = self._places, set()
        for one in self.verdict.places:
            if one.until_step is None:
                names.add((one.kind, one.name))
        found = set()
        for rank in range(places.ranks):
            node = rank // places.ranks_per_node
            where = {("node", places.nodes[node]), ("domain", places.domains[node])}
            if where & names:
                found.add(rank)
        return found

    def _late_rank(self, group: Rounds, rank: int, slow: SlowWorker | None) -> LateRank:
        column = int(np.flatnonzero(group.ranks == rank)[0])
        is_last = group.last[:, column]
        rows = is_last if is_last.any() else np.ones(group.count, dtype=np.bool_)
        others = np.delete(group.waited_s[rows], column, axis=1)
        wait_s = float(np.median(np.median(others, axis=1)))
        ahead_s = float(np.median(np.median(others, axis=1) - group.waited_s[rows, column]))
        every_s = float(np.median(group.length_s))
        times, node = int(np.count_nonzero(is_last)), self._node(rank)
        sentence = (
            f"rank {rank} ({node}) comes last to {times} of {group.count} collectives of "
            f"{group.name}: the others wait {_span(wait_s)} of {_span(every_s)} from one to the "
            "next"
        )
        why_not = self._why_not(group, rank, ahead_s, every_s)
        if not why_not and slow is None:
            why_not = self._only_last(group, rank)
        return LateRank(
            rank=rank,
            node=node,
            group=group.name,
            times=times,
            of=group.count,
            wait_ms=1000 * wait_s,
            every_ms=1000 * every_s,
            factor=slow.factor if slow is not None else 0.0,
            sentence=sentence,
            why_not=why_not,
        )

    def _why_not(self, group: Rounds, rank: int, ahead_s: float, every_s: float) -> str:
        """Return why it is not nominated; "" where it is."""
        off_s = self._clocks_off_s(group, rank)
        if not group.by_duration and ahead_s <= off_s:
            return (
                f"the clocks of the nodes agree to {_span(off_s)} only, so that this says nothing"
            )
        if self._waits_elsewhere[rank] * every_s >= _KEPT_SHARE * ahead_s:
            for other in self._others:
                for one in other.groups:
                    culprit = _last_of(one)
                    if rank in one.ranks and culprit not in (None, rank):
                        return f"it waits itself for rank {culprit} in {one.name}"
        return ""

    def _clocks_off_s(self, group: Rounds, rank: int) -> float:
        """Return how far the clocks of its node and of the others' nodes may be apart."""
        nodes = {self._node(one) for one in group.ranks.tolist()} - {self._node(rank)}
        if not nodes:
            return 0.0
        known = [self._clocks[one].uncertainty_ns for one in nodes if one in self._clocks]
        own = self._clocks.get(self._node(rank))
        if own is None or not known:
            return float("inf")
        return (own.uncertainty_ns + float(np.median(known))) * 1e-9

    def _only_last(self, group: Rounds, rank: int) -> str:
        """Return why a rank that only comes last is not compared with the others' work."""
        names = self._names
        peers = sum(names[one] == names[rank] for one in group.ranks.tolist()) - 1
        if peers < 3:
            return (
                "with fewer than three peers it cannot be told whether it does other work than they"
            )
        return _NOT_SURE

    def _without_together(self, found: Sequence[LateRank]) -> list[LateRank]:
        """Name nobody of ranks that are late together with most of another group."""
        open_to = {one.rank for one in found if one.why_not in ("", _NOT_SURE)}
        named = {one.rank for one in found if one.nominated}
        together: dict[int, str] = {}
        same = {tuple(one.ranks.tolist()) for one in self.main.groups}
        for group in self._listed:
            inside = open_to.intersection(group.ranks) if len(open_to) > 1 else set()
            most = len(inside) >= max(2, _TOGETHER_SHARE * len(group.ranks))
            # Where one of them is slow by its own work, the others wait for that one.
            if most and len(inside & named) != 1 and group.ranks not in same:
                ranks = members_text(group.ranks)
                told = f"so do most of the ranks {ranks} of {group.name[:80]}"
                together |= dict.fromkeys(inside, f"{told}: one of them may hold the others up")
        return [
            one if one.rank not in together else replace(one, why_not=together[one.rank])
            for one in found
        ]

    def _node(self, rank: int) -> str:
        return self._places.nodes[rank // self._places.ranks_per_node]

    # --- in words --------------------------------------------------------------------------------

    def common(self) -> list[str]:
        """Return what is late together, and why all wait without anybody being late."""
        verdict = self.verdict
        places = [one.sentence for one in verdict.places if one.until_step is None]
        pauses = [one.sentence for one in verdict.pauses if one.kind in _PAUSES]
        # What stages of a pipeline wait for one another is in their own work here.
        uneven = [
            one.sentence
            for one in verdict.imbalances
            # Of what is open the ranks that come last say more.
            if one.kind is not ImbalanceKind.STAGE and not (self.late and one.is_open)
        ]
        return [*places, *uneven, *pauses]

    def sentence(self) -> str:
        """Return the finding in one sentence."""
        named = [one for one in self.late if one.nominated]
        if named:
            more = f"; and {len(named) - 1} more" if len(named) > 1 else ""
            return _capital(named[0].whole_sentence) + more
        common = self.common()
        if len(self.main.length_s) < SURE_ROWS and not common:
            return (
                f"Nobody is known to come last again and again; {len(self.main.length_s)} "
                f"collectives are few, {SURE_ROWS} are enough"
            )
        if self.late and not common:
            return f"{_capital(self.late[0].whole_sentence)}; so nobody is named"
        said = "Nobody comes last to collectives again and again"
        return f"{said}. {_capital(common[0])}" if common else said


def _last_again(main: _Compared) -> set[int]:
    """Return who comes last so often that it is no chance, and keeps the others by enough."""
    ranks = main.waited_s.shape[1]
    lateness = CollectiveLateness([one.ranks for one in main.groups], ranks)
    nominated = np.zeros(ranks, dtype=np.bool_)
    # It looks at twenty collectives back.
    for waited, length in zip(main.waited_s[-20:], main.length_s[-20:], strict=True):
        nominated = lateness.observe(waited, float(length)).nominated
    return set(np.flatnonzero(nominated).tolist())


def _last_of(group: Rounds) -> int | None:
    """Return who comes last to most of the collectives of a group."""
    times = np.count_nonzero(group.last, axis=0)
    place = int(np.argmax(times))
    return int(group.ranks[place]) if 2 * times[place] > group.count else None


def _blind(
    reports: Sequence[RankHangReport],
    rounds: Sequence[Rounds],
    without: Sequence[NotJudged],
    ranks: int,
) -> list[str]:
    """Return what cannot be seen, and what would show it."""
    found = []
    if len(reports) < ranks:
        found.append(f"{ranks - len(reports)} of {ranks} ranks told nothing of their collectives")
    silent = [one for one in reports if one.blind and not one.groups]
    if silent:
        found.append(f"rank {silent[0].rank}: {silent[0].blind[0].reason}")
    on_gpus = [one for one in rounds if not one.name.endswith(ON_CPUS)]
    if any(one.backend == "nccl" for one in reports) and not all(r.by_duration for r in on_gpus):
        found.append(
            "when collectives were launched is known, not when GPUs came to them: a slow GPU does "
            "not show. TORCH_NCCL_ENABLE_TIMING=1 in the environment of the job shows it, or 'with "
            "everstep.waiting():' around a collective that the script waits for"
        )
    found += [f"{one.name} ({one.ranks} ranks): {one.why}" for one in without[:4]]
    if not rounds and not without:
        found.append("no rank has recorded enough collectives of one kind")
    return found


def _span(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
