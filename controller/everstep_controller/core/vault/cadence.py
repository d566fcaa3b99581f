"""Cadence of a job's snapshots: every step, unless that costs more than it saves.

Snapshots may take a small share of training, whatever they save: then a failure costs the step that
it happens in, or as few as that share allows. They may take more where faults are frequent: the
interval that loses least is sqrt(2 w M) of training (Young 1974): w is what one snapshot stalls
training, M the mean time between faults, and a fault costs half an interval on average. They are
never so frequent that ranks wait for slots: a slot is taken until a newer step is recoverable.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median_low

from everstep_common.reports import Turnover
from everstep_controller.core.accounting.ledger import REFERENCE_STEPS
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.snapshots import COSTS_KEPT, Cadence

_S = 1_000_000_000

# Nothing is changed before this many steps of a generation have been measured, and this long.
_STEPS_MIN = REFERENCE_STEPS

# So many steps after a change tell how long one takes since.
_STEPS_TOLD = 20

_CHANGE_NS = 60 * _S

# Going back to more snapshots is tried less often, each time later, up to four hours. Where they
# are dear only because they come so close (no slot is free yet), rare ones look cheap, and the two
# would take turns.
_BACK_NS = 900 * _S

_DOUBLINGS_MAX = 4

# What the first steps of a job cost is no measure of the later ones (caches, compilers, loaders):
# a decision of this time is looked at again after a minute, once.
_EARLY_NS = 300 * _S

# So many snapshots have to follow a time that is no measure, which costs and slots then go by; but
# a minute is enough.
_COSTS_ANEW = 2 * COSTS_KEPT

# A change that is smaller than this factor is not worth one: so near the best, it loses 2 % less.
# It also keeps the noise of measured costs from changing anything.
_FACTOR = 1.2

# Snapshots become more frequent again when they cost less than their share by this factor.
_CHEAPER = 1.5

# Failures of a node in a day before the job has had any of its own: 6.5 in 1,000 node-days
# (Kokolis et al., "Revisiting Reliability in Large-Scale ML Research Clusters", 2024, RSC-1).
_FAULTS_PER_NODE_NS = 6.5e-3 / 86_400e9

# All ranks learn of a change within this time; whoever does not takes a step that others skip.
_LEAD_NS = 5 * _S

# So long no newer step becomes recoverable, though ranks save steps, before they are out of phase.
_APART_NS = _S // 2

# Ranks that save each step hear of a rule at each, and those that meet at each meeting.
_NEAR_LEAD_NS = _S // 2

# The newest row of progress is no older than this while ranks step: it tells the steps of a second.
_ROW_NS = _S

# A slot with a step that some rank has passed is free again within this time, where nobody measures
# it: agents tell of a step without all its replicas a second late.
_MEETING_NS = 2 * _S


@dataclass(frozen=True, slots=True)
class SnapshotCost:
    """Measured cost of a job's steps and snapshots, in nanoseconds."""

    step_ns: int
    stall_ns: int
    between_faults_ns: float

    @property
    def is_known(self) -> bool:
        """Return whether both steps and snapshots have been measured."""
        return self.step_ns > 0 and self.stall_ns > 0


def measure_cost(job: JobRecord, failures_ns: Sequence[int], now_ns: int) -> SnapshotCost:
    """Return what a job's steps and snapshots have cost; it failed then, oldest first."""
    between_ns = _between_faults_ns(job, failures_ns, now_ns)
    return SnapshotCost(_work_ns(job), job.snapshot_costs.usual_ns, between_ns)


def _work_ns(job: JobRecord) -> int:
    """Return how long a step takes as a rule, without its snapshot; 0 while none is known."""
    recent = job.ledger.steps[-REFERENCE_STEPS:]
    works = [step.work_ns for step in recent]
    return median_low(works) if works else 0


def _between_faults_ns(job: JobRecord, failures_ns: Sequence[int], now_ns: int) -> float:
    """Return how long a job is expected to train until its next fault.

    Before its first one, nodes like its own say it. After that only the job does, for failures
    differ by orders of magnitude from one job to the next: the shortest mean time of its newest
    two, three, four … failures. So three of them within minutes count at once, and count less with
    each hour without another; one alone may be chance.
    """
    if not failures_ns:
        nodes = max(1, len(job.generation.members))
        return 1 / (_FAULTS_PER_NODE_NS * nodes) + max(0, now_ns - job.created_ns)
    # From the end of the failure before them, or from the beginning, until now.
    since_ns = [*reversed(failures_ns[:-1]), job.created_ns]
    means = [(now_ns - at_ns) / count for count, at_ns in enumerate(since_ns, start=1)]
    return max(1.0, min(means[1:] or means))


@dataclass(frozen=True, slots=True)
class CadenceBasis:
    """Basis of a cadence beside the job itself: its failures, the operator's word, its slots."""

    failures_ns: Sequence[int]
    settings: Settings
    # How long slots are taken where they are longest; None: not known.
    turnover: Turnover | None = None
    # Until when the nodes had more to do than to train, as while they make warm standbys.
    busy_until_ns: int = 0


def decide_cadence(before: Cadence, job: JobRecord, basis: CadenceBasis, now_ns: int) -> Cadence:
    """Return how often to snapshot from now on: as before, unless it is worth a change."""
    if before.usual_every:
        return before
    least, most = interval_bounds(job, basis.settings)
    kept = max(_steps_of_gap(before, job), least)
    if kept < before.every:
        reason = _why_kept(kept, before.gap_ns, _pace_ns(job, _STEPS_TOLD))
        start, returns = first_step_ahead(job), before.returns + 1
        return Cadence(kept, start, reason, now_ns, returns, corrected=True)
    every, failures_ns = min(max(before.every, least), most), basis.failures_ns
    # What a snapshot costs is known from the generation that failed.
    failed = every > 1 and bool(failures_ns) and failures_ns[-1] > before.changed_ns
    reason = before.reason if every == before.every else f"{_often(every)}, as the job asks"
    gap_ns, decided_ns = every * _pace_ns(job), 0
    calm = now_ns - basis.busy_until_ns >= min(_COSTS_ANEW * gap_ns, _CHANGE_NS)
    if failed or (calm and _is_measured(before, job, now_ns)):
        known = measure_cost(job, failures_ns, now_ns)
        taken = slots_interval(known, basis.turnover, gap_ns, every)
        wanted = min(max(best_interval(known, basis.settings, every), taken, least), most)
        due = wanted < every if failed else _is_due(before, job, wanted < every, now_ns)
        if due and known.is_known and max(wanted, every) >= _FACTOR * min(wanted, every):
            every, reason = wanted, _why(known, wanted, basis.turnover if wanted == taken else None)
            decided_ns = wanted * known.step_ns
    if every == before.every:
        return before
    returns = before.returns + (every < before.every and not failed)
    return Cadence(every, first_step_ahead(job), reason, now_ns, returns, gap_ns=decided_ns)


def _steps_of_gap(before: Cadence, job: JobRecord) -> int:
    """Return in how many steps the time passes that was decided between two snapshots.

    Where each step was snapshotted, what a snapshot took is taken off what a step took. But it may
    be time in which the step would have waited anyway: for data, for the others, for a clock. Then
    steps without a snapshot take longer than was concluded, and a failure would cost more.
    """
    newest, told = job.lineage.last_step, before.start + _STEPS_TOLD
    if not before.gap_ns or newest is None or not told <= newest < told + REFERENCE_STEPS:
        return before.every
    pace_ns = _pace_ns(job, _STEPS_TOLD)
    if before.every * pace_ns < _CHEAPER * before.gap_ns:
        return before.every
    return max(1, before.gap_ns // pace_ns)


@dataclass(frozen=True, slots=True)
class SnapshotPhase:
    """Whether ranks save different steps: since when none of theirs can become recoverable."""

    step: int | None = None
    # None: no rank has saved a step that another one has passed.
    apart_since_ns: int | None = None

    def after(self, step: int | None, dead_steps: Collection[int], now_ns: int) -> "SnapshotPhase":
        """Return the phase by the recoverable step, and by steps that some rank has passed."""
        if not dead_steps:
            return SnapshotPhase(step)
        since_ns = self.apart_since_ns if step == self.step else None
        return SnapshotPhase(step, now_ns if since_ns is None else since_ns)

    def is_apart(self, now_ns: int) -> bool:
        """Return whether ranks are out of phase for good, and not by one step that one missed."""
        since_ns = self.apart_since_ns
        return since_ns is not None and now_ns - since_ns >= _APART_NS

    @property
    def looks_again_s(self) -> float | None:
        """Return after how long to decide again, news or not; None: there is no need."""
        return None if self.apart_since_ns is None else _APART_NS / _S


def bring_together(
    before: Cadence, job: JobRecord, phase: SnapshotPhase, turnover: Turnover | None, now_ns: int
) -> Cadence:
    """Return a cadence at which all ranks have a free slot again, while they are out of phase.

    Ranks that save different steps fill their slots with what can never be common, and what frees
    it is the next commit of another one. So all of them take the same few steps, ahead of all of
    them and as far apart as slots need to get free.
    """
    meets, pace_ns = before.usual_every > 0, _pace_ns(job)
    # A new generation, whose rules begin with its first step, has free slots and is in phase.
    begins = before.start == 0
    if meets and (begins or (phase.step is not None and phase.step >= before.start)):
        every, lead_ns = before.usual_every, _NEAR_LEAD_NS + before.every * pace_ns
        start = 0 if begins else _next_start(job, lead_ns, now_ns)
        reason, gap_ns = f"{_often(every)} again", before.gap_ns
        return Cadence(every, start, reason, now_ns, before.returns, gap_ns=gap_ns)
    apart_ns = _MEETING_NS if turnover is None else min(turnover.p99_ns, _MEETING_NS)
    tried_ns = 4 * before.every * pace_ns + _NEAR_LEAD_NS
    known = not meets or now_ns - before.changed_ns >= tried_ns
    if not (known and phase.is_apart(now_ns)):
        return before
    every = max(2 * before.every, _steps_in(job, apart_ns))
    # Those that skip steps hear of it as late as of any other change.
    start = _next_start(job, _NEAR_LEAD_NS, now_ns) if before.every == 1 else first_step_ahead(job)
    start = -(-start // every) * every
    reason = (
        f"ranks have saved different steps, none of which can be restored: one step in {every} is "
        f"snapshotted from step {start} on, until all have the same one"
    )
    usual = before.usual_every or before.every
    return Cadence(every, start, reason, now_ns, before.returns, usual, before.gap_ns)


def _is_measured(before: Cadence, job: JobRecord, now_ns: int) -> bool:
    enough = len(job.ledger.reference_ns) >= _STEPS_MIN
    return enough and now_ns - before.changed_ns >= _CHANGE_NS


def _is_due(before: Cadence, job: JobRecord, more: bool, now_ns: int) -> bool:
    """Return whether it is time for fewer snapshots, or for more of them."""
    early = not before.returns and before.changed_ns - job.created_ns < _EARLY_NS
    wait_ns = _CHANGE_NS
    if before.corrected or (more and not early):
        wait_ns = _BACK_NS << min(before.returns, _DOUBLINGS_MAX)
    return now_ns - before.changed_ns >= wait_ns


def first_step_ahead(job: JobRecord, lead_ns: int = _LEAD_NS) -> int:
    """Return the first step that is ahead of all ranks: until then the rule before holds."""
    newest = -1 if job.lineage.last_step is None else job.lineage.last_step
    return newest + _steps_in(job, lead_ns) + 2


def _next_start(job: JobRecord, lead_ns: int, now_ns: int) -> int:
    """Return the same with a shorter lead, which begins now and not with the newest row."""
    told_ns = job.ledger.steps[-1].end_ns if job.ledger.steps else now_ns
    return first_step_ahead(job, min(max(0, now_ns - told_ns), _ROW_NS) + lead_ns)


def _steps_in(job: JobRecord, time_ns: int) -> int:
    """Return how many steps a job makes in a time; 0 while that is not known."""
    pace_ns = _pace_ns(job)
    return math.ceil(time_ns / pace_ns) if pace_ns else 0


def _pace_ns(job: JobRecord, steps: int = REFERENCE_STEPS) -> int:
    """Return how long a step takes as a rule, its snapshot included; 0 while none is known."""
    recent = job.ledger.steps[-steps:]
    return median_low([step.end_ns - step.start_ns for step in recent]) if recent else 0


def interval_bounds(job: JobRecord, settings: Settings) -> tuple[int, int]:
    """Return the fewest and most steps between snapshots: the job's word within the operator's."""
    least = max(1, job.spec.snapshot_every_min, settings.snapshot_every_min)
    limits = [n for n in (job.spec.snapshot_every_max, settings.snapshot_every_max) if n]
    return least, max(least, min(limits, default=1 << 62))


def best_interval(known: SnapshotCost, settings: Settings, every: int = 1) -> int:
    """Return the best number of steps between snapshots, where it is ``every`` now.

    It is Young's, or a shorter one: what costs no more than the operator's settings leave to
    snapshots in any case, or repeats no more than they bear to lose.
    """
    if not known.is_known:
        return every
    gap_ns = settings.snapshot_interval_max_ns
    most = max(1, gap_ns // known.step_ns) if gap_ns else math.inf
    return int(min(young_interval(known), most, _affordable_interval(known, settings, every)))


def _affordable_interval(known: SnapshotCost, settings: Settings, every: int) -> float:
    """Return the fewest steps between snapshots that may be taken whatever they save."""
    affordable_ns = settings.snapshot_cost_ignored_ratio * known.step_ns
    return _steady(known.stall_ns / affordable_ns, every) if affordable_ns else math.inf


def slots_interval(
    known: SnapshotCost, turnover: Turnover | None, gap_ns: int, every: int = 1
) -> int:
    """Return the fewest steps between snapshots at which no rank waits for a slot.

    A slot is taken until the next snapshot, ``gap_ns`` later, and until that one is known to be
    recoverable. So many more snapshots may be taken meanwhile as a rank has other slots.
    """
    if turnover is None or not known.step_ns:
        return 1
    late_ns = max(0, turnover.p50_ns - gap_ns)
    return _steady(late_ns / (max(1, turnover.slots - 1) * known.step_ns), every)


def _steady(steps: float, every: int) -> int:
    """Return an interval in whole steps, and the one that is if it is near."""
    near = every / _CHEAPER < steps < every * _FACTOR
    return every if near else max(1, math.ceil(steps))


def young_interval(known: SnapshotCost) -> int:
    """Return k* = max(1, sqrt(2 w M) / t_step), in whole steps."""
    return max(1, round(math.sqrt(2 * known.stall_ns * known.between_faults_ns) / known.step_ns))


def _often(every: int) -> str:
    return "every step is snapshotted" if every == 1 else f"one step in {every} is snapshotted"


def _why(known: SnapshotCost, every: int, turnover: Turnover | None) -> str:
    """Return the sentence on an interval, which ``turnover`` has made so long, if it is given."""
    stall_ms, step_ms = known.stall_ns / 1e6, known.step_ns / 1e6
    repeated = f"up to {every} steps ({every * step_ms / 1e3:.2g} s)" if every > 1 else "its step"
    if every > 1 and turnover is not None:
        return (
            f"{_often(every)}, and a failure costs {repeated}: a rank has {turnover.slots} slots, "
            f"each of which is free again {turnover.p50_ns / 1e9:.2g} s after its snapshot"
        )
    share = 100 * known.stall_ns / (known.stall_ns + every * known.step_ns)
    return (
        f"{_often(every)}, and a failure costs {repeated}: a snapshot stalls {stall_ms:.1f} ms "
        f"of a step of {step_ms:.0f} ms, all of them together {share:.2g} % of training, and a "
        f"fault is expected every {_time_text(known.between_faults_ns)}"
    )


def _why_kept(every: int, gap_ns: int, pace_ns: int) -> str:
    """Return the sentence on an interval that only keeps its time."""
    cost_s = every * pace_ns / 1e9
    return (
        f"{_often(every)}, and a failure costs up to {every} steps ({cost_s:.2g} s): a step "
        f"without a snapshot takes {pace_ns / 1e6:.0f} ms, more than it seemed while more "
        f"were snapshotted, and {gap_ns / 1e9:.2g} s were to lie between two"
    )


def _time_text(ns: float) -> str:
    for unit, scale in (("h", 3600e9), ("min", 60e9)):
        if ns >= scale:
            return f"{ns / scale:.1f} {unit}"
    return f"{ns / 1e9:.0f} s"
