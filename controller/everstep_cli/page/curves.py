"""Curves: what changes with time as a table of a few rows, which a script draws. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from everstep_cli.report.amounts import span
from everstep_proto.generated import admin_pb2

_NS = 1_000_000_000
# As many as can be told apart in a picture and read in a table; and a time with fewer steps than
# these says little.
_ROWS_MAX, _STEPS_MIN = 96, 3
# Samples come every second; agents tell of five of them at once.
_SAMPLES_OF_A_ROW = 5


@dataclass(frozen=True, slots=True)
class Column:
    """One curve: values of one picture, in a unit; None where nothing is known."""

    name: str
    # Curves of one group are in one picture; "" is in none.
    group: str
    unit: str
    values: Sequence[float | None]
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves over the same times, and what they show in a sentence."""

    told: str
    at_ns: Sequence[int]
    columns: Sequence[Column]

    def rows(self) -> Iterator[tuple[int, list[tuple[Column, float | None]]]]:
        """Yield each time and the values then, the newest first."""
        for place in reversed(range(len(self.at_ns))):
            yield self.at_ns[place], [(one, one.values[place]) for one in self.columns]


@dataclass(slots=True)
class _Bucket:
    """Time between two, with the steps that ended in it and the training that fell into it."""

    took_s: list[float]
    training_ns: float = 0.0


def curves_of_steps(steps: admin_pb2.Steps) -> Curves | None:
    """Return step time and share of training over time; None for a job without steps."""
    if not steps.step:
        return None
    begin_ns, end_ns = steps.start_ns[0], max(steps.end_ns[-1], steps.start_ns[0] + 1)
    count = max(1, min(_ROWS_MAX, len(steps.step) // _STEPS_MIN))
    width_ns = (end_ns - begin_ns) / count
    buckets = [_Bucket([]) for _ in range(count)]
    for start_ns, stop_ns, training_ns in zip(
        steps.start_ns, steps.end_ns, steps.training_ns, strict=True
    ):
        last = min(count - 1, int((stop_ns - begin_ns) / width_ns))
        buckets[last].took_s.append((stop_ns - start_ns) / _NS)
        for place in range(int((start_ns - begin_ns) / width_ns), last + 1):
            low = max(start_ns, begin_ns + place * width_ns)
            high = min(stop_ns, begin_ns + (place + 1) * width_ns)
            share = max(0.0, high - low) / max(1, stop_ns - start_ns)
            buckets[min(place, count - 1)].training_ns += training_ns * share
    return Curves(
        told=_told_of_steps(steps),
        at_ns=[int(begin_ns + (place + 1) * width_ns) for place in range(count)],
        columns=[
            Column("steps", "", "", [float(len(one.took_s)) for one in buckets], 0),
            Column(
                "step time, mean",
                "step time",
                "s",
                [fmean(one.took_s) if one.took_s else None for one in buckets],
                3,
            ),
            Column(
                "longest", "step time", "s", [max(one.took_s, default=None) for one in buckets], 3
            ),
            Column(
                "training time",
                "training time",
                "%",
                [min(100.0, 100 * one.training_ns / width_ns) for one in buckets],
            ),
        ],
    )


def _told_of_steps(steps: admin_pb2.Steps) -> str:
    took_s = [(end - start) / _NS for start, end in zip(steps.start_ns, steps.end_ns, strict=True)]
    whole_s = max((steps.end_ns[-1] - steps.start_ns[0]) / _NS, 1e-9)
    share = 100 * sum(steps.training_ns) / _NS / whole_s
    what = "step" if len(took_s) == 1 else f"{len(took_s):,} steps"
    return (
        f"The newest {what}, without those made again, {span(whole_s)}: {span(median(took_s))} "
        f"each at the median, {span(max(took_s))} the longest; "
        f"{min(100.0, share):.1f} % of that time was training."
    )


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A sampled column as people read it."""

    name: str
    group: str
    unit: str
    # What a value is multiplied by.
    factor: float = 1.0
    digits: int = 1


_SAMPLED: Mapping[str, _Sampled] = {
    "gpu_busy_ratio_mean": _Sampled("GPUs busy, mean", "busy", "%", 100),
    "cpu_busy_ratio": _Sampled("CPUs busy", "busy", "%", 100),
    "gpu_temperature_c_max": _Sampled("hottest GPU", "temperature", "°C", digits=0),
    "gpu_power_w_sum": _Sampled("power of all GPUs", "power", "W", digits=0),
    "memory_available_bytes": _Sampled("memory available", "memory", "GiB", 2**-30),
    "network_received_bytes_per_s": _Sampled("received", "network", "MB/s", 1e-6, 2),
    "network_sent_bytes_per_s": _Sampled("sent", "network", "MB/s", 1e-6, 2),
    "disk_read_bytes_per_s": _Sampled("read", "disks", "MB/s", 1e-6, 2),
    "disk_write_bytes_per_s": _Sampled("written", "disks", "MB/s", 1e-6, 2),
}


def curves_of_samples(samples: admin_pb2.Samples) -> Curves | None:
    """Return what an agent has measured in the last minutes; None where nothing came."""
    sampled = {one.name: list(one.values) for one in samples.columns if one.name in _SAMPLED}
    # What nothing could be read of is none of this machine's.
    known = {name: of for name, of in sampled.items() if any(map(math.isfinite, of))}
    if not known or not samples.interval_ns:
        return None
    count = len(next(iter(known.values())))
    ends = list(range(count, 0, -_SAMPLES_OF_A_ROW))[::-1]
    return Curves(
        told=f"The newest {span(count * samples.interval_ns / _NS)}, as its agent measured them;"
        f" each row is the mean of {span(_SAMPLES_OF_A_ROW * samples.interval_ns / _NS)}.",
        at_ns=[samples.newest_ns - (count - end) * samples.interval_ns for end in ends],
        columns=[
            _column(look, known[name], ends) for name, look in _SAMPLED.items() if name in known
        ],
    )


def _column(look: _Sampled, values: Sequence[float], ends: Sequence[int]) -> Column:
    found: list[float | None] = []
    for end in ends:
        known = [one for one in values[max(0, end - _SAMPLES_OF_A_ROW) : end] if math.isfinite(one)]
        found.append(look.factor * fmean(known) if known else None)
    return Column(look.name, look.group, look.unit, found, look.digits)
