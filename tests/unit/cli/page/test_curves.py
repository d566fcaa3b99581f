"""Curves of steps and samples as rows of a table."""

import math

from everstep_cli.page.curves import curves_of_samples, curves_of_steps
from everstep_proto.generated import admin_pb2
from fakes.cli_fleet import SAMPLES, STEPS

_S = 1_000_000_000


def _steps(*spans: tuple[float, float]) -> admin_pb2.Steps:
    """Return steps that began and ended at these seconds, all of it training."""
    return admin_pb2.Steps(
        step=range(len(spans)),
        start_ns=[int(begin * _S) for begin, _ in spans],
        end_ns=[int(end * _S) for _, end in spans],
        training_ns=[int((end - begin) * _S) for begin, end in spans],
    )


def test_a_job_without_steps_has_no_curves() -> None:
    assert curves_of_steps(admin_pb2.Steps()) is None
    assert curves_of_samples(admin_pb2.Samples()) is None


def test_time_without_steps_is_a_gap_and_no_training() -> None:
    ends = [*range(1, 10), *range(21, 25)]
    curves = curves_of_steps(_steps(*((end - 1, end) for end in ends)))
    assert curves is not None
    _, mean, longest, ratio = (column.values for column in curves.columns)
    # Four times of six seconds, in the third of which nothing was.
    assert [None if one is None else round(one, 6) for one in mean] == [1, 1, None, 1]
    assert longest == [1, 1, None, 1]
    assert [round(one or 0, 3) for one in ratio] == [100, 50, 0, 66.667]


def test_a_step_over_several_rows_trains_in_each_of_them() -> None:
    short = [(end - 1, end) for end in range(1, 7)]
    curves = curves_of_steps(_steps(*short, (6, 30)))
    assert curves is not None
    assert [round(one or 0, 6) for one in curves.columns[-1].values] == [100, 100]


def test_rows_are_few_however_many_steps_there_are() -> None:
    curves = curves_of_steps(_steps(*((place, place + 1) for place in range(4096))))
    assert curves is not None
    assert len(curves.at_ns) == len(list(curves.rows())) == 96
    assert sum(one or 0 for one in curves.columns[0].values) == 4096
    assert curves.told.startswith(
        "The newest 4,096 steps, without those made again, 1 h 8 min: 1.0 s each"
    )


def test_what_a_fake_fleet_tells_adds_up() -> None:
    curves = curves_of_steps(STEPS)
    assert curves is not None
    assert max(one or 0 for one in curves.columns[2].values) == 2
    assert all(0 <= (one or 0) <= 100 for one in curves.columns[3].values)


def test_samples_are_means_of_five_seconds_and_what_nobody_reads_is_left_out() -> None:
    curves = curves_of_samples(SAMPLES)
    assert curves is not None
    busy, memory = curves.columns
    assert [round(one or 0, 6) for one in busy.values] == [10, 35, 60, 85]
    assert memory.values == [None, 8, 8, 8]
    assert curves.at_ns[-1] == SAMPLES.newest_ns
    assert curves.at_ns[0] == SAMPLES.newest_ns - 15 * _S
    assert not math.isnan(sum(one for one in busy.values if one is not None))
