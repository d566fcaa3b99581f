"""Ledger of a job as people are told it: ratios, the rate of failures, and what they predict."""

import pytest

from everstep_controller.api.admin.errors import UnknownNameError
from everstep_controller.api.admin.messages.ledger_messages import ledger
from everstep_controller.api.admin.series import SeriesQueries
from everstep_controller.core import events
from everstep_controller.core.model.job import JobState
from everstep_controller.telemetry.samples import SampleRing
from everstep_proto.generated import admin_pb2
from unit.core.jobs.test_incident_retention import Months
from unit.core.test_decisions import S

_DAY_S = 86_400


def _with_snapshots(story: Months, first: int, steps: int) -> None:
    """Have the job make steps of ten seconds, one in ten of which stands for 0.5 s."""
    ends = tuple(story.now_ns + 10 * S * (at + 1) for at in range(steps))
    story.now_ns = ends[-1]
    stalls = tuple(S // 2 if at % 10 == 0 else 0 for at in range(steps))
    number = story.job.generation.number
    story.tell(
        events.JobProgressed(
            job="j", generation=number, first_step=first, end_ns=ends, stall_ns=stalls
        )
    )


def test_a_job_that_fails_every_hour_is_told_how_often_and_what_ratio_that_makes() -> None:
    story = Months()
    story.run()
    step = 1
    for _ in range(24):
        _with_snapshots(story, step, 350)
        step += 350
        story.hour(step)
        step += 2
    told = ledger(story.core.state, story.job, story.now_ns)
    node_days = 2 * told.wall_ns / S / _DAY_S
    assert told.failures == 24
    assert told.failures_per_1000_node_days == pytest.approx(24_000 / node_days, rel=0.01)
    assert told.failures_per_1000_node_days_low < told.failures_per_1000_node_days
    assert told.failures_per_1000_node_days_high > told.failures_per_1000_node_days
    assert 0.5 < told.expected_ettr < 1
    assert told.ettr_devices == pytest.approx(told.ettr_time)
    assert told.degraded_device_s == 0


def test_a_job_that_has_not_failed_has_no_rate_and_nothing_is_predicted() -> None:
    story = Months()
    story.run()
    _with_snapshots(story, 1, 100)
    assert story.job.state is JobState.RUNNING
    told = ledger(story.core.state, story.job, story.now_ns)
    assert (told.failures_per_1000_node_days, told.expected_ettr) == (0, 0)
    assert told.failures_per_1000_node_days_high > 0


def test_the_newest_steps_are_told_with_what_of_them_was_training() -> None:
    story = Months()
    story.run()
    _with_snapshots(story, 1, 100)
    series = SeriesQueries(lambda: story.core.state, SampleRing(2))
    told = series.steps(admin_pb2.GetStepsRequest(job="j", limit=20))
    assert list(told.step) == [*range(81, 101)]
    took_ns = [end - start for start, end in zip(told.start_ns, told.end_ns, strict=True)]
    assert took_ns == [10 * S] * 20
    assert list(told.training_ns[:3]) == [9.5 * S, 10 * S, 10 * S]
    assert len(series.steps(admin_pb2.GetStepsRequest(job="j")).step) > 20
    with pytest.raises(UnknownNameError):
        series.steps(admin_pb2.GetStepsRequest(job="k"))
