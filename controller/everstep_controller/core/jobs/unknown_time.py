"""Unknown time of jobs: while the controller was away, and nobody has told what was then."""

from collections.abc import Iterator

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.state import State

# What is published is told to a tenth of a percent.
_SHARE_MAX = 0.001
TIME_UNKNOWN = Condition(
    name="TimeUnknown",
    component="controller/ledger/JOB",
    meaning="more than 0.1 % of a job's time is in no category of the ledger but 'unknown': the "
    "controller was away, and no agent has told what the job did then; its ETTR counts it as lost",
    source="steps, faults and ends that agents told after the controller was away",
    clears_when="the share falls below 0.1 % as the job goes on, or the job has ended",
    mode=Mode.ADVISE,
)


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each job of whose time too much is unknown."""
    for job in state.newest_jobs():
        share = unknown_share(job) if job.state is not JobState.ENDED else 0.0
        if share > _SHARE_MAX:
            yield OpenFinding(_finding(job, share), job.ledger.away_ns[1])


def unknown_share(job: JobRecord) -> float:
    """Return the share of a job's time until its newest segment that is unknown."""
    ledger = job.ledger
    if Category.UNKNOWN not in ledger.folded and not any(
        one.category is Category.UNKNOWN for one in ledger.segments
    ):
        return 0.0  # nearly every job
    now_ns = ledger.segments[-1].start_ns
    wall_ns = ledger.wall_ns(now_ns)
    return ledger.totals(now_ns).get(Category.UNKNOWN, 0) / wall_ns if wall_ns else 0.0


def _finding(job: JobRecord, share: float) -> Finding:
    return Finding(
        component=f"controller/ledger/{job.name}",
        condition=TIME_UNKNOWN.name,
        mode=TIME_UNKNOWN.mode,
        severity=Severity.DEGRADED,
        message=f"{share:.1%} of the time of {job.name} is unknown: the controller was away, and "
        "no agent has told what the job did then",
        suggested_action=SuggestedAction.WATCH,
        rule=f"see 'everstep ettr {job.name}'; cleared when it is below 0.1 %",
    )
