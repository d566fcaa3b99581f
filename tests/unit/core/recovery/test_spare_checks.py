"""A node that waits as a spare is checked: one that fails takes no new ranks until it passes."""

import json

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.claims import why_ineligible
from everstep_controller.core.recovery.planning import candidates
from everstep_controller.journal import codec
from unit.core.chosen_settings import SPARES_UNCHECKED
from unit.core.jobs.test_interrupted_end import Recorded, from_every_prefix
from unit.core.test_decisions import S, Story, launcher_joined

EVERY_S = 600
SETTINGS = Settings(mode=Mode.ENFORCE, spare_check_interval_ns=EVERY_S * S)


class Spares(Story):
    """Nodes n0 and n1 run a job; others come later."""

    def __init__(self, nodes: int = 4, settings: Settings = SETTINGS) -> None:
        super().__init__(nodes, settings)
        self.run()

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    def wait_s(self, seconds: float) -> list[actions.Action]:
        """Let time pass, and what comes due be told; return what it called for."""
        until_ns, done = self.now_ns + int(seconds * S), list[actions.Action]()
        while due := [(at, name) for name, at in self.core.state.timers.items() if at <= until_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            done += self.core.handle(events.TimerDue(name), self.now_ns)
        self.now_ns = until_ns
        return done

    def answer(self, asked: list[actions.Action], *, trouble: str = "") -> list[actions.Action]:
        """Let the nodes that are asked say what their checks have shown."""
        done: list[actions.Action] = []
        for check in checks(asked):
            message = trouble or "all is well"
            result = events.Reported(
                self.origin(check.node), 0, reports.CheckFinished(check.id, not trouble, message)
            )
            done += self.tell(result)
        return done

    def fail(self, node: str) -> None:
        """Let a node join as a spare, and fail."""
        self.wait_s(100)
        self.answer(self.join(node), trouble="probe nvml: no answer")

    def spares(self) -> list[str]:
        able = [node.name for node in candidates(self.core.state, self.job)]
        return [name for name in able if name not in self.job.generation.members]


def checks(done: list[actions.Action]) -> list[actions.RunCheck]:
    return [action for action in done if isinstance(action, actions.RunCheck)]


def said(done: list[actions.Action], reason: str) -> list[str]:
    return [a.message for a in done if isinstance(a, actions.Announce) and a.reason == reason]


def test_a_launcher_that_becomes_a_spare_has_its_node_checked() -> None:
    story = Spares()
    story.wait_s(100)
    (check,) = checks(story.join("n2"))
    assert (check.node, check.reason) == ("n2", "it waits as a spare")


def test_a_node_that_was_checked_just_before_is_not_checked_twice() -> None:
    story = Spares()
    assert not checks(story.join("n2"))
    (later,) = checks(story.wait_s(EVERY_S))
    assert later.node == "n2"


def test_members_are_not_asked() -> None:
    story = Spares()
    story.wait_s(100)
    story.join("n2")
    assert not [check for check in checks(story.wait_s(5 * EVERY_S)) if check.node != "n2"]


def test_one_that_passes_is_asked_again_after_a_while() -> None:
    story = Spares()
    story.wait_s(100)
    story.answer(story.join("n2"))
    assert not checks(story.wait_s(EVERY_S - 1))
    assert len(checks(story.wait_s(2))) == 1


def test_one_that_stays_a_spare_while_the_job_starts_anew_is_not_asked_for_it() -> None:
    story = Spares()
    story.wait_s(100)
    story.answer(story.join("n2"))
    story.wait_s(100)
    done = [*story.exit_rank("n1"), *story.stop_all(), *story.choose(0)]
    assert story.job.state is JobState.STARTING
    assert not checks(done)


def test_who_is_left_over_when_a_job_begins_is_a_spare_from_then_on() -> None:
    story = Story(settings=SETTINGS)
    story.tell(events.AutomationPaused("fleet", "ann", "upgrade"))
    story.now_ns += 100 * S
    assert not checks([action for name in ("n0", "n1", "n2") for action in story.join(name)])
    (check,) = checks(story.tell(events.AutomationResumed("fleet", "ann")))
    assert check.node == "n2"


def test_one_that_fails_is_no_spare_and_everybody_is_told_why() -> None:
    story = Spares()
    story.wait_s(100)
    done = story.answer(story.join("n2"), trouble="probe nvml: no answer")
    assert story.spares() == []
    assert said(done, "SpareCheckFailed") == [
        "n2 is no spare: its check failed: probe nvml: no answer"
    ]
    (told,) = [a.reason for a in done if isinstance(a, actions.HoldLauncher)]
    assert "probe nvml: no answer" in told
    assert "j goes on without it" in told
    assert story.state("n2") is NodeState.HEALTHY
    assert story.owners("n2") == []


def test_no_plan_takes_one_that_failed() -> None:
    story = Spares()
    story.fail("n2")
    story.find("n1")
    story.stop_all()
    assert story.job.state is JobState.WAITING_CAPACITY
    assert "n1, n2 take none now" in story.job.reason


def test_the_other_spare_is_taken() -> None:
    story = Spares()
    story.fail("n2")
    story.answer(story.join("n3"))
    story.find("n1")
    story.stop_all()
    assert story.job.generation.members == ["n0", "n3"]


def test_one_that_fails_is_asked_again_and_is_a_spare_when_it_passes() -> None:
    story = Spares()
    story.fail("n2")
    again = story.wait_s(31)
    done = story.answer(again)
    assert len(checks(again)) == 1
    assert said(done, "SpareCheckPassed") == ["n2 may be a spare again"]
    assert story.spares() == ["n2"]
    assert why_ineligible(story.core.state, story.core.state.nodes["n2"]) == ""


def test_a_job_that_waits_for_a_node_goes_on_when_that_passes() -> None:
    story = Spares()
    story.fail("n2")
    story.find("n1")
    story.stop_all()
    story.answer([a for a in story.wait_s(31) if getattr(a, "node", "") == "n2"])
    assert story.job.generation.members == ["n0", "n2"]


def test_the_same_failure_is_told_once() -> None:
    story = Spares()
    story.fail("n2")
    for _ in range(3):
        done = story.answer(story.wait_s(31), trouble="probe nvml: no answer")
        assert not said(done, "SpareCheckFailed")
    assert said(story.answer(story.wait_s(31), trouble="disk"), "SpareCheckFailed")


def test_a_spare_is_used_while_its_answer_is_missing_but_after_one_that_has_passed() -> None:
    story = Spares()
    story.wait_s(100)
    story.join("n2")
    assert story.spares() == ["n2"]
    story.answer(story.join("n3"))
    assert story.spares() == ["n3", "n2"]


def test_an_agent_that_never_answers_counts_as_one_that_was_not_asked() -> None:
    story = Spares()
    story.wait_s(100)
    story.join("n2")
    story.wait_s(200)
    story.answer(story.join("n3"))
    assert story.spares() == ["n2", "n3"]
    assert story.core.state.nodes["n2"].spare_check.failed == ""


def test_a_check_touches_nothing_that_runs_on_the_node() -> None:
    """Node n2 waits for one job, and runs ranks of another, which go on there and begin there."""
    story = Spares()
    story.tell(
        events.Reported(
            story.origin("n2"),
            0,
            launcher_joined(nodes_min=1, nodes_max=1, restarts_max=3, free_port=5),
            "other",
        )
    )
    story.tell(events.RecoveryStepChosen(job="other", generation=1, step=None, lost=""))
    story.fail("n2")
    running = story.core.state.newest("other")
    assert running.state is JobState.STARTING
    assert [node.name for node in candidates(story.core.state, running)] == ["n2"]
    assert story.spares() == []


def test_a_spare_that_takes_a_place_is_asked_no_more() -> None:
    story = Spares()
    story.wait_s(100)
    story.answer(story.join("n2"))
    story.find("n1")
    story.stop_all()
    story.choose(0)
    assert story.job.generation.members == ["n0", "n2"]
    assert "n2" not in [check.node for check in checks(story.wait_s(3 * EVERY_S))]


def test_a_check_of_the_nodes_own_life_says_the_same() -> None:
    story = Spares()
    story.fail("n2")
    story.find("n2")
    story.answer(story.tell(events.OperatorReleased("n2", "ann", "reseated")))
    assert story.core.state.nodes["n2"].spare_check.failed == ""


def test_an_order_that_is_not_answered_is_given_again_to_an_agent_that_comes_back() -> None:
    story = Spares()
    story.wait_s(100)
    (check,) = checks(story.join("n2"))
    story.tell(events.NodeDisconnected("n2"))
    hello = events.NodeConnected(
        node="n2", boot_id="1", agent_version="0.1.0", outbox="n2-box", highest_term=0, host="n2"
    )
    assert [again.id for again in checks(story.tell(hello))] == [check.id]


def test_an_answer_to_an_older_question_changes_nothing() -> None:
    story = Spares()
    story.wait_s(100)
    first = story.join("n2")
    story.answer(first)
    story.wait_s(EVERY_S + 1)
    story.answer(first, trouble="probe nvml: no answer")
    assert story.spares() == ["n2"]


def test_nobody_is_asked_where_an_operator_wants_it_so_or_an_old_journal_does_not_say() -> None:
    story = Spares(settings=SPARES_UNCHECKED)
    story.wait_s(100)
    assert not checks(story.join("n2"))
    assert not checks(story.wait_s(5 * EVERY_S))
    old = codec.decode_event("SettingsApplied", b'{"settings":{}}')
    assert isinstance(old, events.SettingsApplied)
    assert not old.settings.spare_check_interval_ns


def test_what_a_check_said_counts_no_more_when_checks_are_switched_off() -> None:
    story = Spares()
    story.fail("n2")
    story.tell(events.SettingsApplied(SPARES_UNCHECKED))
    story.wait_s(60)
    assert story.spares() == ["n2"]


def test_a_snapshot_of_a_state_without_such_checks_is_read() -> None:
    story = Spares()
    story.fail("n2")
    body = json.loads(codec.encode(story.core.state))
    for node in body["nodes"].values():
        del node["spare_check"]
    old = codec.decode_state(json.dumps(body).encode())
    assert not old.nodes["n2"].spare_check.failed


@pytest.mark.parametrize("trouble", ["", "probe nvml: no answer"])
def test_a_controller_that_dies_anywhere_asks_again_for_what_is_not_answered(trouble: str) -> None:
    story = Recorded(4)
    story.tell(events.SettingsApplied(SETTINGS))
    story.run()
    story.train(1, 2)
    asked = checks(story.join("n2")) or checks(_due(story, "spare/n2"))
    for check in asked:
        result = events.Reported(
            story.origin("n2"), 0, reports.CheckFinished(check.id, not trouble, trouble)
        )
        story.tell(result)
    _due(story, "spare/n2")
    story.exit_rank("n1")
    story.stop_all()
    story.restore(1, 2)
    assert asked
    from_every_prefix(story)


def _due(story: Recorded, timer: str) -> list[actions.Action]:
    after_ns = max(0, story.core.state.timers[timer] - story.now_ns)
    return story.tell(events.TimerDue(timer), after_s=after_ns / S)
