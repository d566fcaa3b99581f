"""Recovery part: a rank is killed, under Everstep and under each peer, in turn in every round."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from harness.table import Row, Series, Target
from recovery.fleet import Fleet, Shape
from recovery.launchers import Peer, dlrover_run, ft_launcher, torchrun, torchrun_as_shipped
from recovery.marks import MARKS, Recovery
from recovery.runs import BOUND_S, Outcome, Watched, everstep_outcome, kill, peer_outcome, tell
from recovery.stages import ledger_figures

_PROCESSES = 4
_WITHIN_S = Target(1.5)
_BESIDE_TORCHRUN = Target(0.25)
_LOST = Target(1)


def measure(repeats: int, standby: bool) -> Iterator[Row]:
    """Yield the figures."""
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
