"""A job that stands still, and whose judge fails: it falls back to its timeout."""

from dataclasses import replace

import pytest

from everstep_common.hangs.looks import unjudged
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions
from everstep_controller.core.model.hang import SeenHang
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.settings import Settings
from everstep_controller.journal.codec import decode_state, encode
from unit.core.hangs.test_hang_decisions import JudgedStory
from unit.core.hangs.test_response import seen
from unit.core.test_decisions import S

_SHIPPED = Settings(mode=Mode.ENFORCE, stall_timeout_ns=120 * S, hang_patience_ns=120 * S)
_WHY = "the judge exited 1: PermissionError"


def _failed(unmoved_s: int) -> SeenHang:
    look = unjudged(7, _WHY)
    return SeenHang(verdict=look.verdict, failure=look.failure, unmoved_ns=unmoved_s * S)


def _fail_until(story: JudgedStory, until_s: int, step_s: int = 30) -> list[actions.Action]:
    """Have a look fail every half a minute; return the orders to stop that came of it."""
    orders: list[actions.Action] = []
    for second in range(0, until_s, step_s):
        orders += [
            one for one in story.judge(_failed(second)) if isinstance(one, actions.StopGeneration)
        ]
        story.now_ns += step_s * S
    return orders


def test_a_job_that_no_judge_has_judged_is_restarted_as_late_as_torch_ends_a_collective() -> None:
    story = JudgedStory(settings=_SHIPPED).begin_hang()
    assert _fail_until(story, 570) == []
    assert "is restarted when no rank has moved for 600 s" in story.job.hang.plan
    assert story.state_of_job() is JobState.STALLED
    assert decode_state(encode(story.core.state)) == story.core.state
    assert len(_fail_until(story, 120)) == 2, "one for each node"
    assert story.job.recovery.hangs[0].kind is HangClass.UNKNOWN
    assert story.job.recovery.hangs[0].culprits == ()


def test_the_timeout_of_the_operator_is_waited_for() -> None:
    settings = replace(_SHIPPED, stall_restart_timeout_ns=1800 * S)
    story = JudgedStory(settings=settings).begin_hang()
    assert _fail_until(story, 1780) == []
    assert _fail_until(story, 90)


def test_after_a_verdict_that_is_no_longer_made_the_timeout_of_the_operator_counts_again() -> None:
    settings = replace(_SHIPPED, stall_restart_timeout_ns=240 * S, hang_patience_ns=500 * S)
    story = JudgedStory(settings=settings).begin_hang()
    story.judge(seen(HangClass.CPU_SIDE, (0, "n0")))
    story.now_ns += 60 * S
    assert _fail_until(story, 180) == []
    assert _fail_until(story, 60)


@pytest.mark.parametrize(
    "settings", [replace(_SHIPPED, hang_patience_ns=0), replace(_SHIPPED, stall_timeout_ns=0)]
)
def test_where_people_decide_about_hangs_they_do_without_a_judge_too(settings: Settings) -> None:
    story = JudgedStory(settings=settings).begin_hang()
    assert _fail_until(story, 3000) == []
    assert "people decide" in story.job.hang.plan


def test_a_job_whose_ranks_may_move_is_not_restarted_by_looks_that_failed() -> None:
    story = JudgedStory(settings=_SHIPPED)
    story.begin()
    story.wait(500)
    assert story.state_of_job() is JobState.STALLED
    assert not story.job.hang.by_word
    assert _fail_until(story, 3000) == []
    assert "people decide" in story.job.hang.plan


def test_a_judge_that_works_again_decides() -> None:
    story = JudgedStory(settings=_SHIPPED).begin_hang()
    assert _fail_until(story, 90) == []
    ordered = story.judge(seen(HangClass.FROZEN, (1, "n1")))
    assert any(isinstance(one, actions.StopGeneration) for one in ordered)


def test_one_look_that_failed_decides_nothing_however_late_it_comes() -> None:
    story = JudgedStory(settings=_SHIPPED).begin_hang()
    story.now_ns += 5000 * S
    ordered = story.judge(_failed(0))
    assert not any(isinstance(one, actions.StopGeneration) for one in ordered)
