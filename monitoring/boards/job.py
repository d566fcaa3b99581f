"""Board of a job: where its time goes, what a failure would cost now, and who holds it back."""

from boards.board import Board, Row
from boards.panels import Bars, Curves, Number, Query, States, Unit
from boards.states import coded, shown, words
from everstep_controller.core.model.job import JobState

_JOB = 'job="$job"'
_STATES = shown(JobState)


def _of(series: str) -> str:
    return f"{series}{{{_JOB}}}"


_NOW = (
    Number(
        title="Training time",
        text="Share of the job's whole time in steps that count (ETTR_time): 'everstep ettr JOB'.",
        queries=[Query(_of("everstep:job_ettr_time:ratio"))],
        unit=Unit.RATIO,
        warn=0.99,
        bad=0.9,
        low=True,
        decimals=2,
    ),
    Number(
        title="Training time, 1 h",
        text="The same of the last hour.",
        queries=[Query(_of("everstep:job_ettr_time:ratio1h"))],
        unit=Unit.RATIO,
        warn=0.99,
        bad=0.9,
        low=True,
        decimals=2,
    ),
    Number(
        title="A failure costs now",
        text="Age of the step that survives the loss of any node: 'everstep snapshots JOB'.",
        queries=[Query(_of("everstep_job_recoverable_step_age_seconds"))],
        unit=Unit.SECONDS,
        warn=60,
        bad=600,
    ),
    Number(
        title="Failures",
        text="Incidents that nobody planned: 'everstep incidents JOB'.",
        queries=[Query(_of("everstep_job_failures_total"))],
    ),
    Number(
        title="Time between failures",
        text="Wall clock over failures; none while nothing has failed.",
        queries=[Query(_of("everstep:job_mtbf:seconds"))],
        unit=Unit.SECONDS,
    ),
    Number(
        title="Who holds it back",
        text="Ranks and places that make the others wait: 'everstep slow JOB'.",
        queries=[Query(_of("everstep_job_slow_parts"))],
        warn=1,
    ),
)
_TIME = (
    States(
        title="State",
        text="What the job did when.",
        queries=[Query(coded("everstep_job_state", _STATES, f"{_JOB},"), "{{job}}")],
        words=words(_STATES),
        width=24,
        height=4,
    ),
    Curves(
        title="Where the time of each five minutes went",
        text="Anything beside 'productive' is a loss; 'everstep ettr JOB' says what each word is.",
        queries=[Query(f"everstep:job_time:increase5m{{{_JOB}}} > 0", "{{category}}")],
        unit=Unit.SECONDS,
        stacked=True,
        width=16,
        height=10,
    ),
    Bars(
        title="Where all its time went",
        text="Seconds by category since the job began.",
        queries=[Query(f"sort_desc({_of('everstep_job_time_seconds')})", "{{category}}")],
        unit=Unit.SECONDS,
        width=8,
        height=10,
    ),
)
_STEPS = (
    Curves(
        title="Steps",
        text="Steps that all ranks completed, that survive the loss of a node, and in storage.",
        queries=[
            Query(_of("everstep_job_completed_step"), "completed"),
            Query(_of("everstep_job_recoverable_step"), "recoverable"),
            Query(_of("everstep_job_stored_step"), "in storage"),
        ],
    ),
    Curves(
        title="What a failure would cost",
        text="Ages of the recoverable and the stored step.",
        queries=[
            Query(_of("everstep_job_recoverable_step_age_seconds"), "loss of a node"),
            Query(_of("everstep_job_stored_step_age_seconds"), "loss of all nodes"),
        ],
        unit=Unit.SECONDS,
    ),
    Curves(
        title="Snapshots",
        text="Steps from one to the next, steps that wait for storage, and what was skipped.",
        queries=[
            Query(_of("everstep_job_snapshot_interval_steps"), "interval in steps"),
            Query(_of("everstep_job_storing_steps"), "being stored"),
            Query(_of("everstep_job_snapshots_skipped_total"), "skipped in this generation"),
            Query(_of("everstep_job_unsaved_steps"), "unsaved"),
        ],
    ),
    Curves(
        title="Slowness",
        text="How many times longer the slowest works than its peers, and how many are slow.",
        queries=[
            Query(_of("everstep_job_slow_ratio"), "slowest beside its peers"),
            Query(_of("everstep_job_slow_parts"), "slow ranks and places"),
        ],
    ),
    Curves(
        title="Restarts",
        text="Restarts, incidents and failures since the job began, and its nodes.",
        queries=[
            Query(_of("everstep_job_restarts_total"), "restarts"),
            Query(_of("everstep_job_incidents_total"), "incidents"),
            Query(_of("everstep_job_failures_total"), "failures"),
            Query(_of("everstep_job_nodes"), "nodes"),
        ],
    ),
    Curves(
        title="Warm standbys",
        text="Processes that wait to become ranks: a restart without them imports first.",
        queries=[Query(_of("everstep_job_standbys"), "{{state}}")],
    ),
)

JOB = Board(
    uid="everstep-job",
    title="Everstep: job",
    text="Where a job's time goes, what a failure would cost now, and who holds it back.",
    variables=(("job", "everstep_job_state"),),
    rows=(
        Row(headline="Now", panels=_NOW),
        Row(headline="Time", panels=_TIME),
        Row(headline="Steps and snapshots", panels=_STEPS),
    ),
)
