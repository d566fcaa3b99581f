"""Truth about a job whose script does without the library, as the ledger should have it.

It is made from what the script itself knows, by the published rules of the categories alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import median_low

from everstep_controller.core.accounting.categories import Category
from everstep_sim.unchanged import ScriptHistory, TrueStep

# The excess of so many steps after a start is warm-up; what is usual is known from so many on.
_WARM_UP, _KNOWN, _NEWEST = 3, 5, 101
# From the fault to the processes of the next generation: nothing that the script sees.
_STAGES = tuple(
    f"inc.{name}"
    for name in ("detect", "diagnose", "drain", "backoff", "schedule", "env", "capacity")
)
_RESTART = "inc.* before the processes"
_FIRST = ("init.queue", "init.env")
_BEGIN = "init.* before the processes"


def by_what_a_script_knows(
    totals: Mapping[Category, int] | Mapping[str, int],
) -> dict[str, int]:
    """Return the categories of a ledger, those as one of which a script knows only the sum."""
    known = Counter[str]()
    for name, amount in totals.items():
        known[_RESTART if name in _STAGES else _BEGIN if name in _FIRST else name] += amount
    return dict(known)


def true_totals(history: ScriptHistory, begun_ns: int, ended_ns: int) -> dict[str, int]:
    """Return where the time of the job went from its first launcher to its end, in ns."""
    found = Counter[str]()
    before_ns = begun_ns
    for generation, started_ns in sorted(history.started_ns.items()):
        again = generation != min(history.started_ns)
        found[_RESTART if again else _BEGIN] += started_ns - before_ns
        killed_ns = history.killed_ns.get(generation)
        steps = [step for step in history.steps if step.generation == generation]
        until_ns = ended_ns if killed_ns is None else killed_ns
        first_ns = history.first_begun_ns[generation] if steps else until_ns
        found["inc.init" if again else "init.proc"] += first_ns - started_ns
        if steps:
            rest = "gap" if killed_ns is None else "lost.inflight"
            found[rest] += until_ns - steps[-1].ended_ns
        before_ns = until_ns
    found.update(_of_steps(history.steps))
    return {name: amount for name, amount in found.items() if amount}


def lost_steps(steps: Sequence[TrueStep]) -> set[TrueStep]:
    """Return the steps that were made again, for a later generation went on before them."""
    lost: set[TrueStep] = set()
    lowest: int | None = None
    for step in reversed(steps):
        if lowest is not None and step.step >= lowest:
            lost.add(step)
        lowest = step.step if lowest is None else min(lowest, step.step)
    return lost


def _of_steps(steps: Sequence[TrueStep]) -> Counter[str]:
    found, lost, before = Counter[str](), lost_steps(steps), list[int]()
    for generation, mine in groupby(steps, key=lambda step: step.generation):
        made = list(mine)
        took = [step.ended_ns - step.begun_ns for step in made]
        warms_up = "init.warmup" if generation == steps[0].generation else "inc.warmup"
        for place, (step, took_ns) in enumerate(zip(made, took, strict=True)):
            over_ns = max(0, took_ns - _usual_ns(took, place, before))
            if step in lost:
                found["lost.recompute"] += took_ns
            else:
                found["productive"] += took_ns - over_ns
                found[warms_up if place < _WARM_UP else "slow.unattributed"] += over_ns
        before = [*before, *took][-_NEWEST:]
    return found


def _usual_ns(took: Sequence[int], place: int, before: Sequence[int]) -> int:
    """Return what a step should have taken: the median of the newest hundred of its generation.

    The first ones of a generation are measured by those of the generation before.
    """
    own, place = took[_WARM_UP:], place - _WARM_UP
    if place < 0:
        return median_low(before or took[:_WARM_UP])
    if len(own) < _KNOWN:
        return own[place]
    return median_low(own[max(0, place - _NEWEST) : place] if place >= _KNOWN else own[:_KNOWN])


def differences(
    told: Mapping[str, int], true: Mapping[str, int], late_ns: int = 0
) -> dict[str, tuple[float, float]]:
    """Return the categories that differ by more than 2 % and 100 ms, with both in seconds.

    ``late_ns``: by how much the machine was late in all, where it had other things to do.
    """
    return {
        name: (told.get(name, 0) / 1e9, true.get(name, 0) / 1e9)
        for name in sorted({*told, *true})
        if abs(told.get(name, 0) - true.get(name, 0)) > max(1e8, 0.02 * true.get(name, 0)) + late_ns
    }
