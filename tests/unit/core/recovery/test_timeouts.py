"""A generation that ends because ranks gave up waiting: who exits first is not who is guilty."""

from everstep_controller.core import actions, events
from everstep_controller.core.events import TimeoutJudged
from everstep_controller.core.model.incident import Remedy
from everstep_controller.core.model.job import JobState
from everstep_controller.journal.codec import decode_state, encode
from unit.core.recovery.test_blame import Incidents
from unit.core.test_decisions import S

_TIMED_OUT = "RuntimeError: Timed out waiting 5000ms for recv operation to complete"
_WAITED_FOR = "Rank 2 holds the job back: CPU side."


def _given_up() -> tuple[Incidents, list[actions.Action]]:
    story = Incidents()
    story.run()
    return story, story.die("n1", "collective_timeout", exception=_TIMED_OUT)


def _judged(story: Incidents, generation: int = 1) -> list[actions.Action]:
    return story.tell(TimeoutJudged(story.job.id, generation, _WAITED_FOR, ("n0",)))


def _looks(done: list[actions.Action]) -> list[bool]:
    return [one.look for one in done if isinstance(one, actions.StopGeneration)]


def test_launchers_look_before_they_stop_what_ended_by_a_timeout() -> None:
    _, done = _given_up()
    assert _looks(done) == [True, True]
    other = Incidents()
    other.run()
    assert _looks(other.die("n1", "crash")) == [False, False]


def test_a_rank_that_died_before_others_gave_up_is_the_cause_and_nobody_looks() -> None:
    story = Incidents()
    story.run()
    assert _looks(story.die("n0", "crash")) == [False, False]
    story.die("n1", "collective_timeout", exception=_TIMED_OUT, rank=1)
    incident = story.incidents[-1]
    assert (incident.cause, incident.node) == ("process", "n0")
    _judged(story)
    assert (incident.cause, incident.node) == ("process", "n0")
    assert _WAITED_FOR not in incident.message


def test_a_verdict_before_the_end_is_judged_names_who_did_not_come() -> None:
    story, _ = _given_up()
    _judged(story)
    incident = story.incidents[-1]
    assert incident.message.startswith("Rank 2 holds the job back: CPU side; rank 0 on n1 exited")
    assert (incident.cause, incident.node) == ("collective", "n0")
    story.stop_all()
    assert incident.verdict == incident.message
    (judgement,) = story.job.recovery.judgements
    assert (judgement.remedy, judgement.node) == (Remedy.RESTART, "")


def test_a_verdict_after_the_end_was_judged_replaces_that_nobody_is_known() -> None:
    story, _ = _given_up()
    story.stop_all()
    incident = story.incidents[-1]
    assert "who did not come is not known" in incident.verdict
    assert story.job.generation.number == 2
    _judged(story)
    assert incident.verdict.startswith("Rank 2 holds the job back")
    assert story.job.recovery.judgements[-1].sentence == incident.verdict
    again = _judged(story)
    assert not [one for one in again if isinstance(one, actions.Announce)]


def test_a_verdict_on_a_generation_that_has_not_been_says_nothing() -> None:
    story, _ = _given_up()
    assert not _judged(story, generation=2)
    assert story.job.recovery.waited_for is None
    assert story.tell(TimeoutJudged("gone-1", 1, _WAITED_FOR)) == []


def test_a_stall_that_was_judged_before_and_a_timeout_after_it_are_one_incident() -> None:
    story = Incidents()
    story.run()
    story.tell(events.HangJudged(story.job.id, 1, "Rank 2 holds the job back: frozen"))
    story.die("n1", "collective_timeout", exception=_TIMED_OUT)
    _judged(story)
    assert len(story.incidents) == 1
    assert story.job.state is JobState.STOPPING


def test_ranks_that_gave_up_first_leave_room_for_the_one_that_died() -> None:
    story = Incidents()
    story.run()
    for rank in range(12):
        story.die("n1", "collective_timeout", exception=_TIMED_OUT, rank=rank, ago_ns=S)
    story.die("n0", "crash", rank=20)
    assert story.incidents[-1].deaths[0].exit.rank == 20


def test_whom_ranks_waited_for_is_known_after_the_controller_is_back() -> None:
    story, _ = _given_up()
    _judged(story)
    assert decode_state(encode(story.core.state)) == story.core.state


_UNFIT = "enforce fail: op.preamble.length <= op.nbytes. 96 vs 48. Received data size doesn't match"
_DEPARTED = "Rank 2 holds the job back: software desync. It did all_reduce of 96 where 48 came."


def _unfit(story: Incidents, step: int) -> list[actions.Action]:
    """Let rank 1 get data that do not fit what it has called for, and rank 0 lose it."""
    done = story.die("n1", "collective_mismatch", exception=_UNFIT, rank=1, step=step)
    return [*done, *story.die("n0", "collective", rank=0, step=step)]


def test_launchers_look_who_called_what_did_not_fit() -> None:
    story = Incidents()
    story.run()
    assert True in _looks(_unfit(story, 20))
    other = Incidents()
    other.run()
    assert _looks([*other.die("n0", "crash"), *_unfit(other, 20)]) == [False, False]


def test_who_called_what_did_not_fit_is_told_and_no_node_is() -> None:
    story = Incidents()
    story.run()
    _unfit(story, 20)
    story.stop_all()
    story.tell(TimeoutJudged(story.job.id, 1, _DEPARTED))
    incident = story.incidents[-1]
    assert "(generation 1: Rank 2 holds the job back: software desync." in incident.verdict
    assert "the script's own fault if it comes again" in incident.verdict
    assert incident.node == ""


def test_who_called_what_did_not_fit_is_not_forgotten_when_less_is_seen_the_next_time() -> None:
    story = Incidents()
    story.run()
    _unfit(story, 20)
    story.tell(TimeoutJudged(story.job.id, 1, _DEPARTED))
    story.stop_all()
    story.run()
    _unfit(story, 20)
    story.tell(
        TimeoutJudged(story.job.id, 2, "It is one or more of ranks 0-1.", is_conclusive=False)
    )
    story.stop_all()
    assert "(generation 1: Rank 2 holds the job back" in story.job.ending.wanted
    assert decode_state(encode(story.core.state)) == story.core.state


def test_who_called_what_did_not_fit_is_told_when_the_same_comes_again() -> None:
    story = Incidents()
    story.run()
    _unfit(story, 20)
    story.tell(TimeoutJudged(story.job.id, 1, _DEPARTED))
    story.stop_all()
    story.run()
    _unfit(story, 20)
    story.stop_all()
    ended = story.job.ending.wanted
    assert "the same as generation 1" in ended
    assert "(generation 1: Rank 2 holds the job back" in ended
