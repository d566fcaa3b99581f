"""Cadence of a job's snapshots: every step, unless that costs more than it saves.

The interval that loses least is sqrt(2 w M) of training (Young 1974): w is what one snapshot stalls
training, M the mean time between faults, and a fault costs half an interval on average.
"""

import math
from dataclasses import dataclass
from statistics import median_low

from everstep_controller.core.accounting.ledger import REFERENCE_STEPS
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.snapshots import Cadence

_S = 1_000_000_000

# Nothing is changed before this many steps of a generation have been measured, and this long.
_STEPS_MIN = REFERENCE_STEPS

_CHANGE_NS = 60 * _S

# Going back to more snapshots is tried less often, each time later, up to four hours. Where they
# are dear only because they come so close (no slot is free yet), rare ones look cheap, and the two
# would take turns.
_BACK_NS = 900 * _S

_DOUBLINGS_MAX = 4

# A change that is smaller than this factor is not worth one: so near the best, it loses 2 % less.
_FACTOR = 1.2

# What was too dear to ignore is ignored again only when it costs half of that.
_CHEAP_AGAIN = 0.5

# Failures of a node in a day before the job has had any of its own: 6.5 in 1,000 node-days
# (Kokolis et al., "Revisiting Reliability in Large-Scale ML Research Clusters", 2024, RSC-1).
_FAULTS_PER_NODE_NS = 6.5e-3 / 86_400e9

# All ranks learn of a change within this time; whoever does not takes a step that others skip.
_LEAD_NS = 5 * _S


@dataclass(frozen=True, slots=True)
class SnapshotCost:
    """Measured cost of a job's steps and snapshots, in nanoseconds."""

    steps: int
    step_ns: int
    stall_ns: int
    between_faults_ns: float


def measure_cost(job: JobRecord, faults: int, now_ns: int) -> SnapshotCost:
    """Return what the steps and snapshots of a job have cost that had so many faults."""
    recent = job.ledger.steps[-REFERENCE_STEPS:]
    works = [step.end_ns - step.start_ns - step.stall_ns for step in recent]
    nodes = max(1, len(job.generation.members))
    # One fault that has not come yet, in the time in which nodes like these have one.
    prior_ns = 1 / (_FAULTS_PER_NODE_NS * nodes)
    between_ns = (prior_ns + max(0, now_ns - job.created_ns)) / (1 + faults)
    step_ns = median_low(works) if works else 0
    return SnapshotCost(
        len(job.ledger.reference_ns), step_ns, job.snapshot_costs.usual_ns, between_ns
    )


def decide_cadence(
    before: Cadence, job: JobRecord, faults: int, settings: Settings, now_ns: int
) -> Cadence:
    """Return how often to snapshot from now on: as before, unless it is worth a change."""
    least, most = interval_bounds(job, settings)
    every = min(max(before.every, least), most)
    age_ns = now_ns - before.changed_ns
    due = age_ns >= _CHANGE_NS and len(job.ledger.reference_ns) >= _STEPS_MIN
    if every == before.every and not due:
        return before
    known = measure_cost(job, faults, now_ns)
    reason = before.reason if every == before.every else f"{_often(every)}, as the job asks"
    if due and known.step_ns and known.stall_ns:
        wanted = min(max(best_interval(known, settings, every), least), most)
        if _worth(every, wanted, age_ns, before.returns):
            every, reason = wanted, _why(known, wanted)
    if every == before.every:
        return before
    lead = math.ceil(_LEAD_NS / known.step_ns) + 2 if known.step_ns else 2
    newest = -1 if job.lineage.last_step is None else job.lineage.last_step
    start = -(-(newest + lead) // every) * every
    return Cadence(every, start, reason, now_ns, before.returns + (every < before.every))


def _worth(every: int, wanted: int, age_ns: int, returns: int) -> bool:
    """Return whether what would be best is worth a change, this long after the last one."""
    if wanted == every or max(wanted, every) < _FACTOR * min(wanted, every):
        return False
    return wanted > every or age_ns >= _BACK_NS << min(returns, _DOUBLINGS_MAX)


def interval_bounds(job: JobRecord, settings: Settings) -> tuple[int, int]:
    """Return the fewest and most steps between snapshots: the job's word within the operator's."""
    least = max(1, job.spec.snapshot_every_min, settings.snapshot_every_min)
    limits = [n for n in (job.spec.snapshot_every_max, settings.snapshot_every_max) if n]
    return least, max(least, min(limits, default=1 << 62))


def best_interval(known: SnapshotCost, settings: Settings, every: int = 1) -> int:
    """Return the number of steps between snapshots that loses least, where it is ``every`` now.

    It is Young's, but where the operator's settings make an exception for what costs next to
    nothing, and for intervals that are longer than people bear to lose.
    """
    ignored = settings.snapshot_cost_ignored_ratio * (1.0 if every == 1 else _CHEAP_AGAIN)
    if known.stall_ns < ignored * known.step_ns:
        return 1
    gap_ns = settings.snapshot_interval_ns_max
    most = max(1, gap_ns // known.step_ns) if gap_ns else math.inf
    return int(min(young_interval(known), most))


def young_interval(known: SnapshotCost) -> int:
    """Return k* = max(1, sqrt(2 w M) / t_step), in whole steps."""
    return max(1, round(math.sqrt(2 * known.stall_ns * known.between_faults_ns) / known.step_ns))


def _often(every: int) -> str:
    return "every step is snapshotted" if every == 1 else f"one step in {every} is snapshotted"


def _why(known: SnapshotCost, every: int) -> str:
    stall_ms, step_ms = known.stall_ns / 1e6, known.step_ns / 1e6
    hours = known.between_faults_ns / 3600e9
    return (
        f"{_often(every)}: a snapshot stalls {stall_ms:.1f} ms of a step of {step_ms:.0f} ms, and "
        f"a fault is expected every {hours:.1f} h"
    )
