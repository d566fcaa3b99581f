"""Names and shapes under which a journal holds events."""

import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.dispatch.core import EVENT_KINDS
from everstep_controller.core.events import EventBatch, JobProgressed
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


_PROGRESSED = st.builds(
    JobProgressed,
    job=st.text(max_size=20),
    generation=st.integers(0, 2**31),
    first_step=st.integers(0, 2**62),
    end_ns=st.just(()),
    stall_ns=st.just(()),
    recoverable_step=st.none() | st.integers(0, 2**62),
    snapshots_skipped=st.integers(0, 2**31),
)
_NS = st.integers(0, 2**62)
_ROWS = st.lists(
    st.tuples(_PROGRESSED, st.lists(st.tuples(_NS, _NS), max_size=4), st.sampled_from((1, 1000))),
    min_size=1,
    max_size=8,
)


@given(_ROWS)
def test_progress_of_many_jobs_comes_back_from_its_columns(
    told: list[tuple[JobProgressed, list[tuple[int, int]], int]],
) -> None:
    batch = EventBatch(
        tuple(
            replace(
                row,
                end_ns=tuple(end // unit * unit for end, _ in steps),
                stall_ns=tuple(stall // unit * unit for _, stall in steps),
            )
            for row, steps, unit in told
        )
    )
    assert codec.kind_of(batch) == "JobsProgressed"
    assert codec.decode_event(codec.kind_of(batch), codec.encode(batch)) == batch


def test_a_second_of_hundreds_of_jobs_takes_a_few_bytes_of_each() -> None:
    rng = random.Random(1)
    rows = tuple(
        JobProgressed(
            job=f"{rng.choice(('llama', 'gpt', 'resnet', 'sft'))}-{rng.randrange(10**6)}-{number}",
            generation=rng.choice((1, 1, 2, 3)),
            first_step=(step := rng.randrange(10**6)),
            end_ns=(10**18 + rng.randrange(10**6) * 1000,),
            stall_ns=(rng.randrange(3000) * 1000,),
            recoverable_step=step - rng.randrange(1, 4),
            snapshots_skipped=rng.randrange(200),
        )
        for number in range(150)
    )
    assert len(codec.encode(EventBatch(rows))) < 150 * 24


@pytest.mark.parametrize("body", [b"", b"{}", zlib.compress(b""), zlib.compress(b"\0\0\0\2[]")])
def test_columns_that_are_none_are_unreadable(body: bytes) -> None:
    with pytest.raises(codec.UnreadableError):
        codec.decode_event("JobsProgressed", body)
