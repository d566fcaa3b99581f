"""How often a job is snapshotted: every step, unless that costs more than it saves.

The interval that loses least is sqrt(2 w M) of training (Young 1974): w is what one snapshot stalls
training, M the mean time between faults, and a fault costs half an interval on average.
"""

import math
from dataclasses import dataclass
from statistics import median_low

from everstep_controller.core.facts import Settings
from everstep_controller.core.ledger import REFERENCE_STEPS
from everstep_controller.core.moving import PLANNED_CAUSES
from everstep_controller.core.state import JobRecord

_S = 1_000_000_000
# Nothing is changed before this many steps of a generation have been measured, and this long.
_STEPS_MIN = REFERENCE_STEPS
_CHANGE_NS = 60 * _S
# A change that is smaller than this factor is not worth one: so near the best, it loses 2 % less.
_FACTOR = 1.2
# Failures of a node in a day before the job has had any of its own: 6.5 in 1,000 node-days
# (Kokolis et al., "Revisiting Reliability in Large-Scale ML Research Clusters", 2024, RSC-1).
_FAULTS_PER_NODE_NS = 6.5e-3 / 86_400e9
# All ranks learn of a change within this time; whoever does not takes a step that others skip.
_LEAD_NS = 5 * _S


@dataclass(frozen=True, slots=True)
class Cost:
    """What was measured of a job: nanoseconds."""

    steps: int
    step_ns: int
    stall_ns: int
    between_faults_ns: float


@dataclass(frozen=True, slots=True)
class Cadence:
    """A snapshot at every step that is a multiple of ``every``, from ``start`` on; and why."""

    every: int = 1
    start: int = 0
    reason: str = "every step is snapshotted until its cost is known"
    changed_ns: int = 0


def cost(job: JobRecord, now_ns: int) -> Cost:
    """Return what the ledger of a job says about its snapshots."""
    recent = job.ledger.steps[-REFERENCE_STEPS:]
    works = [step.end_ns - step.start_ns - step.stall_ns for step in recent]
    # A step without a stall was not snapshotted.
    stalls = [step.stall_ns for step in recent if step.stall_ns]
    faults = sum(incident.cause not in PLANNED_CAUSES for incident in job.incidents)
    nodes = max(1, len(job.members))
    # One fault that has not come yet, in the time in which nodes like these have one.
    prior_ns = 1 / (_FAULTS_PER_NODE_NS * nodes)
    between_ns = (prior_ns + max(0, now_ns - job.created_ns)) / (1 + faults)
    steps = len(job.ledger.reference_ns)
    return Cost(steps, _median(works), _median(stalls), between_ns)


def _median(values: list[int]) -> int:
    return median_low(values) if values else 0


def decide(before: Cadence, job: JobRecord, settings: Settings, now_ns: int) -> Cadence:
    """Return how often to snapshot from now on: as before, unless it is worth a change."""
    least, most = bounds(job, settings)
    every = min(max(before.every, least), most)
    recent = now_ns - before.changed_ns < _CHANGE_NS
    if every == before.every and (recent or len(job.ledger.reference_ns) < _STEPS_MIN):
        return before
    known = cost(job, now_ns)
    reason = before.reason if every == before.every else f"{_often(every)}, as the job asks"
    if not recent and known.steps >= _STEPS_MIN and known.step_ns:
        wanted = min(max(best(known, settings), least), most)
        if wanted != every and max(wanted, every) >= _FACTOR * min(wanted, every):
            every, reason = wanted, _why(known, wanted)
    if every == before.every:
        return before
    lead = math.ceil(_LEAD_NS / known.step_ns) + 2 if known.step_ns else 2
    newest = -1 if job.last_step is None else job.last_step
    start = -(-(newest + lead) // every) * every
    return Cadence(every, start, reason, now_ns)


def bounds(job: JobRecord, settings: Settings) -> tuple[int, int]:
    """Return the fewest and most steps between snapshots: the job's word within the operator's."""
    least = max(1, job.snapshot_every_min, settings.snapshot_every_min)
    limits = [n for n in (job.snapshot_every_max, settings.snapshot_every_max) if n]
    return least, max(least, min(limits, default=1 << 62))


def best(known: Cost, settings: Settings) -> int:
    """Return the number of steps between snapshots that loses least.

    It is Young's, but where the operator's settings make an exception for what costs next to
    nothing, and for intervals that are longer than people bear to lose.
    """
    if known.stall_ns < settings.snapshot_cost_ignored_ratio * known.step_ns:
        return 1
    gap_ns = settings.snapshot_gap_ns_max
    most = max(1, gap_ns // known.step_ns) if gap_ns else math.inf
    return int(min(formula(known), most))


def formula(known: Cost) -> int:
    """Return k* = max(1, sqrt(2 w M) / t_step), in whole steps."""
    return max(1, round(math.sqrt(2 * known.stall_ns * known.between_faults_ns) / known.step_ns))


def _often(every: int) -> str:
    return "every step is snapshotted" if every == 1 else f"one step in {every} is snapshotted"


def _why(known: Cost, every: int) -> str:
    stall_ms, step_ms = known.stall_ns / 1e6, known.step_ns / 1e6
    hours = known.between_faults_ns / 3600e9
    return (
        f"{_often(every)}: a snapshot stalls {stall_ms:.1f} ms of a step of {step_ms:.0f} ms, and "
        f"a fault is expected every {hours:.1f} h"
    )
