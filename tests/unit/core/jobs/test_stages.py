"""The stages of a start, as the ledger tells them."""

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.model.job import JobRecord, JobState
from unit.core.test_decisions import S, Story

_ALL = (Category.INIT_ENV, Category.INIT_PROC, Category.INIT_RESTORE)


class _Start:
    """The start of a job on two nodes; times are seconds after the order to start."""

    def __init__(self) -> None:
        self.story = Story(nodes=2)
        self.story.join("n0")
        self.story.join("n1")
        self.story.choose(None)
        self._ordered_ns = self.story.now_ns
        # Everything is told in the same moment, much later.
        self.story.now_ns += 20 * S

    def reach(self, node: str, phase: Phase, at_s: int) -> None:
        at_ns = self._ordered_ns + at_s * S
        origin = self.story.origin(node)
        self.story.tell(
            events.Reported(origin, at_ns, reports.PhaseReached(1, phase), "j"), after_s=0
        )

    def step(self, number: int, *end_s: int) -> None:
        end_ns = tuple(self._ordered_ns + at_s * S for at_s in end_s)
        stall_ns = (0,) * len(end_ns)
        told = events.JobProgressed(
            job="j", generation=1, first_step=number, end_ns=end_ns, stall_ns=stall_ns
        )
        self.story.tell(told, after_s=0)

    @property
    def job(self) -> JobRecord:
        return self.story.core.state.newest("j")

    def seconds(self) -> dict[str, float]:
        totals = self.job.ledger.totals(self.story.now_ns)
        return {name: totals.get(name, 0) / S for name in (*_ALL, Category.PRODUCTIVE)}


def test_a_stage_lasts_until_the_last_node_is_through_it_however_late_its_word_comes() -> None:
    start = _Start()
    start.reach("n0", Phase.STARTED, 1)
    start.reach("n0", Phase.ATTACHED, 5)
    start.reach("n0", Phase.RESTORED, 6)
    start.reach("n1", Phase.STARTED, 2)
    start.reach("n1", Phase.ATTACHED, 4)
    start.reach("n1", Phase.RESTORED, 9)
    assert start.job.state is JobState.WARMING
    assert start.seconds() == {
        Category.INIT_ENV: 2,
        Category.INIT_PROC: 3,
        Category.INIT_RESTORE: 4,
        Category.PRODUCTIVE: 0,
    }


def test_stages_get_their_time_though_steps_are_told_before_them() -> None:
    start = _Start()
    # As after a restart of the controller: progress comes at once, records one by one.
    start.step(0, 12, 13)
    assert start.job.state is JobState.RUNNING
    assert start.seconds() == {
        Category.INIT_ENV: 11,
        Category.INIT_PROC: 0,
        Category.INIT_RESTORE: 0,
        Category.PRODUCTIVE: 2,
    }
    for phase, at_s in zip(Phase, (2, 5, 9), strict=True):
        start.reach("n0", phase, at_s)
        start.reach("n1", phase, at_s + 1)
    assert start.job.state is JobState.RUNNING
    assert start.seconds() == {
        Category.INIT_ENV: 3,
        Category.INIT_PROC: 3,
        Category.INIT_RESTORE: 5,
        Category.PRODUCTIVE: 2,
    }


def test_the_first_step_begins_when_the_last_rank_that_was_heard_of_has_its_state() -> None:
    start = _Start()
    for phase, at_s in zip(Phase, (2, 5, 9), strict=True):
        start.reach("n0", phase, at_s)
    start.reach("n1", Phase.STARTED, 2)
    start.reach("n1", Phase.ATTACHED, 6)
    start.step(0, 12, 13)
    assert start.seconds() == {
        Category.INIT_ENV: 2,
        Category.INIT_PROC: 4,
        Category.INIT_RESTORE: 3,
        Category.PRODUCTIVE: 4,
    }


def test_a_job_that_tells_no_phases_counts_as_starting_until_its_first_step() -> None:
    start = _Start()
    start.step(0, 12)
    assert start.job.state is JobState.RUNNING
    # How long that step took, nobody can tell yet.
    assert start.seconds()["productive"] == 12


def test_a_phase_has_its_time_though_the_word_of_the_next_one_was_faster() -> None:
    start = _Start()
    start.reach("n0", Phase.ATTACHED, 5)
    start.reach("n1", Phase.ATTACHED, 6)
    start.reach("n1", Phase.STARTED, 4)
    start.reach("n0", Phase.STARTED, 3)
    start.reach("n0", Phase.RESTORED, 8)
    start.reach("n1", Phase.RESTORED, 9)
    assert start.seconds() == {
        Category.INIT_ENV: 4,
        Category.INIT_PROC: 2,
        Category.INIT_RESTORE: 3,
        Category.PRODUCTIVE: 0,
    }


def test_the_word_of_one_node_is_not_that_of_all() -> None:
    start = _Start()
    start.reach("n0", Phase.ATTACHED, 5)
    start.reach("n0", Phase.STARTED, 4)
    assert start.seconds()[Category.INIT_PROC] == 0
    start.reach("n1", Phase.STARTED, 3)
    start.reach("n1", Phase.ATTACHED, 6)
    assert start.job.state is JobState.RESTORING
    assert start.seconds()[Category.INIT_ENV] == 4
    assert start.seconds()[Category.INIT_PROC] == 2
