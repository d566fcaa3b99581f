"""Recovery benchmark: from a fault to the next new step, beside other launchers in one run.

Every round starts everything anew, runs the same script of four ranks, and kills one in its stride.
A new step is one above all that every rank had completed before.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness.session import Benchmark, Part
from harness.table import Row, Series, Target, row
from recovery.fleet import Fleet, Shape
from recovery.launchers import Peer, dlrover_run, ft_launcher, torchrun, torchrun_as_shipped
from recovery.marks import MARKS, Recovery
from recovery.runs import (
    BOUND_S,
    Outcome,
    Watched,
    boot_ns,
    everstep_outcome,
    kill,
    peer_outcome,
    tell,
)

# --- a rank is killed ----------------------------------------------------------------------------

_PROCESSES = 4
_WITHIN_S = Target(1.5)
_BESIDE_TORCHRUN = Target(0.25)
_LOST = Target(1)


def after_process(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a killed rank, under Everstep and each peer, in turn in every round."""
    repeats, standby = options.repeats, options.standby
    shape = Shape(processes=_PROCESSES, standby=standby)
    ours: list[Outcome] = []
    cold: list[Outcome] = []
    peers: dict[str, list[Outcome]] = {}
    for _ in range(repeats):
        ours.append(everstep_outcome(shape, killed_rank))
        if standby:
            cold.append(everstep_outcome(replace(shape, standby=False), killed_rank))
        for make in (torchrun, ft_launcher, dlrover_run):
            _take(make, peers)
    _take(torchrun_as_shipped, peers)  # once: it takes the whole bound
    everstep = series("everstep", ours)
    yield everstep.figure(_WITHIN_S)
    beside = {name: series(name, outcomes) for name, outcomes in peers.items()}
    yield everstep.against(beside["torchrun"], _BESIDE_TORCHRUN)
    yield lost("everstep", ours).figure(_LOST)
    if cold:
        yield series("everstep, no standbys", cold).figure()
        yield lost("everstep, no standbys", cold).figure()
    for name, outcomes in peers.items():
        yield beside[name].figure()
        yield lost(name, outcomes).figure()
    yield from ledger_figures(ours)
    yield from _passed("everstep", [one.recovery for one in ours])
    yield from _passed("torchrun", [one.recovery for one in peers["torchrun"]])


def killed_rank(_: Fleet, watched: Watched) -> int:
    """SIGKILL a rank; return when."""
    return kill(watched.victim())


def series(name: str, outcomes: Sequence[Outcome]) -> Series:
    """Return the times to the next new step; the name says where none came."""
    failed = [one.why_not for one in outcomes if one.why_not]
    of = f"{len(failed)} of {len(outcomes)}"
    note = f" ({of} never, taken as {BOUND_S:g}: {failed[0]})" if failed else ""
    seconds = [one.recovery.seconds for one in outcomes]
    return Series(f"{name}: killed rank → next new step{note}", seconds)


def lost(name: str, outcomes: Sequence[Outcome]) -> Series:
    """Return the steps that had to be made again."""
    steps = [float(one.recovery.lost_steps) for one in outcomes]
    return Series(f"{name}: lost steps", steps, "steps")


def _take(make: Callable[[int], Peer], into: dict[str, list[Outcome]]) -> None:
    peer = make(_PROCESSES)
    try:
        outcome = peer_outcome(peer, _PROCESSES)
    except SystemExit as error:  # it does not even start here; the row says why
        why = str(error).splitlines()[0]
        outcome = tell(peer.name, Outcome(Recovery(BOUND_S, 0, {}), why))
    into.setdefault(peer.name, []).append(outcome)


def _passed(name: str, recoveries: Sequence[Recovery]) -> Iterator[Row]:
    """Yield what the last rank spent on each part of its way, on the ranks' own clock."""
    came = [one for one in recoveries if set(MARKS) <= set(one.marks)]
    if not came:
        return
    ways = [[*(one.marks[mark] for mark in MARKS), one.seconds] for one in came]
    for at, word in enumerate(("its process begins", *MARKS[1:], "first new step")):
        spent = [way[at] - (way[at - 1] if at else 0.0) for way in ways]
        yield Series(f"{name}, last rank: until {_WORDS.get(word, word)}", spent).figure()


_WORDS = {
    "imported": "torch is imported",
    "joined": "the process group is there",
    "wrapped": "the model is in DDP",
    "restored": "the state is restored",
}


# --- a node is lost ------------------------------------------------------------------------------

_BEYOND_DETECTION_S = Target(3.0)


def after_node(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a node that is lost with all that ran on it, while a spare waits."""
    shape = Shape(nodes=2, spares=1, processes=2, standby=options.standby)
    outcomes = [everstep_outcome(shape, _lost_node) for _ in range(options.repeats)]
    never = [one.why_not for one in outcomes if one.why_not]
    note = f" ({len(never)} of {len(outcomes)} never: {never[0]})" if never else ""
    seconds = [one.recovery.seconds for one in outcomes]
    yield Series(f"everstep: lost node → next new step{note}", seconds).figure()
    yield Series("everstep: lost node → detected", [one.detected_s for one in outcomes]).figure()
    beyond = [_beyond_s(one) for one in outcomes]
    yield Series("everstep: detected → next new step", beyond).figure(_BEYOND_DETECTION_S)
    yield lost("everstep, node", outcomes).figure()
    yield from ledger_figures(outcomes)


def _lost_node(fleet: Fleet, watched: Watched) -> int:
    """SIGKILL everything on the node of a rank; return when."""
    name = fleet.node_of(watched.victim())
    at_ns = boot_ns()
    fleet.kill_node(name)
    return at_ns


def _beyond_s(outcome: Outcome) -> float:
    return outcome.recovery.seconds - outcome.detected_s


# --- the controller is killed during a recovery, and started again at once -----------------------

_ADDED_S = Target(2.0)
# After the rank's death: while it decides, while ranks stop, while new ones start.
_DELAYS_S = (0.01, 0.1, 0.5)


def after_controller(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what the controller's death adds to what the rank's costs, round by round."""
    shape = Shape(standby=options.standby)
    plain: list[Outcome] = []
    killed: list[Outcome] = []
    for _, delay_s in zip(range(options.repeats), itertools.cycle(_DELAYS_S), strict=False):
        plain.append(everstep_outcome(shape, killed_rank))
        killed.append(everstep_outcome(shape, _with_controller(delay_s)))
    yield series("everstep", plain).figure()
    yield series("everstep, controller killed too", killed).figure()
    added = [k.recovery.seconds - p.recovery.seconds for k, p in zip(killed, plain, strict=True)]
    yield Series("everstep: the controller's death adds", added).figure(_ADDED_S)


def _with_controller(delay_s: float) -> Callable[[Fleet, Watched], int]:
    def fault(fleet: Fleet, watched: Watched) -> int:
        at_ns = killed_rank(fleet, watched)
        time.sleep(delay_s)
        fleet.kill_controller()
        fleet.start_controller()
        return at_ns

    return fault


# --- stages of a recovery, as the ledger accounts for them ---------------------------------------

# The ledger's categories in the words of a recovery, in the order in which they come.
_STAGES = {
    "inc.detect": "detect",
    "inc.diagnose": "decide",
    "inc.drain": "stop",
    "inc.schedule": "plan",
    "inc.capacity": "wait for a node",
    "inc.backoff": "wait for the next attempt",
    "inc.env": "start",
    "inc.init": "rendezvous, with all that the script does until it attaches",
    "inc.restore": "restore",
    "inc.warmup": "warm-up",
}


def ledger_figures(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Yield each stage; a category that has no word here comes last, under its own name."""
    came = [one for one in outcomes if not one.why_not]
    if not came:
        return
    names = {name for one in came for name in one.stages}
    known = [name for name in _STAGES if name in names]
    for name in [*known, *sorted(names - set(known))]:
        spent = [one.stages.get(name, 0.0) for one in came]
        yield Series(f"ledger {name}: {_STAGES.get(name, 'of no stage')}", spent).figure()


def _part(
    name: str, seconds: float, measure: Callable[[argparse.Namespace], Iterator[Row]]
) -> Part:
    def with_load(options: argparse.Namespace) -> Iterator[Row]:
        yield row(f"{name}: load average before", [os.getloadavg()[0]], "processes")
        yield from measure(options)

    return Part(name, seconds, with_load)


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        _part("process", 700.0, after_process),
        _part("node", 150.0, after_node),
        _part("controller", 300.0, after_controller),
    ],
    repeats=5,
    add_options=lambda parser: parser.add_argument(
        "--standby",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with warm standby processes, as is the default of everstep run",
    ),
    quick={"repeats": 1},
)
