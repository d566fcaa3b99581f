"""Where automation only advises: a node that should be isolated gives its place to a spare."""

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.settings import Settings
from unit.core.test_decisions import Story

ADVISE = Settings(mode=Mode.ADVISE)


def _running(spare: bool = True) -> Story:
    story = Story(settings=ADVISE)
    story.run()
    if spare:
        story.join("n2")
    return story


def _members(story: Story) -> list[str]:
    return story.core.state.newest("j").generation.members


def _stop(story: Story) -> None:
    for node in ("n0", "n1"):
        story.tell(
            events.Reported(
                story.origin(node), story.now_ns, reports.GenerationStopped(1, 1234), "j"
            )
        )


def test_a_spare_takes_the_place_of_a_member_with_a_fatal_finding_when_the_job_stops() -> None:
    story = _running()
    story.find("n1")
    assert not story.owners("n1")
    story.exit_rank("n1")
    _stop(story)
    assert _members(story) == ["n0", "n2"]
    assert not story.owners("n1")


def test_training_is_not_stopped_for_it() -> None:
    story = _running()
    done = story.find("n1")
    assert not [action for action in done if isinstance(action, actions.StopGeneration)]
    assert story.core.state.newest("j").state is JobState.RUNNING


def test_without_a_spare_it_keeps_its_place() -> None:
    story = _running(spare=False)
    story.find("n1")
    story.exit_rank("n1")
    _stop(story)
    assert _members(story) == ["n0", "n1"]


def test_a_spare_that_should_be_isolated_itself_takes_nobodys_place() -> None:
    story = _running()
    story.find("n1")
    story.find("n2")
    story.exit_rank("n1")
    _stop(story)
    assert _members(story) == ["n0", "n1"]


def test_a_member_whose_finding_is_over_keeps_its_place() -> None:
    story = _running()
    story.find("n1")
    for held in list(story.core.state.nodes["n1"].health.findings.values()):
        key = held.finding.key
        story.tell(
            events.Reported(
                story.origin("n1"),
                story.now_ns,
                reports.FindingCleared(key.component, key.condition, "reset"),
            )
        )
    story.exit_rank("n1")
    _stop(story)
    assert _members(story) == ["n0", "n1"]
