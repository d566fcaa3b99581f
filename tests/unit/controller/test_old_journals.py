"""Journals of versions before layouts, storage and probation are read, and decide the same."""

import json
import typing

import pytest

from everstep_controller.core import actions
from everstep_controller.core.core import Core
from everstep_controller.core.events import Event, LayoutLearned, RecoveryStepChosen
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.lineage import BranchPoint, ShardSource
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec

# As version 0.1 wrote them.
_SOURCE = {
    "node": "n0",
    "bulk_address": "n0:1",
    "generation": 1,
    "rank": 0,
    "step": 5,
    "root_hash": "aa",
    "size_bytes": 8,
    "shards": ["w", "b"],
}
_CHOSEN = {
    "job": "j",
    "generation": 2,
    "step": 5,
    "sources": [_SOURCE],
    "lost": "",
    "reason": "step 5 is the newest that 1 nodes hold whole",
}
_ORIGIN = {"node": "n0", "outbox": "n0-box"}
_JOINED = {
    "uid": 1,
    "token_sha256": "t",
    "nodes_min": 1,
    "nodes_max": 1,
    "processes_per_node": 1,
    "reform": False,
    "restarts_max": 2,
    "free_port": 1,
}
_HELLO = {
    "node": "n0",
    "boot_id": "1",
    "agent_version": "0.1.0",
    "outbox": "n0-box",
    "highest_term": 0,
    "host": "n0",
    "bulk_address": "n0:1",
}
_JOURNAL = (
    ("ControllerStarted", {"version": "0.1.0"}),
    ("NodeConnected", _HELLO),
    (
        "CheckFinished",
        {
            "origin": {**_ORIGIN, "sequence": 1},
            "at_ns": 2,
            "report": {"order_id": "n0/check/1", "passed": True, "message": ""},
        },
    ),
    (
        "LauncherJoined",
        {"origin": {**_ORIGIN, "sequence": 2}, "at_ns": 3, "job": "j", "report": _JOINED},
    ),
    ("RecoveryStepChosen", {"job": "j", "generation": 1, "step": None, "reason": "new"}),
    ("LayoutLearned", {"job": "j", "generation": 1, "shards": ["b", "w"]}),
    (
        "RankExited",
        {
            "origin": {**_ORIGIN, "sequence": 3},
            "job": "j",
            "at_ns": 5,
            "report": {
                "generation": 1,
                "rank": 0,
                "exit_code": 1,
                "signal": 0,
                "last_line": "boom",
            },
        },
    ),
    (
        "GenerationStopped",
        {
            "origin": {**_ORIGIN, "sequence": 4},
            "job": "j",
            "at_ns": 6,
            "report": {"generation": 1, "free_port": 2},
        },
    ),
    ("RecoveryStepChosen", _CHOSEN),
)


def _folded(count: int = len(_JOURNAL)) -> tuple[Core, list[actions.Action]]:
    core, last = Core(), list[actions.Action]()
    for now_ns, (kind, body) in enumerate(_JOURNAL[:count], start=1):
        last = core.handle(codec.decode_event(kind, json.dumps(body).encode()), now_ns)
    return core, last


def test_an_old_journal_folds_to_a_job_that_goes_on_where_it_was() -> None:
    core, done = _folded()
    job = core.state.jobs["j"]
    assert (job.state, job.generation, job.restore_step) == (JobState.STARTING, 2, 5)
    assert job.branch == [BranchPoint(1, 5, 1, shards=("b", "w")), BranchPoint(2, None, 1)]
    assert job.restored == (1, 5)
    assert [a.restore_step for a in done if isinstance(a, actions.StartGeneration)] == [5]


def test_shards_that_an_old_journal_learned_still_say_that_there_was_a_snapshot() -> None:
    _, done = _folded(len(_JOURNAL) - 1)
    (question,) = [a for a in done if isinstance(a, actions.ChooseRecoveryStep)]
    assert question.expected


@pytest.mark.parametrize("count", range(1, len(_JOURNAL) + 1))
def test_a_snapshot_of_an_old_state_is_read(count: int) -> None:
    core, _ = _folded(count)
    body = json.loads(codec.encode(core.state))
    for job in body["jobs"].values():
        for new in ("storage", "latest", "crashed_from", "closing", "restored", "cause", "cadence"):
            del job[new]
        for point in job["branch"]:
            del point["layouts"]
    old = codec.decode_state(json.dumps(body).encode())
    assert isinstance(old, State)
    assert [p.shards for j in old.jobs.values() for p in j.branch] == [
        p.shards for j in core.state.jobs.values() for p in j.branch
    ]


def test_what_was_written_before_layouts_keeps_what_it_said() -> None:
    learned = codec.decode_event("LayoutLearned", b'{"job":"j","generation":1,"shards":["w"]}')
    assert learned == LayoutLearned("j", 1, shards=("w",))
    chosen = codec.decode_event("RecoveryStepChosen", json.dumps(_CHOSEN).encode())
    assert isinstance(chosen, RecoveryStepChosen)
    assert chosen.sources == (ShardSource("n0", "n0:1", 1, 0, 5, "aa", 8),)


# By these names events were journaled; a class that gets another name, or goes, loses them.
_KINDS = """
AutomationPaused AutomationResumed BreakpointReached CadenceChosen CheckFinished ControllerStarted
EventRejected FindingCleared FindingRaised GenerationFinished GenerationStopped InjectionChanged
InjectionCleared InjectionOrdered JobProgressed KeeperChosen LauncherJoined LauncherLeft
LayoutLearned MaintenanceCancelled MaintenanceOrdered NodeConnected NodeDisconnected OperatorDrained
OperatorForgotJob OperatorIsolated OperatorReleased PeerJudged PeerReported PhaseReached RankExited
RecordRejected RecoveryBegun RecoveryStepChosen RestartCancelled RestartOrdered RestartedHere
RollbackAsked SettingsApplied StepRecoverable TimerDue
"""


def test_every_kind_of_event_that_a_journal_may_hold_is_known_by_its_name() -> None:
    kinds = {(typing.get_args(kind) or (kind,))[0].__name__ for kind in typing.get_args(Event)}
    assert set(_KINDS.split()) <= kinds


@pytest.mark.parametrize("kind", _KINDS.split())
def test_a_kind_that_is_known_is_refused_for_its_shape_only(kind: str) -> None:
    with pytest.raises(codec.UnreadableError, match=f"^{kind}: "):
        codec.decode_event(kind, b"7")
