"""Recent collectives: when a rank of a job that steps enqueued its newest ones, in 1 KB a group.

Of the collectives of a group those of one label are told, the same in each step: the one after
which the group pauses longest, for it is the last of a step. All ranks choose the same. Times are
by the wall clock of the rank's node, as torch's recorder takes them (c10::getTime).
"""

import base64
import binascii
import sys
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median_low
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Opaque

# Of one group, and of all groups of a rank together.
SAMPLES_MAX, RANK_SAMPLES_MAX = 64, 256
# A label that is rarer than this is not of each step.
_REPEATED_MIN = 10
# What a distance of two collectives or a duration is at most: 71 minutes.
_PACKED_MAX = 2**32 - 1
_ITEM = 4
_TEXT_MAX = SAMPLES_MAX * _ITEM * 4 // 3 + 4

# Base64 of unsigned numbers of 32 bits, little-endian.
Packed = Annotated[str, Opaque(0, _TEXT_MAX, "packed numbers")]


@dataclass(frozen=True, slots=True)
class RecentCollectives:
    """The newest collectives of a group with one label, oldest first."""

    # As torch calls them, with the shapes: "all_reduce 1024 Float".
    label: q.Title
    first_sequence: Annotated[int, Integer(0, 2**63 - 1)]
    first_ns: Annotated[int, Integer(0, 2**63 - 1, unit="ns")]
    # Of each but the first: how far its sequence number, and its time in microseconds, are from
    # those of the one before.
    sequences: Packed = ""
    times_us: Packed = ""
    # Of each, how long it took on its device; "" where the recorder does not measure that.
    durations_us: Packed = ""
    # How many collectives of the group were recorded from the first to the last of these.
    recorded: q.Count = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One collective that a rank enqueued."""

    sequence: int
    created_ns: int
    label: str = ""
    duration_us: int | None = None


class SamplesError(ValueError):
    """What is packed does not fit together."""


def recent_of(groups: Mapping[str, Sequence[Sample]]) -> dict[str, RecentCollectives]:
    """Return what is told of each group: of the groups with the most collectives, while it fits."""
    found, left = {}, RANK_SAMPLES_MAX
    for name in sorted(groups, key=lambda one: (-len(groups[one]), one)):
        chosen = _chosen(groups[name])[-min(left, SAMPLES_MAX) :] if left else []
        if len(chosen) > 1:
            found[name] = _packed(chosen, groups[name])
            left -= len(chosen)
    return found


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What is packed of a group: little-endian numbers of 32 bits, in lists whose lengths fit."""

    sequences: bytes
    times_us: bytes
    durations_us: bytes


def unpacked(recent: RecentCollectives) -> Unpacked:
    """Return what is packed. Raises SamplesError."""
    sequences, times_us = _bytes(recent.sequences), _bytes(recent.times_us)
    durations_us = _bytes(recent.durations_us)
    if len(times_us) != len(sequences):
        raise SamplesError("its lists have different lengths")
    if durations_us and len(durations_us) != len(sequences) + _ITEM:
        raise SamplesError("its lists have different lengths")
    return Unpacked(sequences, times_us, durations_us)


def samples_of(recent: RecentCollectives) -> list[Sample]:
    """Return the collectives that are told. Raises SamplesError."""
    packed = unpacked(recent)
    durations = _numbers(packed.durations_us)
    sequence, at_ns = recent.first_sequence, recent.first_ns
    found = [Sample(sequence, at_ns, recent.label, durations[0] if durations else None)]
    later = zip(_numbers(packed.sequences), _numbers(packed.times_us), strict=True)
    for place, (ahead, later_us) in enumerate(later, 1):
        sequence, at_ns = sequence + ahead, at_ns + 1000 * later_us
        measured = durations[place] if durations else None
        found.append(Sample(sequence, at_ns, recent.label, measured))
    return found


def _chosen(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of the label after which the group pauses longest, in their order."""
    rising = _rising(samples)
    pauses: dict[str, list[int]] = defaultdict(list)
    for one, after in pairwise(rising):
        pauses[one.label].append(after.created_ns - one.created_ns)
    repeated = {one: gaps for one, gaps in pauses.items() if len(gaps) >= _REPEATED_MIN}
    if not repeated:
        return []
    label = max(sorted(repeated), key=lambda one: median_low(repeated[one]))
    chosen = [one for one in rising if one.label == label]
    # A device that measures some only has them of the older ones: the newest are not done.
    measured = [one for one in chosen if one.duration_us is not None]
    return measured if len(measured) >= len(chosen) // 2 > 0 else _unmeasured(chosen)


def _rising(samples: Iterable[Sample]) -> list[Sample]:
    """Return the newest samples whose numbers and times rise by what fits."""
    found: list[Sample] = []
    for one in sorted(samples, key=lambda sample: sample.sequence):
        if found:
            ahead, later_ns = (
                one.sequence - found[-1].sequence,
                one.created_ns - found[-1].created_ns,
            )
            if not ahead:
                continue
            # The clock was set, or the rank was idle for an hour: what was before is left out.
            if ahead > _PACKED_MAX or not 0 <= later_ns <= 1000 * _PACKED_MAX:
                found = []
        found.append(one)
    return found


def _unmeasured(samples: Iterable[Sample]) -> list[Sample]:
    return [Sample(one.sequence, one.created_ns, one.label) for one in samples]


def _packed(chosen: Sequence[Sample], all_of_group: Sequence[Sample]) -> RecentCollectives:
    first, last = chosen[0], chosen[-1]
    pairs = list(pairwise(chosen))
    within = sum(first.sequence <= one.sequence <= last.sequence for one in all_of_group)
    measured = first.duration_us is not None
    times = [(one.created_ns - first.created_ns) // 1000 for one in chosen]
    return RecentCollectives(
        label=first.label[:200],
        first_sequence=first.sequence,
        first_ns=first.created_ns,
        sequences=_text([after.sequence - one.sequence for one, after in pairs]),
        # Of sums, so that what is rounded off does not add up.
        times_us=_text([after - one for one, after in pairwise(times)]),
        durations_us=_text([one.duration_us or 0 for one in chosen]) if measured else "",
        recorded=within,
    )


def _text(numbers: Iterable[int]) -> str:
    packed = array("I", (min(max(one, 0), _PACKED_MAX) for one in numbers))
    if sys.byteorder == "big":
        packed.byteswap()
    return base64.b64encode(packed.tobytes()).decode()


def _bytes(text: str) -> bytes:
    try:
        found = base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise SamplesError("it is not what was packed") from error
    if len(found) % _ITEM:
        raise SamplesError("it breaks off within a number")
    return found


def _numbers(packed: bytes) -> "array[int]":
    found = array("I")
    found.frombytes(packed)
    if sys.byteorder == "big":
        found.byteswap()
    return found
