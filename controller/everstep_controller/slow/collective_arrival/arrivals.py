"""Arrivals: how long the ranks of a group worked between its collectives, and waited in them.

A rank arrives when it enqueues a collective, and waits for the last one. That holds where the next
one is enqueued by nobody before all have arrived: only such collectives count, and from one of them
to the next is a round. Where the recorder has durations they tell without clocks: the last one has
the shortest collective.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from everstep_common.hangs.reports.rank_report import GroupReport, RankHangReport
from everstep_common.hangs.reports.recent_collectives import (
    RecentCollectives,
    SamplesError,
    Unpacked,
    unpacked,
)
from everstep_controller.slow.peers import Floats, Indices, Mask

# Of fewer rounds nothing is said; of the ranks of a group so many must be known.
ROUNDS_MIN = 10
_KNOWN_SHARE = 0.9
_S = 1e-9
# Where so many of the collectives do not wait for all, the ranks are not in step.
_IN_STEP_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class NodeClock:
    """A node's wall clock minus the controller's timeline, and how far that may be off."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class Rounds:
    """Rounds of one group; a row for each, a column for each of its ranks."""

    name: str
    label: str
    # Of the ranks that told enough of it; how many members it has.
    ranks: Indices
    size: int
    own_s: Floats
    waited_s: Floats
    # How long each round was.
    length_s: Floats
    by_duration: bool

    @property
    def count(self) -> int:
        """Return how many rounds there are."""
        return len(self.length_s)

    @property
    def last(self) -> Mask:
        """Return who alone came last in each round."""
        nothing = self.waited_s <= 0
        return np.asarray(nothing & (np.count_nonzero(nothing, axis=1) == 1)[:, None])

    @property
    def waited_share(self) -> Floats:
        """Return which part of the time each rank waited."""
        return np.asarray(self.waited_s.sum(axis=0) / max(float(self.length_s.sum()), _S))


@dataclass(frozen=True, slots=True)
class NotJudged:
    """A group of which nothing can be said, and why."""

    name: str
    ranks: int
    why: str


@dataclass(frozen=True, slots=True)
class _Series:
    rank: int
    sequences: Indices
    at_ns: Indices
    durations_us: Indices


_Key = tuple[str, str, int]


def rounds_of(
    reports: Iterable[RankHangReport], clocks: Mapping[str, NodeClock]
) -> tuple[list[Rounds], list[NotJudged]]:
    """Return the rounds of all groups of which enough is known, and why there are not more."""
    told: dict[_Key, list[tuple[RankHangReport, GroupReport]]] = {}
    for report in reports:
        for group in report.groups:
            if group.recent is not None and group.size != 1:
                key = (group.description, group.members, group.ordinal)
                told.setdefault(key, []).append((report, group))
    found: list[Rounds] = []
    without: list[NotJudged] = []
    for (name, _, _), of_group in told.items():
        one = _of_group(name, of_group, clocks)
        if isinstance(one, Rounds):
            found.append(one)
        else:
            without.append(one)
    return found, without


def _of_group(
    name: str,
    told: Sequence[tuple[RankHangReport, GroupReport]],
    clocks: Mapping[str, NodeClock],
) -> Rounds | NotJudged:
    size = max(group.size for _, group in told) or len(told)
    recents = [(report, group.recent) for report, group in told if group.recent is not None]
    labels = Counter(recent.label for _, recent in recents)
    label = max(sorted(labels), key=lambda one: labels[one])
    series = _series([one for one in recents if one[1].label == label], clocks)
    known, rows = _together(series)
    if len(known) < 2 or len(known) < _KNOWN_SHARE * size:
        why = f"only {len(known)} of its {size} ranks tell of the same collectives"
        return NotJudged(name, size, why)
    by_duration = all(len(one.durations_us) for one in known)
    at_s, durations_s = _tables(known, rows)
    ranks = np.array([one.rank for one in known], dtype=np.int64)
    if by_duration:
        made = _by_duration(at_s, durations_s)
    elif any(report.node not in clocks for report, _ in told):
        return NotJudged(name, size, "the clock of one of its nodes is not known")
    else:
        made = _by_arrival(at_s)
    if len(made[2]) < ROUNDS_MIN:
        return NotJudged(name, size, _too_few(len(made[2]), len(rows)))
    return Rounds(name, label, ranks, size, *made, by_duration)


def _too_few(rounds: int, collectives: int) -> str:
    if collectives >= ROUNDS_MIN and rounds < _IN_STEP_SHARE * collectives:
        return "its ranks enqueue collectives without waiting for those before"
    return f"{rounds} of its collectives are too few"


def _series(
    told: Iterable[tuple[RankHangReport, RecentCollectives]], clocks: Mapping[str, NodeClock]
) -> list[_Series]:
    """Return what ranks told, on the controller's timeline; what does not fit is left out."""
    alike: dict[tuple[int, int], list[tuple[RankHangReport, RecentCollectives, Unpacked]]] = {}
    for report, recent in told:
        with suppress(SamplesError):
            packed = unpacked(recent)
            sizes = len(packed.sequences), len(packed.durations_us)
            alike.setdefault(sizes, []).append((report, recent, packed))
    return [one for some in alike.values() for one in _of_one_size(some, clocks)]


def _of_one_size(
    told: Sequence[tuple[RankHangReport, RecentCollectives, Unpacked]],
    clocks: Mapping[str, NodeClock],
) -> Iterator[_Series]:
    """Yield the series of ranks that told of as many collectives, read at once."""
    # A number that a rank made too large wraps around, and fits none of the others.
    first = np.array(
        [(recent.first_sequence, recent.first_ns) for _, recent, _ in told], dtype=np.uint64
    ).view(np.int64)
    offsets = [clocks[one.node].offset_ns if one.node in clocks else 0 for one, _, _ in told]
    ahead = _sums([packed.sequences for _, _, packed in told])
    later = _sums([packed.times_us for _, _, packed in told])
    durations = _numbers([packed.durations_us for _, _, packed in told])
    sequences = first[:, :1] + ahead
    at_ns = (first[:, 1] - np.array(offsets, dtype=np.int64))[:, None] + 1000 * later
    for row, (report, _, _) in enumerate(told):
        yield _Series(report.rank, sequences[row], at_ns[row], durations[row])


def _numbers(packed: Sequence[bytes]) -> Indices:
    numbers = np.frombuffer(b"".join(packed), dtype="<u4")
    return np.asarray(numbers.reshape(len(packed), len(packed[0]) // 4), dtype=np.int64)


def _sums(packed: Sequence[bytes]) -> Indices:
    numbers = _numbers(packed)
    return np.concatenate([np.zeros((len(packed), 1), np.int64), np.cumsum(numbers, axis=1)], 1)


def _together(series: Sequence[_Series]) -> tuple[list[_Series], Indices]:
    """Return who knows of the collectives that nearly all know of, and these, oldest first."""
    if not series:
        return [], np.zeros(0, dtype=np.int64)
    first = series[0].sequences
    if all(len(one.sequences) == len(first) for one in series):
        told = np.stack([one.sequences for one in series])
        if (told == first).all():
            return list(series), first
    every = np.concatenate([one.sequences for one in series])
    numbers, counts = np.unique(every, return_counts=True)
    rows = numbers[counts >= _KNOWN_SHARE * len(series)]
    known = [one for one in series if len(rows) and bool(np.isin(rows, one.sequences).all())]
    return known, rows


def _tables(known: Sequence[_Series], rows: Indices) -> tuple[Floats, Floats]:
    """Return when each rank enqueued each collective, and how long it took, in seconds."""
    places = [
        slice(None) if one.sequences is rows else np.searchsorted(one.sequences, rows)
        for one in known
    ]
    at_ns = np.stack([one.at_ns[place] for one, place in zip(known, places, strict=True)], axis=1)
    durations: Floats = np.zeros(at_ns.shape)
    if all(len(one.durations_us) for one in known):
        told = [one.durations_us[place] for one, place in zip(known, places, strict=True)]
        durations = np.asarray(np.stack(told, axis=1) * 1e-6, dtype=np.float64)
    base = int(np.median(at_ns[0])) if at_ns.size else 0
    return np.asarray((at_ns - base) * _S, dtype=np.float64), durations


def _by_arrival(at_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Return own work, waiting and length of rounds, by when ranks arrived."""
    last = at_s.max(axis=1)
    # Nobody has gone on before the last one came.
    waits = np.flatnonzero(at_s[1:].min(axis=1) >= last[:-1])
    waits = np.append(waits, len(last) - 1)
    begins, ends = waits[:-1], waits[1:]
    own = at_s[ends] - last[begins, None]
    return own, last[ends, None] - at_s[ends], last[ends] - last[begins]


def _by_duration(at_s: Floats, durations_s: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the same by how long each was in each collective; no clocks are compared."""
    length = np.median(np.diff(at_s, axis=0), axis=1)
    waited = durations_s[1:] - durations_s[1:].min(axis=1)[:, None]
    own = np.maximum(length[:, None] - waited, 0.0)
    return own, waited, length
