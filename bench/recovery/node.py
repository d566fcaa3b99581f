"""Recovery part: a node is lost with all that ran on it, while a spare waits."""

from collections.abc import Iterator

from harness.table import Row, Series, Target
from recovery.fleet import Fleet, Shape
from recovery.process import lost
from recovery.runs import Outcome, Watched, boot_ns, everstep_outcome
from recovery.stages import ledger_figures

_BEYOND_DETECTION_S = Target(3.0)


def measure(repeats: int, standby: bool) -> Iterator[Row]:
    """Yield the figures: two nodes of two ranks train, a third is the spare."""
    shape = Shape(nodes=2, spares=1, processes=2, standby=standby)
    outcomes = [everstep_outcome(shape, _lost_node) for _ in range(repeats)]
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
