"""Checks of nodes that fail, or are not answered: asked again ever more seldom, and told of."""

import pytest

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from unit.core.test_decisions import S, Story

SETTINGS = Settings(mode=Mode.ENFORCE)
TIMEOUT_S = SETTINGS.check_timeout_ns // S
DEGRADED = Finding(
    component="gpu/0", condition="Warm", severity=Severity.DEGRADED, message="it is warm"
)
FATAL = Finding(component="gpu/0", condition="Hot", severity=Severity.FATAL, message="it is hot")


class Checked(Story):
    """A node whose checks end as is set here, or not at all."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        super().__init__(5, settings)
        # What is answered to a check: it passes, or why not; None: nothing.
        self.answer: str | None = None
        self.answers_s = 0.2
        self.asked_s: list[float] = []
        self.asked: list[tuple[int, str]] = []
        self.done: list[actions.Action] = []

    def boot(self, boot: str) -> None:
        """Have the node come back, so that it is checked."""
        self.lose("n0")
        hello = events.NodeConnected(
            node="n0",
            boot_id=boot,
            agent_version="0.1.0",
            outbox="n0-box",
            highest_term=0,
            host="n0",
            bulk_address="n0:1",
            liveness_address="n0:2",
        )
        self.follow(self.tell(hello))

    def follow(self, called_for: list[actions.Action]) -> None:
        """Note what is asked; it is answered after a while."""
        self.done += called_for
        for check in [a for a in called_for if isinstance(a, actions.RunCheck)]:
            self.asked_s.append(self.now_ns / S)
            if self.answer is not None:
                self.asked.append((self.now_ns + int(self.answers_s * S), check.id))

    def finish(self, order_id: str) -> None:
        result = reports.CheckFinished(order_id, not self.answer, self.answer or "all is well")
        self.follow(self.tell(events.Reported(self.origin("n0"), 0, result), 0))

    def wait_s(self, seconds: float) -> None:
        """Let time pass, have checks answered, and what comes due be told."""
        until_ns = self.now_ns + int(seconds * S)
        while due := [one for one in self._pending() if one[0] <= until_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            if (at_ns, name) in self.asked:
                self.asked.remove((at_ns, name))
                self.finish(name)
            else:
                self.follow(self.tell(events.TimerDue(name), 0))
        self.now_ns = until_ns

    def _pending(self) -> list[tuple[int, str]]:
        timers = self.core.state.timers.items()
        return [*((at_ns, name) for name, at_ns in timers), *self.asked]

    def findings(self) -> list[str]:
        return [
            held.finding.condition for held in self.core.state.nodes["n0"].health.findings.values()
        ]

    def waits_s(self) -> list[float]:
        """Return how long it was from each check to the next one."""
        pairs = zip(self.asked_s, self.asked_s[1:], strict=False)
        return [round(later - one) for one, later in pairs]


def test_a_check_that_is_not_answered_is_ordered_again_ever_more_seldom_and_told_of() -> None:
    story = Checked()
    story.boot("2")
    story.wait_s(TIMEOUT_S + 1)
    assert story.findings() == []
    story.wait_s(10_000)
    assert story.findings() == ["OrdersUnanswered"]
    assert story.waits_s()[:4] == [180, 360, 720, 900]
    assert len(story.asked_s) < 20
    assert story.state("n0") is NodeState.VALIDATING
    told = [a.message for a in story.done if isinstance(a, actions.Announce)]
    assert any("has not answered its check" in message for message in told)
    # It answers at last.
    story.answer = ""
    story.wait_s(1_000)
    assert (story.state("n0"), story.findings()) == (NodeState.HEALTHY, [])
    before = len(story.asked_s)
    story.wait_s(10_000)
    assert len(story.asked_s) == before


@pytest.mark.parametrize("answers_s", [0.2, TIMEOUT_S - 1])
def test_a_check_that_is_answered_in_time_is_ordered_once(answers_s: float) -> None:
    story = Checked()
    story.answer, story.answers_s = "", answers_s
    story.boot("2")
    story.wait_s(TIMEOUT_S + 10)
    assert len(story.asked_s) == 1
    assert story.state("n0") is NodeState.PROBATION


def test_an_agent_that_always_takes_longer_passes_in_the_end() -> None:
    """Its first answers come after the next order, until that has a longer time."""
    story = Checked()
    story.answer, story.answers_s = "", TIMEOUT_S + 20
    story.boot("2")
    story.wait_s(TIMEOUT_S + 21)
    assert story.state("n0") is NodeState.VALIDATING
    story.wait_s(2 * TIMEOUT_S)
    assert story.state("n0") is NodeState.PROBATION
    assert story.findings() == []


def test_a_node_that_is_away_is_not_asked_before_it_is_back() -> None:
    story = Checked()
    story.boot("2")
    story.tell(events.NodeDisconnected("n0"))
    story.core.state.nodes["n0"].liveness.silence.expected_until_ns = story.now_ns + 100_000 * S
    before = len(story.asked_s)
    story.wait_s(10 * TIMEOUT_S)
    assert len(story.asked_s) == before
    assert story.findings() == []


@pytest.mark.parametrize("found", [None, DEGRADED, FATAL])
@pytest.mark.parametrize("mode", [Mode.ENFORCE, Mode.ADVISE])
def test_a_check_that_fails_is_repeated_with_backoff_whatever_else_is_open(
    mode: Mode, found: Finding | None
) -> None:
    """What nobody acts on keeps no node from its checks, and costs a handful in an hour."""
    advised = () if found is None else (found.condition,)
    story = Checked(Settings(mode=mode, advise=advised))
    if found is not None:
        story.find("n0", found)
    story.answer = "probe nvml: no answer"
    story.boot("2")
    story.wait_s(3_600)
    assert story.waits_s()[:6] == [30, 60, 120, 240, 480, 900]
    assert len(story.asked_s) <= 10
    story.answer = ""
    story.wait_s(1_000)
    assert story.state("n0") not in (NodeState.VALIDATING, NodeState.REPAIRING)
    # The next time that it fails, it is asked again soon.
    story.asked_s.clear()
    story.answer = "probe nvml: no answer"
    story.boot("3")
    story.wait_s(100)
    assert story.waits_s() == [30, 60]


def test_an_operators_word_that_it_is_repaired_has_it_checked_at_once_and_soon_again() -> None:
    story = Checked()
    story.answer = "probe nvml: no answer"
    story.boot("2")
    story.wait_s(3_600)
    story.asked_s.clear()
    story.follow(story.tell(events.OperatorReleased("n0", "ops", "new cable")))
    story.wait_s(100)
    assert story.waits_s() == [30, 60]


def test_a_repair_waits_for_people_as_long_as_a_finding_is_open_that_is_acted_on() -> None:
    story = Checked()
    story.answer = ""
    story.find("n0", FATAL)
    assert story.state("n0") is NodeState.REPAIRING
    story.wait_s(10_000)
    assert story.state("n0") is NodeState.REPAIRING
    story.follow(
        story.tell(
            events.Reported(story.origin("n0"), 0, reports.FindingCleared("gpu/0", "Hot", "cool"))
        )
    )
    story.wait_s(1)
    assert story.state("n0") is NodeState.PROBATION


def test_what_is_only_degraded_keeps_no_repaired_node_from_its_check() -> None:
    story = Checked()
    story.answer = ""
    story.find("n0", DEGRADED)
    story.find("n0", FATAL)
    story.follow(
        story.tell(
            events.Reported(story.origin("n0"), 0, reports.FindingCleared("gpu/0", "Hot", "cool"))
        )
    )
    story.wait_s(1)
    assert story.state("n0") is NodeState.SUSPECT
    assert story.owners("n0") == []


def test_a_controller_that_was_away_gives_a_check_its_time() -> None:
    story = Checked()
    story.boot("2")
    story.wait_s(TIMEOUT_S - 5)
    story.tell(events.ControllerStarted("0.1.0"))
    before = len(story.asked_s)
    story.wait_s(SETTINGS.startup_grace_ns / S - 1)
    assert len(story.asked_s) == before
