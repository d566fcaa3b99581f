"""Names and shapes under which a journal holds events."""

import copy
import json
import random
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.judging.flapping import Flapping
from everstep_common.reports import Phase, RanksWithoutSnapshot
from everstep_controller.core.dispatch.core import EVENT_KINDS
from everstep_controller.core.events import EventBatch, JobProgressed, SettingsApplied
from everstep_controller.core.model.agents import AgentIdentity, Contender
from everstep_controller.core.model.hang import NodeHang
from everstep_controller.core.model.incident import Strike
from everstep_controller.core.model.injection import Injection, NodeInjections
from everstep_controller.core.model.node import (
    Claim,
    Isolation,
    JobsOfNode,
    NodeBlame,
    NodeHealth,
    NodeRecord,
    NodeSpec,
    NodeState,
    OpenFinding,
    SpareCheck,
    SwapRecord,
)
from everstep_controller.core.model.node_liveness import (
    Confirmation,
    NodeLiveness,
    Silence,
    StreamEnds,
)
from everstep_controller.core.model.pair_test import PairRecord
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec, flat_nodes

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


# Settings as they were written until 2026-11-29.
_OLD_SETTINGS = {
    "mode": "enforce", "condition_modes": [["Odd", "observe"], ["XidFatal", "enforce"]],
    "isolation_budget_nodes": 2, "isolation_budget_ratio": 0.02, "isolations_per_hour_nodes": 4,
    "isolations_per_hour_ratio": 0.01, "job_stops_per_hour": 4, "silence_ns": 5000000000,
    "confirm_timeout_ns": 1500000000, "agent_return_ns": 15000000000, "loss_hold_ns": 60000000000,
    "controller_domain": "", "startup_grace_ns": 120000000000, "last_call_timeout_ns": 10000000000,
    "answer_timeout_ns": 60000000000, "holdings_timeout_ns": 120000000000,
    "restore_timeout_ns": 1800000000000, "warmup_timeout_ns": 3600000000000, "stop_grace_ns": 0,
    "probation_ns": 600000000000, "recover_listen_ns": 30000000000,
    "check_timeout_ns": 180000000000, "recheck_ns": 30000000000, "recheck_max_ns": 900000000000,
    "spare_check_interval_ns": 600000000000, "probation_steps": 10,
    "evidence_window_ns": 60000000000, "strike_window_ns": 86400000000000,
    "final_save_timeout_ns": 120000000000, "memory_kept_ns": 1800000000000,
    "snapshot_every_min": 1, "snapshot_every_max": 0, "snapshot_cost_ignored_ratio": 0.01,
    "snapshot_interval_ns_max": 7000000000, "unsaved_max_ns": 60000000000, "own_restarts": 2,
    "planned_restart_timeout_ns": 300000000000, "growth_delay_ns": 60000000000,
    "growth_interval_min_ns": 600000000000, "maintenance_drain_lead_ns": 600000000000,
    "maintenance_stop_lead_ns": 120000000000, "maintenance_duration_min_ns": 60000000000,
    "stall_timeout_ns": 9000000000, "stall_restart_timeout_ns": 0, "hang_patience_ns": 0,
    "restart_backoff_max_ns": 600000000000, "isolation_drivers": ["slurm"],
    "ended_job_retention_ns": 604800000000000,
}  # fmt: skip
_THE_SAME = Settings(
    mode=Mode.ENFORCE,
    evidence_max_age_ns=0,  # there was no such setting
    observe=("Odd",),
    enforce=("XidFatal",),
    snapshot_interval_max_ns=7_000_000_000,
    autonomous_restarts_max=2,
    stall_timeout_ns=9_000_000_000,
    hang_patience_ns=0,
    domain_isolation_budget_ratio=1.0,
    domain_isolations_per_hour_nodes=1_000_000,
)


def test_settings_in_old_words_are_the_same_in_events_and_in_snapshots() -> None:
    event = json.dumps({"settings": _OLD_SETTINGS}).encode()
    assert codec.decode_event("SettingsApplied", event) == SettingsApplied(_THE_SAME, ("slurm",))
    known = json.loads(codec.encode(State(term=3, cluster_id="condition_modes")))
    old = json.dumps({**known, "settings": _OLD_SETTINGS}).encode()
    state = State(term=3, cluster_id="condition_modes", settings=_THE_SAME)
    assert codec.decode_state(old) == state
    assert codec.decode_state(codec.encode(state)) == state


def test_a_state_without_settings_has_the_defaults() -> None:
    assert codec.decode_state(b'{"term":3,"settings":{}}') == State(term=3)
    assert codec.decode_state(b'{"term":3}') == State(term=3)


def test_what_was_decided_before_there_was_a_setting_is_decided_without_it_again() -> None:
    later = {"own_restarts", "spare_check_interval_ns", "stall_timeout_ns", "hang_patience_ns"}
    older = {name: value for name, value in _OLD_SETTINGS.items() if name not in later}
    event = codec.decode_event("SettingsApplied", json.dumps({"settings": older}).encode())
    assert isinstance(event, SettingsApplied)
    assert event.settings == replace(
        _THE_SAME, autonomous_restarts_max=0, spare_check_interval_ns=0, stall_timeout_ns=0
    )


@pytest.mark.parametrize("settings", [{"condition_modes": 3}, {"condition_modes": [["a", "b"]]}, 7])
def test_old_settings_of_another_shape_are_unreadable(settings: object) -> None:
    body = json.dumps({"settings": settings, "condition_modes": {}}).encode()
    with pytest.raises(codec.UnreadableError, match=r"^SettingsApplied: "):
        codec.decode_event("SettingsApplied", body)
    with pytest.raises(codec.UnreadableError, match=r"^snapshot: "):
        codec.decode_state(body)


# --- records of nodes as they were until 2026-11-30 ----------------------------------------------

# Written by the version before, with something in each field of "n9".
_FLAT = (Path(__file__).parents[2] / "fixtures/journal/state_with_flat_nodes.json").read_bytes()
_FOUND = OpenFinding(
    Finding(component="gpu/0", condition="XidFatal", severity=Severity.FATAL, message="Xid 79"), 3
)
_N9 = NodeRecord(
    name="n9",
    state=NodeState.REPAIRING,
    since_ns=11,
    reason="a reason",
    spec=NodeSpec(
        boot_id="boot",
        outbox="n9-box",
        agent_version="0.1.0",
        host="h9",
        domain="r9",
        machine="m-9",
        bulk_address="n9:1",
        liveness_address="n9:2",
    ),
    identity=AgentIdentity(
        "10.0.0.9", Contender("other", "10.0.0.10", 24), "next-box", 25, renamed_to="n10"
    ),
    liveness=NodeLiveness(
        connected=True,
        silent_since_ns=12,
        answered_ns=13,
        blocked_since_ns=17,
        silent_to=["n0"],
        silence=Silence(heard_ns=18, watchers=["n0"], doubt="it does not answer"),
        confirmation=Confirmation("n9/silent/1", ["n1"], 19),
        questions=["n2"],
        absent=True,
        lost_by="slurm",
    ),
    streams=StreamEnds([14, 15], 16, "reset"),
    health=NodeHealth(
        {"core gpu/0 XidFatal": _FOUND},
        {"core gpu/0 XidFatal": Flapping()},
        checks=20,
        check_failed="nvml",
        checks_failed=21,
        checks_unanswered=22,
    ),
    isolation=Isolation([Claim("operator", "ann: fan", 5, draining=True)], "Xid 79", "2 of 2", 23),
    blame=NodeBlame("ranks died", [Strike(26, "j", "it died")], [NodeHang(27, "j-1", (0,))]),
    jobs=JobsOfNode(["j-1"], {"j": "no room"}, {"j-1": RanksWithoutSnapshot(1, 1, 2)}),
    injections=NodeInjections(
        {"n9/inject/1": Injection("n9/inject/1", "stop", 28, "ann", "", 29)}, ordered=30
    ),
    swap=SwapRecord("a plan", 31, 32),
    spare_check=SpareCheck(passed_ns=33),
    pair=PairRecord(count=34),
)


def test_a_snapshot_with_flat_records_of_nodes_is_read_into_their_values() -> None:
    state = codec.decode_state(_FLAT)
    assert state.nodes["n9"] == _N9
    assert [claim.owner for claim in state.nodes["n2"].isolation.claims] == ["automation"]
    assert state.nodes["n1"].draining
    assert state.index.isolated == ["n2"]
    assert state.paused == {"nodes": '"nodes":{'}
    assert codec.decode_state(codec.encode(state)) == state


def test_a_job_is_read_without_what_two_fields_said() -> None:
    written, job = json.loads(_FLAT)["jobs"]["j-9"], codec.decode_state(_FLAT).jobs["j-9"]
    assert job.created_ns == written["created_ns"]
    counts = written["generation"]["phase_counts"]
    assert {one.value: job.generation.phases.count(one) for one in Phase} == counts
    now = json.loads(codec.encode(State(jobs={"j": job})))["jobs"]["j"]
    assert "created_ns" not in now
    assert now["generation"]["phases"] == written["generation"]["phases"]
    assert "phase_counts" not in now["generation"]
    assert copy.deepcopy(job) == job


# Fields that values have got since.
_ADDED = {
    *(("liveness", name) for name in ("unheard", "hello_ns", "renewing")),
    ("isolation", "judged"),
}
# And values that records have got since.
_ADDED_VALUES = {"days"}


def test_each_field_of_a_flat_record_has_one_place_in_a_value() -> None:
    old = json.loads(_FLAT)["nodes"]["n9"]
    values = json.loads(codec.encode(codec.decode_state(_FLAT)))["nodes"]["n9"]
    places = set(flat_nodes.PLACES.values())
    assert len(places) == len(flat_nodes.PLACES)
    assert {flat_nodes.PLACES.get(name, ("", name)) for name in old} == {
        *places,
        *(("", name) for name in values.keys() - {value for value, _ in places} - _ADDED_VALUES),
    }
    assert {
        (value, name) for value in {value for value, _ in places} for name in values[value]
    } == places | _ADDED


@pytest.mark.parametrize("nodes", [3, [], {"n": 3}, {"n": {"claims": 3}}, {"n": {"jobs": {}}}])
def test_records_of_nodes_of_another_shape_are_unreadable(nodes: object) -> None:
    with pytest.raises(codec.UnreadableError, match=r"^snapshot: "):
        codec.decode_state(json.dumps({"nodes": nodes}).encode())
