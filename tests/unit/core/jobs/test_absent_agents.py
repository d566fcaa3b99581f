"""Incidents of jobs whose member's agent went away: who is named as the cause."""

from everstep_common import reports
from everstep_controller.core import events
from everstep_controller.core.model.job import Cause, JobState
from everstep_controller.core.model.node import NodeState
from unit.core.chosen_settings import STALLS_IGNORED
from unit.core.jobs.test_job_endings import LongStory
from unit.core.recovery.test_blame import Incidents
from unit.core.test_decisions import S


def started() -> Incidents:
    """Return a job of two nodes that runs."""
    story = Incidents()
    story.run()
    return story


def test_a_node_that_dies_whole_is_the_cause_of_what_the_others_die_of() -> None:
    story = started()
    story.tell(events.NodeDisconnected("n1"))
    story.die("n0", "collective")
    (incident,) = story.incidents
    assert (incident.cause, incident.node) == (Cause.NODE, "n1")
    assert "n1 went away: its stream has ended" in incident.message
    stopped = reports.GenerationStopped(1, 1234)
    story.tell(events.Reported(story.origin("n0"), story.now_ns, stopped, "j"))
    assert story.job.state is JobState.WAITING_CAPACITY, "nobody waits for the word of n1"
    assert story.state("n1") is NodeState.HEALTHY


def test_it_is_the_cause_also_where_the_others_told_first() -> None:
    story = started()
    story.die("n0", "collective")
    story.tell(events.NodeDisconnected("n1"))
    assert (story.incidents[-1].cause, story.incidents[-1].node) == (Cause.NODE, "n1")


def test_a_rank_that_died_of_its_own_is_the_cause_whoever_is_away() -> None:
    story = started()
    story.tell(events.NodeDisconnected("n1"))
    story.die("n0", "exception", exception="ValueError: bad")
    assert (story.incidents[-1].cause, story.incidents[-1].node) == (Cause.PROCESS, "n0")


def test_a_node_whose_ranks_told_how_they_died_before_its_agent_went_is_not_blamed_for_that() -> (
    None
):
    story = started()
    story.die("n1", "collective", ago_ns=S)
    story.tell(events.NodeDisconnected("n1"))
    assert story.incidents[-1].cause is Cause.COLLECTIVE


def test_an_agent_that_said_that_it_ends_is_no_cause() -> None:
    story = started()
    story.tell(events.AgentLeaving("n1", "systemd asks it to end"))
    story.die("n0", "collective")
    assert story.incidents[-1].cause is Cause.COLLECTIVE


def _without_an_agent_at_its_end(steps: int = 3) -> LongStory:
    """Return a job whose first node has ended well while the agent of the other one is away."""
    story = LongStory(2)
    story.run()
    story.train(*range(1, steps + 1))
    story.tell(events.AgentLeaving("n1", "systemd asks it to end"))
    story.tell(events.NodeDisconnected("n1"))
    _finish(story, "n0")
    return story


def _finish(story: LongStory, node: str) -> None:
    finished = reports.GenerationFinished(1)
    story.tell(events.Reported(story.origin(node), story.now_ns, finished, "j"))


def _pass(story: LongStory, seconds: int) -> None:
    """Let time pass, with every timer that comes due."""
    for _ in range(seconds):
        story.now_ns += S
        timers = story.core.state.timers
        for timer in [key for key, at_ns in timers.items() if at_ns <= story.now_ns]:
            story.tell(events.TimerDue(timer), after_s=0.0)


def test_a_job_that_has_ended_elsewhere_waits_for_the_agent_that_says_the_rest() -> None:
    story = _without_an_agent_at_its_end()
    _pass(story, 40)
    assert not story.ended()
    assert not story.incidents
    story.connect("n1", jobs=(reports.JobOnNode("j", 1, launcher=True),))
    _finish(story, "n1")
    assert story.ended()
    assert story.job.ending.done


def test_it_does_not_wait_for_ever() -> None:
    story = _without_an_agent_at_its_end()
    _pass(story, 90)
    (incident,) = story.incidents
    assert incident.node == "n1"
    assert story.job.state is not JobState.RUNNING


def test_it_waits_as_long_as_its_steps_would_take_once_more() -> None:
    story = _without_an_agent_at_its_end(steps=3000)
    story.job.lineage.recoverable_step, story.job.snapshot_costs.newest_ns = 3, [S]
    _pass(story, 280)
    assert not story.incidents
    _pass(story, 60)
    (incident,) = story.incidents
    assert incident.node == "n1"


def test_a_script_without_snapshots_is_begun_again_after_a_minute_however_long_it_ran() -> None:
    story = _without_an_agent_at_its_end(steps=3000)
    story.job.lineage.recoverable_step = None
    _pass(story, 90)
    (incident,) = story.incidents
    assert incident.node == "n1"


def _trains_as_most_fall_silent() -> LongStory:
    """Return a job of n0 and n1 in a fleet of which all but n0 fall silent; n0 says nothing."""
    story = LongStory(12, STALLS_IGNORED)
    story.run()
    story.train(1, 2, 3)
    for number in range(1, 12):
        story.tell(events.NodeDisconnected(f"n{number}"), after_s=0.0)
    return story


def test_a_controller_that_may_be_cut_off_takes_an_open_stream_for_no_word_of_missing_steps() -> (
    None
):
    story = _trains_as_most_fall_silent()
    _pass(story, 120)
    assert story.core.state.nodes["n1"].liveness.silence.held
    assert (story.job.state, story.incidents) == (JobState.RUNNING, [])


def test_the_word_of_a_node_that_its_ranks_stand_still_counts_there() -> None:
    story = _trains_as_most_fall_silent()
    still = reports.RanksStandStill(generation=1, step=3, since_boot_ns=1, usual_ns=3 * S)
    story.tell(events.Reported(story.origin("n0"), story.now_ns, still, "j"))
    _pass(story, 120)
    (incident,) = story.incidents
    assert incident.message.startswith("no step for 12.")
    assert "while n1 is doubtful" in incident.message
