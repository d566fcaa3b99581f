"""Published variants of ETTR: what others call effective training time, from the same ledger.

Every system that publishes such a number defines it in its own way. Each variant here is a row with
its definition, which goes out beside the number, and the formula over a ledger's totals. All are
shares between 0 and 1 of the time that their definition divides by.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from everstep_controller.core.accounting.categories import Category, Group

Totals = Mapping[Category, int]


@dataclass(frozen=True, slots=True)
class Measured:
    """What a variant is computed from: nanoseconds by category, and what those sum up to.

    ``of_program`` is the time by category of incidents that the user's own program caused.
    ``unsaved_ns`` is productive time of the steps that no copy would bring back now.
    """

    totals: Totals
    of_program: Totals
    unsaved_ns: int = 0
    # The same of each of the newest whole hours of the clock, oldest first.
    hours: Sequence[Totals] = ()

    @property
    def wall_ns(self) -> int:
        """Return the wall clock: categories sum to it by construction."""
        return sum(self.totals.values())


@dataclass(frozen=True, slots=True)
class Variant:
    """One published variant: who publishes it, what it is, and its value."""

    name: str
    definition: str
    source: str
    value: Callable[[Measured], float]


def _of(totals: Totals, *groups: Group) -> int:
    return sum(amount for category, amount in totals.items() if category.group in groups)


def _share(part_ns: int, whole_ns: int) -> float:
    return part_ns / whole_ns if whole_ns > 0 else 0.0


def _time(measured: Measured) -> float:
    made = _of(measured.totals, Group.PRODUCTIVE, Group.SLOW)
    return _share(made, measured.wall_ns)


def _work(measured: Measured) -> float:
    return _share(_of(measured.totals, Group.PRODUCTIVE), measured.wall_ns)


def _baidu(measured: Measured) -> float:
    stalls = sum(measured.totals.get(one, 0) for one in (Category.STALL, Category.PERSIST))
    lost = _of(measured.totals, Group.INCIDENT) + stalls
    return 1 - _share(lost, measured.wall_ns) if measured.wall_ns else 0.0


def _meta(measured: Measured) -> float:
    of_program = sum(measured.of_program.values())
    made = _of(measured.totals, Group.PRODUCTIVE, Group.SLOW)
    return _share(made, measured.wall_ns - of_program)


def _byterobust(measured: Measured) -> float:
    return _undisturbed(measured.totals)


def _newest_hour(measured: Measured) -> float:
    return _undisturbed(measured.hours[-1] if measured.hours else measured.totals)


def _worst_hour(measured: Measured) -> float:
    return min(map(_undisturbed, measured.hours or [measured.totals]))


def _undisturbed(totals: Totals) -> float:
    whole_ns = sum(totals.values())
    return 1 - _share(_of(totals, Group.INCIDENT), whole_ns) if whole_ns else 0.0


def _durable(measured: Measured) -> float:
    saved = _of(measured.totals, Group.PRODUCTIVE) - measured.unsaved_ns
    return _share(max(saved, 0), measured.wall_ns)


VARIANTS: tuple[Variant, ...] = (
    Variant(
        "ETTR_time",
        "(productive + slow.*) / wall: the share of time in which steps were made that count.",
        "Everstep",
        _time,
    ),
    Variant(
        "ETTR_work",
        "productive / wall: what a step took beyond its reference time is a loss as well.",
        "Everstep",
        _work,
    ),
    Variant(
        "Baidu",
        "1 - (all that interruptions cost, from the fault until the lost steps are made again, + "
        "time in which snapshots block training) / wall.",
        "Baige 4.0: effective training time",
        _baidu,
    ),
    Variant(
        "Meta",
        "(productive + slow.*) / wall without the interruptions that the user's own program "
        "caused; waiting for nodes counts as time.",
        "Revisiting Reliability, arXiv 2410.21680: ETTR",
        _meta,
    ),
    Variant(
        "Llama 3",
        "time spent on useful training / elapsed time: as ETTR_time.",
        "The Llama 3 Herd of Models: effective training time",
        _time,
    ),
    Variant(
        "MegaScale",
        "iterations that count x iteration time / total time, the iteration time being the "
        "reference step time: as ETTR_work.",
        "MegaScale, NSDI 2024: effective training time rate",
        _work,
    ),
    Variant(
        "ByteRobust",
        "1 - (detection + localization + failover, with recomputed steps) / wall, over the whole "
        "run.",
        "ByteRobust: cumulative ETTR",
        _byterobust,
    ),
    Variant(
        "ByteRobust hourly",
        "the same of the newest hour of the clock that is over, or of the run while there is none.",
        "ByteRobust: sliding-window ETTR, over an hour",
        _newest_hour,
    ),
    Variant(
        "ByteRobust worst hour",
        "the same of the worst hour of the newest day.",
        "ByteRobust: sliding-window ETTR, over an hour",
        _worst_hour,
    ),
    Variant(
        "Google goodput",
        "time in steps that were new and stayed / elapsed time: as ETTR_time.",
        "Gemini report: goodput",
        _time,
    ),
    Variant(
        "Google resiliency",
        "(newest saved step - first loaded step) x reference step time / total time: steps that "
        "no copy would bring back do not count yet.",
        "AI-Hypercomputer/resiliency: goodput",
        _durable,
    ),
    Variant(
        "AWS",
        "useful work / what the same time would have yielded at best: as ETTR_work.",
        "HyperPod checkpointless training: goodput",
        _work,
    ),
)


@dataclass(frozen=True, slots=True)
class NamedValue:
    """A variant's number with its definition."""

    name: str
    value: float
    definition: str
    source: str


def published(measured: Measured) -> tuple[NamedValue, ...]:
    """Return every variant of a ledger; zeros before any time has passed."""
    return tuple(
        NamedValue(one.name, one.value(measured), one.definition, one.source) for one in VARIANTS
    )
