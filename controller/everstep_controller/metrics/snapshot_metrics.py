"""Snapshot metrics on /metrics: how much training a failure would cost each job now."""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from everstep_controller.core.vault.snapshot_table import SnapshotNumbers, StepState

Value = Callable[[SnapshotNumbers], float | None]


def snapshot_metrics(jobs: Iterable[SnapshotNumbers], now_ns: int) -> Iterator[Metric]:
    """Yield all series; a job without a value has no sample."""
    known = list(jobs)
    for name, text, value in (*_GAUGES, *_stored(now_ns)):
        family = GaugeMetricFamily(f"everstep_job_{name}", text, labels=["job"])
        _add(family, known, value)
        yield family
    bad = CounterMetricFamily(
        "everstep_job_bad_copies",
        "Copies of snapshots that were found bad, in memory, on the way or in files.",
        labels=["job"],
    )
    _add(bad, known, lambda job: job.bad_copies)
    yield bad
    yield _by_state(known)


def _add(
    family: GaugeMetricFamily | CounterMetricFamily, jobs: list[SnapshotNumbers], value: Value
) -> None:
    for job in jobs:
        number = value(job)
        if number is not None:
            family.add_metric([job.job], number)


def _by_state(jobs: list[SnapshotNumbers]) -> Metric:
    family = GaugeMetricFamily(
        "everstep_job_snapshot_steps",
        "Steps of which there is a copy, by what may become of them.",
        labels=["job", "state"],
    )
    for job in jobs:
        for state in StepState:
            family.add_metric([job.job, state.value], job.states.get(state, 0))
    return family


def _stored(now_ns: int) -> tuple[tuple[str, str, Value], ...]:
    """Return the gauges of jobs whose state is brought to storage."""
    return (
        (
            "stored_step",
            "Newest complete step in the job's storage folder; -1 without one.",
            lambda job: _or(job.storage.step) if job.storage else None,
        ),
        (
            "stored_step_age_seconds",
            "Seconds since the newest complete step in the storage folder was complete there.",
            lambda job: (
                (now_ns - job.storage.stored_ns) / 1e9
                if job.storage and job.storage.stored_ns
                else None
            ),
        ),
        (
            "storing_steps",
            "Steps that are on their way to the storage folder.",
            lambda job: len(job.storage.pending) if job.storage else None,
        ),
        (
            "storing_failed",
            "1 while the newest step that was to be stored could not be.",
            lambda job: bool(job.storage.failure) if job.storage else None,
        ),
    )


_GAUGES: tuple[tuple[str, str, Value], ...] = (
    (
        "recoverable_step_age_seconds",
        "Age of the newest step that is recoverable without any one node: what its loss costs.",
        lambda job: None if job.recoverable_step is None else job.recoverable_age_ns / 1e9,
    ),
    (
        "recoverable_steps_behind",
        "Completed steps that the loss of a node would cost.",
        lambda job: None if job.recoverable_step is None else job.steps_behind,
    ),
    (
        "restore_step",
        "Step that the job would go back to now; -1 without one.",
        lambda job: _or(job.restore_step),
    ),
    (
        "snapshot_interval_steps",
        "Steps from one snapshot to the next, as decided; 0 before that.",
        lambda job: job.snapshot_every,
    ),
    (
        "slot_turnover_seconds",
        "Seconds from a snapshot until its slot is free again where that takes longest: the 99th "
        "of 100.",
        lambda job: None if job.turnover is None else job.turnover.p99_ns / 1e9,
    ),
)


def _or(step: int | None) -> int:
    return -1 if step is None else step
