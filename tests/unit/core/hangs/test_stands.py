"""Which stands of a job people are told of, by where it has stood before and gone on by itself."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.hangs.reports.verdict import HangClass
from everstep_controller.core import actions, events
from everstep_controller.core.model.hang import (
    PLACES_MAX,
    SeenHang,
    UsualStand,
    stands_with,
    usual_stand_ns,
)
from everstep_controller.core.model.job import JobState
from everstep_controller.journal.codec import decode_state, encode
from unit.core.hangs.test_hang_decisions import ENFORCED, JudgedStory
from unit.core.hangs.test_response import seen
from unit.core.jobs.test_stalls import told
from unit.core.test_decisions import S

_DAY_S = 86_400
_EVALUATES = replace(seen(HangClass.CPU_SIDE, (0, "n0"), looks=1, stuck=False), place="e0")
_LOADS = replace(_EVALUATES, place="d0")
_NOBODY = seen(HangClass.NO_WAIT, looks=1)


class EvaluatedStory(JudgedStory):
    """A job that has evaluated once, for a minute, of which people were told."""

    def begin_again(self, found: SeenHang = _EVALUATES) -> "EvaluatedStory":
        self.begin()
        self.stand(60, found)
        return self

    def stand(self, seconds: float, found: SeenHang | None) -> list[actions.Action]:
        """Have it stand still, be looked at if somebody does, and go on."""
        self.now_ns += 3 * S
        done = self.stand_still("n0", "n1")
        if found is not None:
            done += self.judge(found)
        done += self.wait(seconds - 3)
        for node in ("n0", "n1"):
            done += self.go_on(node)
        last = self.job.ledger.steps[-1].step
        for step in range(last + 1, last + 4):
            self.now_ns += S // 2
            self.progress(step)
        return done


def test_of_a_second_evaluation_at_the_same_place_nobody_is_told() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin_again()
    for _ in range(20):
        assert told(story.stand(60, _EVALUATES)) == []
        assert story.state_of_job() is JobState.RUNNING
    assert len(story.job.recovery.usual_stands) == 1


def test_a_hang_anywhere_else_is_told_when_a_look_has_found_it_there() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin_again()
    story.now_ns += 3 * S
    assert told(story.stand_still("n0", "n1")) == []
    assert story.job.hang.found_ns
    said = told(story.judge(_LOADS))
    assert [reason for reason, _ in said[:2]] == ["JobStalled", "HangJudged"]
    assert "somebody is cpu_side" in story.job.reason
    assert story.state_of_job() is JobState.STALLED
    assert (story.job.hang.by_word, story.job.hang.seen) == (True, _LOADS)
    assert decode_state(encode(story.core.state)) == story.core.state


def test_where_no_look_answers_it_is_told_after_as_long_as_one_takes() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin_again()
    story.now_ns += 3 * S
    story.stand_still("n0", "n1")
    assert told(story.wait(1.2)) == []
    assert [reason for reason, _ in told(story.wait(0.2))] == ["JobStalled"]


def test_what_cannot_go_on_is_told_and_restarted_wherever_it_stands() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin_again()
    story.now_ns += 3 * S
    story.stand_still("n0", "n1")
    frozen = replace(seen(HangClass.FROZEN, (1, "n1"), looks=1), place=_EVALUATES.place)
    story.judge(frozen)
    assert story.state_of_job() is JobState.STOPPING


def test_an_evaluation_that_takes_much_longer_than_the_one_before_is_told() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin_again()
    story.now_ns += 3 * S
    story.stand_still("n0", "n1")
    story.judge(_EVALUATES)
    assert told(story.wait(80)) == []
    said = told(story.wait(20))
    assert said[0][0] == "JobStalled"
    assert story.job.hang.seen == _EVALUATES


def test_a_stand_that_ends_before_anybody_looks_is_told_once_and_then_not_again() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin()
    assert told(story.stand(4, None))[0][0] == "JobStalled"
    for _ in range(5):
        assert told(story.stand(4, None)) == []
    assert story.job.recovery.usual_stands[0].place == ""


def test_a_job_whose_ranks_have_no_stacks_has_one_place() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin_again(_NOBODY)
    assert told(story.stand(60, _NOBODY)) == []


def test_a_process_that_was_stopped_for_a_while_teaches_nothing() -> None:
    story = EvaluatedStory(settings=ENFORCED).begin()
    story.tell(events.AutomationPaused("j", "ops", "a debugger"))
    story.stand(60, seen(HangClass.FROZEN, (1, "n1"), looks=1, stuck=True))
    assert story.job.generation.number == 1
    assert story.job.recovery.usual_stands == []


def test_what_is_usual_at_a_place_is_halved_in_a_day_and_the_newest_places_are_kept() -> None:
    known = stands_with([], ["a"], 100 * S, 0)
    assert usual_stand_ns(known, "a", 0) == 150 * S
    assert usual_stand_ns(known, "a", _DAY_S * S) == 75 * S
    assert usual_stand_ns(known, "b", 0) == 0
    known = stands_with(known, ["a"], 40 * S, _DAY_S * S)
    assert known == [UsualStand("a", 50 * S, _DAY_S * S)]
    for number in range(2 * PLACES_MAX):
        known = stands_with(known, [str(number)], S, _DAY_S * S)
    assert len(known) == PLACES_MAX
    assert usual_stand_ns(known, "a", _DAY_S * S) == 0
    assert stands_with(known, ["z"], S, 99 * _DAY_S * S) == [UsualStand("z", S, 99 * _DAY_S * S)]


def test_what_steps_alone_say_is_told_when_a_look_sees_somebody_hold_the_others_back() -> None:
    story = JudgedStory(settings=ENFORCED).begin()
    story.now_ns += 3 * S
    assert told(story.stand_still("n0", "n1", blind="no recorder")) == []
    assert [reason for reason, _ in told(story.judge(_LOADS))][:1] == ["JobStalled"]


def test_where_a_look_sees_nobody_a_late_print_is_waited_for() -> None:
    story = JudgedStory(settings=ENFORCED).begin()
    since_ns = story.now_ns
    story.now_ns += 10 * S
    word = reports.RanksStandStill(generation=1, since_boot_ns=1, usual_ns=9 * S, blind="none")
    for node in ("n0", "n1"):
        story.tell(events.Reported(story.origin(node), since_ns, word, "j"))
    assert told(story.judge(_NOBODY)) == []
    left_s = 27 - (story.now_ns - since_ns) / S
    assert told(story.wait(left_s - 0.1)) == []
    assert told(story.wait(0.2))[0][0] == "JobStalled"
