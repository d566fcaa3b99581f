"""What a new job goes on from in storage, and whose steps it does not take without a word."""

from dataclasses import replace

import pytest

from everstep_common import reports
from everstep_common.reports import BranchStep, StoredStep
from everstep_controller.core import actions, events
from everstep_controller.core.jobs.restore_point import branch_told
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.snapshots import BranchPoint
from unit.core.jobs.test_continuation import NextStory, _question
from unit.core.jobs.test_job_endings import STORAGE

_NEWEST = StoredStep(4, 40, 2, "aa", 8)
_OURS = {"stored_job": "j-3", "stored_cluster": "c1"}
_THEIRS = [
    {"stored_job": "j-3", "stored_cluster": "c2"},
    {"stored_job": "other-3", "stored_cluster": "c1"},
    {"stored_job": "j-x-3", "stored_cluster": "c1"},
]


class StoredStory(NextStory):
    """Launchers of a job whose storage path has something, as their agents tell it."""

    def __init__(self) -> None:
        super().__init__(nodes=4)
        self.told: dict[str, object] = {}
        self.core.state.cluster_id = "c1"
        self.storage, self.latest = STORAGE, _NEWEST

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        if isinstance(event, events.Reported) and isinstance(event.report, reports.LauncherJoined):
            event = replace(event, report=replace(event.report, **self.told))  # type: ignore[arg-type]
        return super().tell(event, after_s)

    def refused(self, **told: object) -> str:
        """Have a launcher join; return why it is refused."""
        self.told = {"stored_generation": 4, **told}
        found = [one for one in self.join("n2") if isinstance(one, actions.RefuseLauncher)]
        return found[0].reason if found else ""


@pytest.mark.parametrize("theirs", _THEIRS)
def test_another_jobs_steps_are_an_error_that_names_both_ways_out(theirs: dict[str, str]) -> None:
    story = StoredStory()
    why = story.refused(**theirs)
    assert theirs["stored_job"] in why
    assert "--continue" in why
    assert "--fresh" in why
    assert STORAGE.path in why
    assert story.core.state.job("j") is None


@pytest.mark.parametrize("theirs", _THEIRS)
def test_another_jobs_steps_are_gone_on_from_where_the_user_says_so(theirs: dict[str, str]) -> None:
    story = StoredStory()
    assert story.refused(**theirs, continues=True) == ""
    story.told.pop("continues")
    story.join("n3")  # one launcher that says it is enough
    assert _question(story).branch == (BranchPoint(4, 40, 2),)


@pytest.mark.parametrize("theirs", _THEIRS)
def test_another_jobs_steps_are_left_where_the_user_begins_afresh(theirs: dict[str, str]) -> None:
    story = StoredStory()
    assert story.refused(**theirs, fresh=True) == ""
    story.join("n3")
    question = _question(story)
    assert (question.branch, question.generation) == ((), 5)


@pytest.mark.parametrize("whose", [_OURS, {}, {"stored_job": "j-3", "stored_cluster": ""}])
def test_the_name_before_on_this_controller_or_an_older_version_is_gone_on_from(
    whose: dict[str, str],
) -> None:
    story = StoredStory()
    assert story.refused(**whose) == ""
    story.join("n3")
    assert _question(story).branch == (BranchPoint(4, 40, 2),)


def test_the_whole_branch_in_storage_is_the_jobs() -> None:
    story = StoredStory()
    points = (BranchStep(1, 10), BranchStep(2, 25))
    assert story.refused(**_OURS, stored_branch=points) == ""
    story.join("n3")
    assert _question(story).branch == (
        BranchPoint(1, 10, 0),
        BranchPoint(2, 25, 0),
        BranchPoint(4, 40, 2),
    )
    story.tell(
        events.RecoveryStepChosen(
            job="j",
            generation=story.job.generation.number,
            step=40,
            sources=(),
            lost="",
            reason="it is complete in storage",
            step_generation=4,
            stored=_NEWEST,
            tier="shared storage",
        )
    )
    assert branch_told(story.job) == (*points, BranchStep(4, 40))


def test_steps_of_another_user_are_an_error_also_where_nobody_here_knows_that_job_any_more() -> (
    None
):
    theirs = {**_OURS, "stored_uid": 7}
    why = StoredStory().refused(**theirs)
    assert "has steps of job j-3 of another user: use --continue" in why
    assert "--fresh" in why
    for way_out in ("continues", "fresh"):
        assert StoredStory().refused(**theirs, **{way_out: True}) == ""
    for own in ({"stored_uid": 1}, {"stored_uid": None}, {}):
        assert StoredStory().refused(**_OURS, **own) == "", own


def test_the_controllers_own_word_of_whose_a_job_is_goes_before_that_of_storage() -> None:
    story = StoredStory()
    story.storage = story.latest = None
    story.cancelled(after_s=1)
    story.storage, story.latest = STORAGE, _NEWEST
    ours = {"stored_job": story.job.id, "stored_cluster": "c1", "stored_uid": 7}
    assert story.refused(**ours) == ""


def test_what_nobody_can_be_sure_of_is_an_error_and_never_a_start_from_scratch() -> None:
    story = StoredStory()
    story.latest = None
    doubt = "no step is known to be the newest of this job (step 3: manifest.json cannot be used)"
    why = story.refused(**_OURS, stored_doubt=doubt)
    assert doubt in why
    assert "--fresh" in why
    assert story.core.state.job("j") is None
    why = story.refused(**_OURS, stored_doubt=doubt, continues=True)
    assert "--fresh" in why
    assert story.refused(**_OURS, stored_doubt=doubt, fresh=True) == ""


@pytest.mark.parametrize("doubt", ["", "nobody knows"])
def test_memory_goes_before_what_storage_is_in_doubt_of(doubt: str) -> None:
    story = StoredStory()
    story.storage = story.latest = None
    story.cancelled(after_s=50 * 60)
    assert story.job.state is JobState.ENDED
    story.storage = STORAGE
    assert story.refused(**_OURS, stored_doubt=doubt) == ""
    story.join("n3")
    # Nothing of memory can be had any more: it does not begin from scratch over the doubt.
    job = story.chosen(None, lost="no copy of rank 0 can be reached")
    assert (job.state is JobState.STARTING) == (not doubt)
