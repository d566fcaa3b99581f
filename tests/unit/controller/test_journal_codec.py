"""Names and shapes under which a journal holds events."""

import pytest

from everstep_controller.core.dispatch.core import EVENT_KINDS
from everstep_controller.journal import codec

_KINDS = """
AgentAnswered AgentLeaving ControllerStalled FindingSettled
AutomationPaused AutomationResumed FinalSaveEnded CadenceChosen CheckFinished ControllerStarted
DriverReported EventRejected FindingCleared FindingRaised GenerationFinished GenerationStopped
InjectionChanged InjectionCleared InjectionOrdered JobProgressed KeeperChosen LauncherJoined
LauncherLeft LayoutLearned MaintenanceCancelled MaintenanceOrdered NodeConnected NodeDisconnected
OperatorDrained OperatorForgotJob OperatorIsolated OperatorReleased PeerJudged PeerReported
PhaseReached RankExited RecordRejected RecoveryBegun RecoveryStepChosen RestartCancelled
RanksGoOn RanksStandStill RestartOrdered RestartedHere RollbackAsked EndAsked StoringMeasured
SettingsApplied HangJudged SlowJudged TimeoutJudged
StepRecoverable StopOrdered TimerDue
"""


def test_every_kind_of_event_that_a_journal_may_hold_is_known_by_its_name() -> None:
    kinds = {kind.__name__ for kind in EVENT_KINDS}
    assert len(kinds) == len(EVENT_KINDS), "two events of one name"
    assert set(_KINDS.split()) <= kinds


@pytest.mark.parametrize("kind", _KINDS.split())
def test_a_kind_that_is_known_is_refused_for_its_shape_only(kind: str) -> None:
    with pytest.raises(codec.UnreadableError, match=f"^{kind}: "):
        codec.decode_event(kind, b"7")


_NO_TEXT = b'{"version":"\xff"}'
_NESTED = b'{"a":' * 100_000


@pytest.mark.parametrize("body", [_NO_TEXT, _NESTED])
def test_a_row_that_is_no_text_or_nested_without_end_is_unreadable(body: bytes) -> None:
    with pytest.raises(codec.UnreadableError, match=r"^ControllerStarted: "):
        codec.decode_event("ControllerStarted", body)
    stored = b'[{"kind":"ControllerStarted","body":' + body + b"}]"
    with pytest.raises(codec.UnreadableError, match=r"^(EventBatch|ControllerStarted): "):
        codec.decode_event("EventBatch", stored)


@pytest.mark.parametrize("body", [b'{"cluster_id":"\xff"}', _NESTED])
def test_a_snapshot_that_is_no_text_or_nested_without_end_is_unreadable(body: bytes) -> None:
    with pytest.raises(codec.UnreadableError, match=r"^snapshot: "):
        codec.decode_state(body)


def test_recorded_actions_that_are_no_text_are_unreadable() -> None:
    body = b'[{"kind":"Announce","body":{"subject":"\xff"}}]'
    with pytest.raises(codec.UnreadableError, match=r"^recorded actions: "):
        codec.decode_actions(body)


def test_a_batch_of_no_events_is_unreadable() -> None:
    with pytest.raises(codec.UnreadableError, match=r"^EventBatch: no events"):
        codec.decode_event("EventBatch", b"[]")
