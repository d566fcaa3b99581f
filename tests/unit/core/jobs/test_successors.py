"""A launcher that comes while the job before it ends waits for that, and begins the next one."""

from typing import TypeVar

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.jobs.orders import what_lasts
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.recovery.planning import _unstopped
from everstep_controller.journal.codec import decode_state, encode
from unit.core.jobs.test_continuation import NextStory
from unit.core.test_decisions import launcher_joined

_A = TypeVar("_A", actions.EndJob, actions.HoldLauncher, actions.RefuseLauncher)


class Hanging(NextStory):
    """A job that its user ended on n0, while the launcher on n1 does not stop its ranks."""

    def __init__(self) -> None:
        super().__init__(nodes=4)
        self.run()
        self.train(1, 2)
        self.leave("n0")
        self.sequence += 1
        self.before = self.job
        assert self.before.state is JobState.STOPPING

    def waiting(self) -> JobRecord:
        """Return the job that waits for the end of the first one."""
        return next(job for job in self.core.state.jobs.values() if job.after)

    def stops(self) -> list[actions.Action]:
        """The processes on n1 are gone at last."""
        stopped = events.Reported(
            self.origin("n1"), self.now_ns, reports.GenerationStopped(1, 4321), "j"
        )
        return self.tell(stopped)


def _of(kind: type[_A], done: list[actions.Action], node: str) -> list[_A]:
    return [action for action in done if isinstance(action, kind) and action.node == node]


def test_it_is_told_what_it_waits_for() -> None:
    story = Hanging()
    (held,) = _of(actions.HoldLauncher, story.join("n2"), "n2")
    assert held.job_id not in ("", story.before.id)
    assert held.reason == (
        "waits for the end of the job of this name before it: n1 has still to stop its processes"
    )
    assert "n2" not in story.before.launchers


def test_several_nodes_have_and_one_has_still_to_stop() -> None:
    story = NextStory(nodes=4)
    story.run()
    assert what_lasts(story.job) == "n0, n1 have still to stop their processes"
    story.job.launchers["n0"].stale_generation = 1
    assert _unstopped(story.job) == "; n0 has still to stop an older generation"
    story.job.launchers["n1"].stale_generation = 1
    assert _unstopped(story.job) == "; n0, n1 have still to stop an older generation"


def test_it_begins_the_next_job_and_is_not_ended_with_the_one_before() -> None:
    story = Hanging()
    story.join("n0")
    story.join("n2")
    done = story.stops()
    assert _of(actions.EndJob, done, "n1")
    # Where it waits, the end is told as that of the other job, of which the node has something.
    ended = _of(actions.EndJob, done, "n0") + _of(actions.EndJob, done, "n2")
    assert [(end.node, end.job_id) for end in ended] == [("n0", story.before.id)]
    assert story.before.state is JobState.ENDED
    assert story.job is not story.before
    assert sorted(story.job.launchers) == ["n0", "n2"]
    assert story.job.state is JobState.REPLANNING
    begun = story.chosen(2).generation.start_reason
    assert "continues after step 2 of the job that was cancelled" in begun


def test_a_launcher_of_the_ending_job_that_comes_back_ends_with_it() -> None:
    story = Hanging()
    story.join("n1")
    assert "n1" in story.before.launchers
    assert _of(actions.EndJob, story.stops(), "n1")


def test_a_stranger_does_not_wait() -> None:
    story = Hanging()
    assert _of(actions.RefuseLauncher, story.join("n2", uid=2), "n2")
    assert list(story.core.state.jobs) == [story.before.id]


def test_one_that_goes_away_meanwhile_begins_nothing() -> None:
    story = Hanging()
    story.join("n2")
    story.vanish("n2")
    assert list(story.core.state.jobs) == [story.before.id]
    assert not [timer for timer in story.core.state.timers if timer.startswith("next/")]
    story.stops()
    assert story.job is story.before
    assert story.ended()


def test_a_node_that_comes_back_without_it_begins_nothing() -> None:
    story = Hanging()
    story.join("n2")
    story.tell(events.NodeDisconnected("n2"))
    story.connect("n2", boot="2")
    story.stops()
    assert story.job is story.before


def test_it_is_refused_when_the_end_does_not_come() -> None:
    story = Hanging()
    story.join("n2")
    due = events.TimerDue(f"next/{story.waiting().id}")
    assert not story.tell(due, after_s=200)
    done = story.tell(due, after_s=20)
    (refused,) = _of(actions.RefuseLauncher, done, "n2")
    assert "has not ended: n1 has still to stop its processes; see 'everstep job j'" in (
        refused.reason
    )
    story.stops()
    assert story.job is story.before


def test_one_that_asks_for_another_size_than_the_first_is_refused_by_the_next_job() -> None:
    story = Hanging()
    story.join("n2")
    assert _of(actions.RefuseLauncher, story.join("n3", nodes=3), "n3")
    story.stops()
    assert sorted(story.job.launchers) == ["n2"]


def test_what_its_launchers_want_is_remembered_until_it_begins() -> None:
    story = Hanging()
    story.join("n2", fresh=True)
    story.join("n3")
    story.stops()
    assert (story.job.lineage.branch, story.job.lineage.continues) == ([], None)
    assert "starts from scratch, as --fresh asks" in story.chosen(None).generation.start_reason


def test_one_that_comes_back_by_its_id_is_of_the_job_that_waits() -> None:
    story = Hanging()
    (held,) = _of(actions.HoldLauncher, story.join("n2"), "n2")
    again = events.Reported(
        story.origin("n2"),
        story.now_ns,
        launcher_joined(restarts_max=9, free_port=1, job_id=held.job_id),
        "j",
    )
    (told,) = _of(actions.HoldLauncher, story.tell(again), "n2")
    assert told.job_id == held.job_id == story.waiting().id


def test_a_controller_that_restarts_meanwhile_goes_on_with_it() -> None:
    story = Hanging()
    story.join("n2")
    story.core = Core(decode_state(encode(story.core.state)))
    assert _of(actions.HoldLauncher, story.core.due(0), "n2")
    story.stops()
    job: JobRecord = story.job
    assert sorted(job.launchers) == ["n2"]
    assert job.state is JobState.FORMING


def test_a_job_that_is_over_keeps_no_timer_but_that_of_its_retention() -> None:
    story = Hanging()
    story.vanish("n1")
    assert story.ended()
    job_id = story.before.id
    kept = [timer for timer in story.core.state.timers if timer.endswith(f"/{job_id}")]
    assert kept == [f"forget/{job_id}"]


def test_a_job_is_forgotten_with_its_name_unless_another_one_has_that() -> None:
    story = Hanging()
    story.vanish("n1")
    first = story.before.id
    story.join("n2")
    second = story.job.id
    story.tell(events.TimerDue(f"forget/{first}"), after_s=8 * 86_400)
    assert list(story.core.state.jobs) == [second]
    story.leave("n2")
    story.tell(events.TimerDue(f"forget/{second}"), after_s=8 * 86_400)
    assert (story.core.state.jobs, story.core.state.names) == ({}, {})


def test_of_one_name_only_so_many_jobs_are_kept() -> None:
    story = Hanging()
    story.vanish("n1")
    for _ in range(12):
        story.join("n2")
        story.leave("n2")
        story.sequence += 1
    ids = list(story.core.state.jobs)
    assert len(ids) == 9
    assert ids[-1] == story.core.state.names["j"]
    assert {timer for timer in story.core.state.timers if timer.startswith("forget/")} == {
        f"forget/{job_id}" for job_id in ids
    }
