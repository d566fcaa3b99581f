"""Which job keeps the GPUs of a node busy: the one that steps there; of two it is none."""

from copy import deepcopy

from everstep_controller.core.model.job import JobState, Members
from everstep_controller.judging.gpu_view import Work
from everstep_controller.watches.judge_runner import works_of
from unit.core.planned.test_slow_swap import SlowStory


def test_of_a_job_that_steps_all_members_work_on_it_since_it_was_seen() -> None:
    state, since = SlowStory().begin().core.state, dict[tuple[str, int], int]()
    (job,) = state.jobs.values()
    assert works_of(state, since, 7) == {"n0": Work(job.id, 7), "n1": Work(job.id, 7)}
    assert works_of(state, since, 9) == {"n0": Work(job.id, 7), "n1": Work(job.id, 7)}
    job.state = JobState.STALLED
    assert works_of(state, since, 9)["n0"] == Work(job.id, 7)


def test_what_was_before_a_new_generation_or_a_start_says_nothing() -> None:
    state, since = SlowStory().begin().core.state, dict[tuple[str, int], int]()
    (job,) = state.jobs.values()
    works_of(state, since, 7)
    job.state = JobState.WARMING
    assert works_of(state, since, 8) == {"n0": None, "n1": None}
    job.state = JobState.RUNNING
    assert works_of(state, since, 9)["n0"] == Work(job.id, 9)
    job.state = JobState.ENDED
    assert works_of(state, since, 10) == {}
    assert since == {}


def test_a_node_with_ranks_of_two_jobs_is_no_ones() -> None:
    state = SlowStory().begin().core.state
    (job,) = state.jobs.values()
    other = deepcopy(job)
    other.id, other.state = "k-2", JobState.STARTING
    other.generation.members = Members(["n1"])
    state.jobs["k-2"] = other
    assert works_of(state, {}, 7) == {"n0": Work(job.id, 7), "n1": None}
