"""Recovery part: the controller is killed during a recovery, and started again at once."""

import itertools
import time
from collections.abc import Callable, Iterator

from harness.table import Row, Series, Target
from recovery.fleet import Fleet, Shape
from recovery.process import killed_rank, series
from recovery.runs import Outcome, Watched, everstep_outcome

_ADDED_S = Target(2.0)
# After the rank's death: while it decides, while ranks stop, while new ones start.
_DELAYS_S = (0.01, 0.1, 0.5)


def measure(repeats: int, standby: bool) -> Iterator[Row]:
    """Yield what the controller's death adds to what the rank's costs, round by round."""
    shape = Shape(standby=standby)
    plain: list[Outcome] = []
    killed: list[Outcome] = []
    for _, delay_s in zip(range(repeats), itertools.cycle(_DELAYS_S), strict=False):
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
