"""Scripts that end themselves, and faults that come again: what is the same, and when it ends."""

from dataclasses import replace

import pytest

from everstep_controller.core.model.incident import Remedy
from everstep_controller.core.model.job import JobState
from everstep_controller.core.recovery import causes
from everstep_controller.core.recovery.causes import judge
from unit.core.recovery.test_blame import Incidents
from unit.core.recovery.test_causes import FAULT, before, death, evidence, with_exit


@pytest.mark.parametrize("node", ["n0", "n1"])
def test_a_script_that_ends_itself_twice_before_any_step_is_stopped_wherever_it_ran(
    node: str,
) -> None:
    first = with_exit(death("exit", step=None, exception=""), exit_code=3, last_line="boom")
    judged = judge(evidence(first, fresh=True))
    assert judged.remedy is Remedy.RESTART
    assert not causes.counts_against_node(evidence(first, fresh=True), judged)
    again = replace(first, node=node)
    ended = judge(evidence(again, fresh=True, past=(before(first, "n0"),), strikes={node: 1}))
    assert ended.remedy is Remedy.STOP
    assert ended.sentence == (
        f'rank 0 on {node} exited 3 ("boom"), the same as generation 1 before any step: the script '
        "ends itself; see its output, correct the command or the script, and start the job again"
    )


def test_a_script_that_ends_itself_in_other_ways_or_after_steps_is_tried_again() -> None:
    first = with_exit(death("exit", step=None, exception=""), exit_code=3)
    other = with_exit(first, exit_code=4)
    assert judge(evidence(other, past=(before(first, "n0"),))).remedy is Remedy.RESTART
    struck = judge(evidence(first, strikes={"n0": 1}))
    assert struck.remedy is Remedy.RESTART
    later = with_exit(first, step=7)
    assert judge(evidence(later, past=(before(later, "n0"),))).remedy is Remedy.REPLACE
    killed = with_exit(death("crash", step=None, exception=""), signal=11)
    assert judge(evidence(killed, past=(before(killed, "n0"),))).remedy is Remedy.RESTART


def test_a_finding_of_the_node_weighs_more_than_a_script_that_ends_itself() -> None:
    first = with_exit(death("exit", step=None, exception=""), exit_code=3)
    judged = judge(evidence(first, past=(before(first, "n0"),), faults=(FAULT,)))
    assert (judged.remedy, judged.node) == (Remedy.REPLACE, "n0")


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        (
            "device_memory",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. Process 71",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.98 GiB. Process 1093",
        ),
        (
            "exception",
            "RuntimeError: DataLoader worker (pid(s) 4743, 4744) failed",
            "RuntimeError: DataLoader worker (pid(s) 12) failed",
        ),
        (
            "exception",
            "OSError: process 17 is gone, pid 17",
            "OSError: process 9913 is gone, pid 9913",
        ),
    ],
)
def test_what_differs_from_attempt_to_attempt_does_not_hide_that_it_is_the_same(
    kind: str, first: str, second: str
) -> None:
    earlier, again = death(kind, exception=first), death(kind, exception=second)
    assert judge(evidence(again, past=(before(earlier),))).remedy is Remedy.STOP


def test_a_script_that_exits_before_its_first_step_ends_the_job_and_blames_no_node() -> None:
    story = Incidents()
    story.join("n0")
    story.join("n1")
    story.choose(None)
    story.again("n0", "exit")
    assert story.job.state is JobState.STARTING
    story.again("n1", "exit", rank=1)
    assert (story.job.state, story.job.recovery.restarts) == (JobState.ENDED, 1)
    assert "exited 1, the same as generation 1 before any step" in story.job.reason
    assert story.job.reason.count("exited 1") == 1
    assert story.owners("n0") == story.owners("n1") == []
    assert [node.blame.strikes for node in story.core.state.nodes.values()] == [[], [], []]


_WORDS = ("one", "two", "three")


def test_a_crash_loop_after_progress_is_bounded_from_the_newest_step_on() -> None:
    story = Incidents()
    story.run()
    for number in range(3):
        story.again("n0", "exception", exception=f"ValueError: {_WORDS[number]}", step=number)
        assert story.job.state is JobState.STARTING, number
        story.progress(number + 1)
    assert story.job.recovery.restarts_without_progress == 0
    for word in _WORDS:
        story.again("n0", "exception", exception=f"OSError: {word}", step=3)
    assert story.job.state is JobState.ENDED
    assert "given up after 2 restarts without a new step; the last fault: " in story.job.reason
