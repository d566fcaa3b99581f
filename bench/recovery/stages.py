"""Stages of a recovery in the recovery benchmark, as the job's ledger accounts for them."""

from collections.abc import Iterator, Sequence

from harness.table import Row, Series
from recovery.runs import Outcome

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
