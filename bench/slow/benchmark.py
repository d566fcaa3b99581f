"""Slow workers: who is named, how soon, and who is not, on public traces, in noise, in a fleet.

``traces``: AR has one slow worker, SE none. ``injected``: one worker made slower on AR without its
slow worker, on SE, and on noise that is made from the seed; published rules on the same series.
``tables``: made tables of 16 kinds, without a slow worker and with one. ``scale``: one step of
16,384 ranks, CPU time. ``fleet``: 16,384 GPUs in the noise that noise.toml fixes; 2,500
node-days, with ``--long`` 30,720. ``gpus``: clocks of 16,384 GPUs beside their peers, an hour, with
``--long`` a day. ``collectives``: who is nominated by one look at the newest collectives of all
ranks, and its CPU time. What is made depends on the seed.
"""

import argparse
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from harness.session import Benchmark, Part
from harness.table import Told
from slow import collectives as slow_collectives
from slow import gpus as slow_gpus
from slow import tables as slow_tables
from slow.fleet import run_fleet
from slow.rules import RULES
from slow.series import NAMES, SLOW_IN_AR, Series, healthy, made, trace

from everstep_controller.slow.peers import Roster
from everstep_controller.slow.watch import SlowWatch

_FACTORS = (1.05, 1.08, 1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
_RANKS = 16_384
_CURVE = (6, 8, 10, 12, 15, 20, 25)
_NEVER = 10**6
_NO_TRACES = "shared/data/straggler_traces is not beside the repository: this part needs it"


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a run: of each part, how much is made."""

    # Injections of each factor, tables of each kind, and looks at made jobs.
    runs: int
    tables: int
    looks: int
    # Of the fleet in steps, and days of the one whose clocks are looked at.
    node_days: int
    gpu_days: float


SIZES = {
    "quick": Size(runs=1, tables=1, looks=2, node_days=100, gpu_days=1 / 96),
    "usual": Size(runs=20, tables=10, looks=25, node_days=2_500, gpu_days=1 / 24),
    "long": Size(runs=100, tables=100, looks=100, node_days=30_720, gpu_days=1.0),
}


def _row(what: str, value: float, unit: str, target: str = "", note: str = "") -> Told:
    met = ""
    if target:
        sign, _, limit = target.partition(" ")
        met = "yes" if (value >= float(limit) if sign == "≥" else value <= float(limit)) else "no"
    return Told(
        {
            "what": what,
            "value": round(value, 3),
            "unit": unit,
            "target": target,
            "met": met,
            "note": note,
        }
    )


# --- public traces -------------------------------------------------------------------------------


def public_traces(_: argparse.Namespace) -> Iterator[Told]:
    """Yield who is named in AR and SE as they are, by each rule."""
    if not NAMES:
        raise SystemExit(_NO_TRACES)
    for name in NAMES:
        series = trace(name)
        truth = {series.roster.names.index(SLOW_IN_AR)} if name == "AR" else set()
        for rule, judge in RULES.items():
            masks = list(judge(series))
            named = set(np.flatnonzero(np.any(masks, axis=0)).tolist())
            ours = rule == "everstep slow"
            if truth:
                value, target = float(len(truth & named)), "≥ 1" if ours else ""
                yield _row(f"{name}: slow worker named, {rule}", value, "workers", target)
            value, target = float(len(named - truth)), "≤ 0" if ours else ""
            yield _row(f"{name}: healthy workers named, {rule}", value, "workers", target)


# --- injections ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Injection:
    """What a rule has said of one injected slow worker."""

    factor: float
    # Steps from its beginning until it is named.
    steps: int
    false: int


def injected(options: argparse.Namespace) -> Iterator[Told]:
    """Yield recall by factor and by steps, and precision, of each rule on each base."""
    curves: list[Told] = []
    for base in (*NAMES, "made"):
        for rule in RULES:
            found = list(_injections(base, rule, options))
            ours = rule == "everstep slow"
            named = sum(one.steps < _NEVER for one in found)
            false = sum(one.false for one in found)
            precision = named / max(named + false, 1)
            note = f"{false} false in {len(found)} runs; {_shares(named, named + false)}"
            target = "≥ 1.0" if ours else ""
            yield _row(f"{base}: precision, {rule}", precision, "", target, note)
            yield from _recalls(base, rule, found, ours=ours)
            if ours:
                curves += _curves(base, found)
    yield from curves


def _recalls(base: str, rule: str, found: list[Injection], *, ours: bool) -> Iterator[Told]:
    from_115 = [one for one in found if one.factor >= 1.15]
    at_110 = [one for one in found if one.factor == 1.1]
    for words, some, within, target in (
        ("from x1.15 in 12 steps", from_115, 12, "≥ 1.0"),
        ("at x1.10 in 20 steps", at_110, 20, "≥ 0.95"),
    ):
        seen = sum(one.steps <= within for one in some)
        recall, note = seen / len(some), _shares(seen, len(some))
        yield _row(f"{base}: recall {words}, {rule}", recall, "", target if ours else "", note)


def _curves(base: str, found: list[Injection]) -> Iterator[Told]:
    for factor in _FACTORS:
        steps = np.array([one.steps for one in found if one.factor == factor])
        curve = ", ".join(f"{within}: {np.mean(steps <= within):.2f}" for within in _CURVE)
        recall = float(np.mean(steps < _NEVER))
        yield _row(f"{base}: recall at x{factor:.2f} at last", recall, "", "", f"by steps {curve}")


def _injections(base: str, rule: str, options: argparse.Namespace) -> Iterator[Injection]:
    random = np.random.default_rng(options.seed)
    for number in range(SIZES[options.size].runs * len(_FACTORS)):
        factor = _FACTORS[number % len(_FACTORS)]
        series = made(options.seed * 100_000 + number) if base == "made" else healthy(base)
        worker = int(random.integers(series.roster.size))
        since = int(random.integers(10, 19))
        yield _judged(series.with_slow(worker, since, factor), rule, worker, since, factor)


def _judged(series: Series, rule: str, worker: int, since: int, factor: float) -> Injection:
    steps, false = _NEVER, set[int]()
    for step, slow in enumerate(RULES[rule](series)):
        for named in np.flatnonzero(slow).tolist():
            if named != worker or step < since:
                false.add(named)
            elif steps == _NEVER:
                steps = step - since + 1
    return Injection(factor, steps, len(false))


# --- made tables ---------------------------------------------------------------------------------


def tables(options: argparse.Namespace) -> Iterator[Told]:
    """Yield who is named in made tables without a slow worker, and missed in those with one."""
    each = SIZES[options.size].tables
    found = dict(slow_tables.rows(options.seed, each))
    for kind, one in found.items():
        note = (
            f"beside a slow one: {one.false_beside}; it is missed in {one.missed} of {one.tables}"
        )
        yield _row(f"tables, {kind}: healthy named", one.false, "tables", "≤ 0", note)
    count = each * len(found)
    for what, seen in (
        ("healthy named", sum(one.false for one in found.values())),
        ("others named beside a slow one", sum(one.false_beside for one in found.values())),
    ):
        yield _row(f"tables, all: {what}", seen, "tables", "≤ 0", _shares(seen, count))
    named = count - sum(one.missed for one in found.values())
    yield _row("tables, all: slow one named", named / count, "", "", _shares(named, count))


# --- 16,384 ranks --------------------------------------------------------------------------------


def scale(options: argparse.Namespace) -> Iterator[Told]:
    """Yield the CPU time of one step of many ranks, all judged, with slow ones among them."""
    random = np.random.default_rng(options.seed)
    size = np.arange(_RANKS)
    places = {"node": size // 8, "leaf": size // 256}
    roster = Roster(
        [str(one) for one in range(_RANKS)],
        size // 1024,
        [str(one) for one in range(16)],
        places,
        {kind: [str(one) for one in range(int(of.max()) + 1)] for kind, of in places.items()},
    )
    watch, spent = SlowWatch(roster), []
    for step in range(80):
        seconds = np.exp(0.01 * random.standard_t(3, _RANKS))
        # Later than at the first step, as else they were the same replica of each role.
        seconds[::1000] *= 1.3 if step >= 16 else 1.0
        started = time.process_time()
        watch.observe(step, seconds)
        spent.append(1000 * (time.process_time() - started))
    # The windows are full, and the slow ones are known.
    spent = spent[32:]
    note = f"{min(spent):.1f} to {max(spent):.1f}; every fourth step looks at all, else at suspects"
    yield _row("one step of 16,384 ranks", float(np.median(spent)), "CPU ms", "≤ 50", note)
    note = "median of the steps that look at all"
    yield _row("one such step", float(np.median(spent[3::4])), "CPU ms", "≤ 50", note)


# --- fleet ---------------------------------------------------------------------------------------


def fleet(options: argparse.Namespace) -> Iterator[Told]:
    """Yield false verdicts of a fleet in fixed noise, and the planted slow nodes that are found."""
    if not NAMES:
        raise SystemExit(_NO_TRACES)
    started = time.process_time()
    count = run_fleet(options.seed, SIZES[options.size].node_days)
    spent = time.process_time() - started
    # Of fewer node-days no false verdict says little.
    target = "≥ 30000" if options.size == "long" else ""
    yield _row("fleet: node-days", count.node_days, "", target, f"{spent:.0f} CPU s")
    for what, value in (
        ("healthy nodes isolated: named, with evidence", count.isolated),
        ("healthy nodes named slow, as advice", count.false),
    ):
        yield _row(f"fleet: {what}", value, "", "≤ 0", _interval(value, count.node_days))
    yield _row("fleet: planted slow nodes", count.planted, "")
    if count.planted:
        note = _shares(count.found, count.planted)
        yield _row("fleet: of them found", count.found / count.planted, "", "≥ 0.95", note)
    if count.latencies:
        steps = float(np.median(count.latencies))
        yield _row("fleet: steps until found, median", steps, "steps", "", _range(count.latencies))


def _interval(events: int, node_days: float) -> str:
    low, high = (10_000 / node_days * one for one in poisson_interval(events))
    return f"95 %: {low:.2f} to {high:.2f} in 10,000 node-days"


def _shares(some: int, of: int) -> str:
    low, high = binomial_interval(some, of)
    return f"{some} of {of}; 95 %: {low:.3f} to {high:.3f}"


def _range(values: list[int]) -> str:
    return f"{min(values)} to {max(values)}"


def gpus(options: argparse.Namespace) -> Iterator[Told]:
    """Yield what the judge of GPUs beside their peers costs, and finds."""
    node_days = 0.0
    for what, value, unit, target, note in slow_gpus.rows(
        options.seed, SIZES[options.size].gpu_days
    ):
        if what.startswith("node-days"):
            node_days = value
        elif what.startswith("healthy nodes"):
            note = _interval(int(value), node_days)
        yield _row(what, value, unit, target, note)


def poisson_interval(count: int) -> tuple[float, float]:
    """Return the exact 95 % interval of a rate of which so many events were seen."""
    return (
        0.0 if not count else _rate(lambda rate: 1 - _at_most(count - 1, rate), 0.025),
        _rate(lambda rate: 1 - _at_most(count, rate), 0.975 if count else 0.95),
    )


def binomial_interval(count: int, of: int) -> tuple[float, float]:
    """Return the exact 95 % interval (Clopper and Pearson) of a share that was seen in so many."""
    return (
        _share(lambda share: 1 - _fewer(count - 1, of, share), 0.025) if count else 0.0,
        _share(lambda share: 1 - _fewer(count, of, share), 0.975) if count < of else 1.0,
    )


def _fewer(count: int, of: int, share: float) -> float:
    """Return how probable it is that so many of all are seen, or fewer."""
    return sum(
        math.comb(of, one) * share**one * (1 - share) ** (of - one) for one in range(count + 1)
    )


def _share(probability: Callable[[float], float], wanted: float) -> float:
    return _rising(probability, wanted, 1.0)


def _at_most(count: int, rate: float) -> float:
    term = total = float(np.exp(-rate))
    for number in range(1, count + 1):
        term *= rate / number
        total += term
    return total


def _rate(probability: Callable[[float], float], wanted: float) -> float:
    return _rising(probability, wanted, 500.0)


def _rising(probability: Callable[[float], float], wanted: float, highest: float) -> float:
    """Return where a probability that rises from 0 on is as wanted."""
    low, high = 0.0, highest
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if probability(middle) < wanted else (low, middle)
    return low


# --- collectives ---------------------------------------------------------------------------------


def collectives(options: argparse.Namespace) -> Iterator[Told]:
    """Yield who is nominated by one look at collectives, and what a look at many ranks takes."""
    for what, value, unit, target, note in slow_collectives.rows(
        options.seed, SIZES[options.size].looks
    ):
        yield _row(what, value, unit, target, note)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=1, help="of everything that is made")
    parser.add_argument("--size", choices=tuple(SIZES), default="usual", help="how much is made")
    words = "as --size long: all node-days, more injections"
    parser.add_argument("--long", dest="size", action="store_const", const="long", help=words)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("traces", 5.0, public_traces),
        Part("injected", 180.0, injected),
        Part("tables", 150.0, tables),
        Part("scale", 5.0, scale),
        Part("gpus", 30.0, gpus),
        Part("fleet", 50.0, fleet),
        Part("collectives", 120.0, collectives),
    ],
    add_options=_add_options,
    quick={"size": "quick"},
)
