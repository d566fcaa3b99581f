from everstep_common.judging.findings import Severity
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import AutomationPaused, EventRejected, RecoveryBegun
from everstep_controller.core.model.state import State
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.runtime.controller_findings import ShellTrouble, open_controller_findings
from everstep_controller.runtime.judge_failures import JudgeFailure

BEGAN = {
    ("controller", "JournalFull"): 1,
    ("controller", "RecoveryBegun"): 2,
    ("controller", "ControllerHalted"): 3,
    ("n", "AutomationPaused"): 4,
    ("fleet", "AutomationPaused"): 5,
}


def since(subject: str, reason: str) -> int:
    return BEGAN[subject, reason]


def told(state: State, full: JournalFull | None = None) -> dict[str, int]:
    """Return condition, from when; all are of the controller and say how they are cleared."""
    found = list(open_controller_findings(state, ShellTrouble(full), since))
    assert all(held.finding.component.startswith("controller/") for held in found)
    assert all(held.finding.rule for held in found)
    return {held.finding.condition: held.since_ns for held in found}


def test_a_controller_that_works_has_none() -> None:
    assert told(State()) == {}


def test_a_full_disk_is_one() -> None:
    assert told(State(), JournalFull("the disk is full")) == {"JournalFull": 1}


def test_a_halt_is_one() -> None:
    assert told(State(halted="this journal is old")) == {"ControllerHalted": 3}


def test_a_recovery_is_one_as_long_as_it_lasts() -> None:
    core = Core()
    core.handle(RecoveryBegun("ann"), 7)
    assert told(core.state) == {"ControllerHalted": 2}


def test_a_pause_is_one() -> None:
    core = Core()
    core.handle(AutomationPaused("fleet", "ann", "upgrade"), 7)
    assert told(core.state) == {"AutomationPaused": 5}


def test_a_poisoned_event_is_one_beside_the_pause_of_its_node() -> None:
    core = Core()
    core.handle(EventRejected(3, "FindingRaised", "KeyError: 1", "n", ""), 7)
    assert told(core.state) == {"EventRejected": 7, "AutomationPaused": 4}


def test_a_judge_that_fails_is_one() -> None:
    failure = JudgeFailure("ClockSkewJudge", (), "what it found is held", "ValueError(7)", 6)
    trouble = ShellTrouble(judge_failures=(failure,))
    (held,) = open_controller_findings(State(), trouble, since)
    assert (held.finding.condition, held.since_ns) == ("JudgeFailed", 6)
    assert held.finding.component == "controller/judge/ClockSkewJudge"
    assert "ValueError(7)" in held.finding.evidence


def test_how_bad_it_is_and_the_way_out_are_said() -> None:
    paused = {"fleet": "ann: upgrade", "n": "ann: fans"}
    state = State(halted="this journal is old", paused=paused)
    told = open_controller_findings(state, ShellTrouble(JournalFull("no space")), lambda *_: 1)
    found = {(one.finding.condition, one.finding.rule): one for one in told}
    severities = {condition: one.finding.severity for (condition, _), one in found.items()}
    assert severities == {
        "JournalFull": Severity.FATAL,
        "ControllerHalted": Severity.FATAL,
        "AutomationPaused": Severity.INFO,
    }
    ways_out = {rule for condition, rule in found if condition == "AutomationPaused"}
    assert ways_out == {"cleared by 'everstep resume'", "cleared by 'everstep resume n'"}


def test_a_recovery_is_less_bad_than_a_halt() -> None:
    core = Core()
    core.handle(RecoveryBegun("ann"), 7)
    (found,) = open_controller_findings(core.state, ShellTrouble(), since)
    assert found.finding.severity is Severity.DEGRADED
