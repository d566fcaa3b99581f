"""How a bad loss is told, and which batches a step takes after a rollback."""

import math

import pytest

import everstep
from everstep.loss import BadStepError, LossPolicy, LossWatch, Verdict, batch_index, range_to_skip
from everstep.run import init
from everstep_common.rank_messages import DataRange


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_no_number_is_bad_as_the_policy_says(loss: float) -> None:
    verdict = LossWatch(LossPolicy(on_nan="rollback")).judge(17, loss, spike=False)
    assert verdict == Verdict(f"step 17: the loss is {loss}", "rollback")


def test_a_loss_far_above_the_usual_is_a_spike_once_there_is_a_usual() -> None:
    watch = LossWatch(LossPolicy(on_spike="rollback", spike_ratio=3.0))
    assert watch.judge(0, 100.0, spike=False) is None
    watch = LossWatch(LossPolicy(on_spike="rollback", spike_ratio=3.0))
    assert all(watch.judge(step, 2.0, spike=False) is None for step in range(8))
    assert watch.judge(8, 6.0, spike=False) is None
    verdict = watch.judge(9, 6.1, spike=False)
    assert verdict == Verdict("step 9: the loss 6.1 is a spike, 2 was usual", "rollback")


def test_a_spike_is_no_measure_for_the_next_losses() -> None:
    watch = LossWatch(LossPolicy(on_spike="raise", spike_ratio=3.0))
    for step in range(8):
        watch.judge(step, 1.0, spike=False)
    assert [watch.judge(step, 9.0, spike=False) is None for step in range(8, 40)] == [False] * 32


def test_without_a_ratio_only_the_script_calls_a_loss_a_spike() -> None:
    watch = LossWatch(LossPolicy(on_spike="raise"))
    assert all(watch.judge(step, 10.0**step, spike=False) is None for step in range(30))
    assert watch.judge(30, 1.0, spike=True) == Verdict("step 30: the loss 1 is a spike", "raise")


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        ({"on_nan": "panic"}, "on_nan"),
        ({"on_spike": ""}, "on_spike"),
        ({"spike_ratio": 1.0}, "spike_ratio"),
        ({"spike_ratio": math.nan}, "spike_ratio"),
        ({"skip_batches": -1}, "skip_batches"),
    ],
)
def test_a_policy_that_means_nothing_is_refused_by_name(
    policy: dict[str, object], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        LossPolicy(**policy)  # type: ignore[arg-type]  # what a script may get wrong


def test_steps_go_around_the_data_that_is_left_out() -> None:
    skipped = (DataRange(3, 4), DataRange(7, 7))
    assert [batch_index(step, skipped) for step in range(7)] == [0, 1, 2, 5, 6, 8, 9]
    assert batch_index(5, ()) == 5


def test_what_is_left_out_ends_with_the_bad_steps_own_batch() -> None:
    assert range_to_skip(5, (), 1) == DataRange(5, 5)
    assert range_to_skip(1, (), 4) == DataRange(0, 1)
    assert range_to_skip(5, (DataRange(3, 4),), 2) == DataRange(6, 7)


def test_outside_a_job_a_rollback_does_nothing_and_raise_raises() -> None:
    init({}, on_nan="rollback").report(3, loss=math.nan)
    assert init({}).batch_index(3) == 3
    with pytest.raises(BadStepError, match="step 3: the loss is nan"):
        init({}, on_nan="raise").report(3, loss=math.nan)


def test_without_a_step_it_is_the_one_after_that_which_was_told_last() -> None:
    run = init({}, on_nan="raise")
    with pytest.raises(BadStepError, match="step 0: the loss is nan"):
        run.report(loss=math.nan)
    run.step(6)
    run.step("seven")  # type: ignore[arg-type]  # what a script may get wrong
    with pytest.raises(BadStepError, match="step 7: the loss is nan"):
        run.report(loss=math.nan)


def test_a_process_that_carries_no_run_around_reports_too() -> None:
    everstep.step(11)
    everstep.report(loss=math.nan, on_nan="ignore")
    with pytest.raises(BadStepError, match="step 12: the loss is inf"):
        everstep.report(loss=math.inf, on_nan="raise")
    with pytest.raises(BadStepError, match="step 3: the loss is nan"):
        everstep.report(3, loss=math.nan, on_nan="raise")


def test_what_is_usual_is_known_over_calls_that_say_the_same() -> None:
    for _ in range(8):
        everstep.report(1, loss=1.0, on_nan="ignore", on_spike="raise", spike_ratio=3.0)
    with pytest.raises(BadStepError, match="1 was usual"):
        everstep.report(1, loss=9.0, on_nan="ignore", on_spike="raise", spike_ratio=3.0)
