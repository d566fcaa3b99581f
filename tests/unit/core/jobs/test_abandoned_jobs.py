"""New launchers of a job that all launchers have left: begun in another way, or gone on with.

One test for each branch of admission's rule; every story is in virtual time.
"""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.reports import Storage, StoredStep
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from unit.core.jobs.test_continuation import NextStory
from unit.core.jobs.test_job_endings import STORAGE
from unit.core.test_decisions import launcher_joined

_BEGUN_AGAIN = "its launchers were gone when it was started"


class Left(NextStory):
    """A job of n0 and n1 that nobody is left of, and launchers that come to it."""

    def asked(self, node: str = "n0") -> events.Reported[reports.LauncherJoined]:
        """What the launchers of the job ask for."""
        return events.Reported(
            self.origin(node),
            0,
            launcher_joined(restarts_max=9, storage=self.storage),
            "j",
        )

    def come(self, node: str = "n0", **others: object) -> str:
        """Have a launcher come; return whether the job was begun again, in the words of people."""
        asked = self.asked(node)
        report = replace(asked.report, **others)  # type: ignore[arg-type]
        asked = replace(asked, report=report)
        said = [one for one in self.tell(asked) if isinstance(one, actions.Announce)]
        return " ".join(one.message for one in said if _BEGUN_AGAIN in one.message)

    def left_waiting(self) -> JobRecord:
        """Train, and have all launchers killed."""
        self.run()
        self.train(1, 2)
        for node in ("n0", "n1"):
            self.vanish(node)
        assert self.job.state is JobState.WAITING_CAPACITY
        return self.job

    def left_forming(self, **others: object) -> JobRecord:
        """Have the first launcher killed before the second one came."""
        self.come("n0", **others)
        self.vanish("n0")
        assert self.job.state is JobState.FORMING
        assert not self.job.launchers
        return self.job


def test_the_same_launchers_again_are_the_same_job() -> None:
    story = Left()
    before = story.left_waiting()
    assert not story.come("n0")
    assert not story.come("n1")
    assert story.job is before
    assert story.job.state is JobState.REPLANNING


@pytest.mark.parametrize(
    "others",
    [
        {"fresh": True},
        {"storage": Storage("/elsewhere")},
        {"nodes_min": 1},
        {"nodes_max": 3},
        {"processes_per_node": 2},
        {"reform": True},
        {"restarts_max": 50},
        {"snapshot_every_min": 5},
        {"snapshot_every_max": 50},
    ],
)
@pytest.mark.parametrize("left", [Left.left_waiting, Left.left_forming])
def test_a_job_that_is_asked_for_otherwise_is_begun_again_in_that_way(
    left: object, others: dict[str, object]
) -> None:
    story = Left()
    before = left(story)  # type: ignore[operator]
    assert "in another way" in story.come("n0", **others)
    assert story.job is not before
    for name, value in others.items():
        asked = story.job.lineage if name == "fresh" else story.job.spec
        assert getattr(asked, name) == value
    assert list(story.job.launchers) == ["n0"]


def test_what_it_has_made_goes_over_to_it() -> None:
    story = Left()
    story.left_waiting()
    story.come("n0", restarts_max=50)
    story.come("n1", restarts_max=50)
    begun = story.chosen(2).generation.start_reason
    assert "continues after step 2 of the job that lost its launchers" in begun


def test_a_launcher_that_is_left_keeps_the_job_as_it_is() -> None:
    story = Left()
    story.run()
    story.vanish("n1")
    story.stop_all()
    before = story.job
    assert not story.come("n1", restarts_max=50)
    assert story.job is before
    assert story.job.spec.restarts_max == 9


def test_one_that_has_ranks_running_belongs_to_the_job_whatever_it_asks_for() -> None:
    story = Left()
    before = story.left_waiting()
    assert not story.come("n0", running_generation=1, fresh=True)
    assert story.job is before


@pytest.mark.parametrize("stranger", [{"uid": 2}, {"token_sha256": "other"}])
def test_a_stranger_takes_no_job_from_its_user(stranger: dict[str, object]) -> None:
    story = Left()
    before = story.left_waiting()
    assert not story.come("n0", fresh=True, **stranger)
    assert story.job is before
    assert not story.job.launchers
    assert "j" in story.core.state.nodes["n0"].jobs.refusals


def test_a_job_that_was_to_begin_anew_and_has_not_begun_need_not_any_more() -> None:
    story = Left()
    story.storage = STORAGE
    before = story.left_forming(fresh=True)
    assert before.lineage.fresh
    latest = StoredStep(4, 40, 2, "aa", 8)
    assert "in another way" in story.come("n0", latest=latest)
    story.come("n1", latest=latest)
    assert story.chosen(40, tier="shared storage").generation.restore_step == 40


def test_one_that_has_begun_anew_goes_on_from_what_it_made_since() -> None:
    story = Left()
    for node in ("n0", "n1"):
        story.come(node, fresh=True)
    story.chosen(None)
    story.train(1)
    for node in ("n0", "n1"):
        story.vanish(node)
    before = story.job
    assert not story.come("n0")
    assert story.job is before


def test_one_whose_last_step_is_still_being_stored_is_begun_again_at_once() -> None:
    story = Left()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    for node in ("n0", "n1"):
        story.leave(node)
        story.sequence += 1
    assert (bool(story.job.ending.closing), story.job.ending.done) == (True, False)
    assert "again while it was ending" in story.come("n0")


def test_one_that_has_all_its_steps_ends_well_before_the_next_begins() -> None:
    story = Left()
    story.storage = STORAGE
    story.run()
    story.train(1, 2)
    for node in ("n0", "n1"):
        story.tell(
            events.Reported(story.origin(node), story.now_ns, reports.GenerationFinished(1), "j")
        )
    for node in ("n0", "n1"):
        story.vanish(node)
    before = story.job
    assert before.ending.done
    assert not story.come("n0")
    assert story.job is before
    story.tell(events.FinalSaveEnded("j", 1, "its last step, 2, is in storage"))
    assert story.job is not before
    assert (before.state, before.ending.succeeded) == (JobState.ENDED, True)
    assert list(story.job.launchers) == ["n0"]


def test_one_that_still_stops_is_not_begun_again_under_its_processes() -> None:
    story = Left()
    story.run()
    story.train(1)
    story.vanish("n0")
    assert story.job.state is JobState.STOPPING
    before = story.job
    assert not story.come("n0", restarts_max=50)
    assert story.job is before
