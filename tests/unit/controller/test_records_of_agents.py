"""Records of agents, as the core's events: what cannot be worked with is refused, and said."""

from dataclasses import replace

import pytest

from everstep_common.reports import (
    EndedJob,
    LauncherJoined,
    LauncherLeft,
    RankExited,
    RanksWithoutSnapshot,
    Report,
    RestartedHere,
)
from everstep_controller.api.fleet import from_agent
from everstep_controller.api.fleet.from_agent import RecordContext
from everstep_controller.core import events
from everstep_controller.core.model.node import Origin
from everstep_controller.journal import codec
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, to_wire

_BOOT_NS = 1_000
_CONTEXT = RecordContext(Origin("node-1", "outbox", 7), lambda _, boot_ns: _BOOT_NS + boot_ns)
_STAMP = fleet_pb2.Stamp(boot_id="boot", boot_ns=50, wall_ns=90)


def _joined(
    nodes_min: int = 1, nodes_max: int = 2, processes: int = 8, replica_nodes: int = 1
) -> fleet_pb2.Record:
    wire = fleet_pb2.LauncherJoined(
        nodes_min=nodes_min,
        nodes_max=nodes_max,
        processes_per_node=processes,
        replica_nodes=replica_nodes,
        token_sha256="a" * 64,
    )
    return fleet_pb2.Record(sequence=7, stamp=_STAMP, job="train", launcher_joined=wire)


def _event(record: fleet_pb2.Record) -> events.Reported[Report]:
    record.job = record.job or "train"
    event = from_agent.reported(record, _CONTEXT)
    assert isinstance(event, events.Reported)
    return event


@pytest.mark.parametrize(
    "record",
    [
        _joined(nodes_min=3, nodes_max=2),
        _joined(nodes_min=0),
        _joined(processes=0),
        _joined(nodes_min=2, nodes_max=5, replica_nodes=2),
        _joined(nodes_min=3, nodes_max=4, replica_nodes=2),
    ],
    ids=["more at least than at most", "no node", "no process", "half a replica", "and at least"],
)
def test_a_job_of_an_impossible_size_is_refused(record: fleet_pb2.Record) -> None:
    with pytest.raises(WireError, match="--n"):
        _event(record)


def test_a_job_of_whole_replicas_is_taken() -> None:
    joined = _event(_joined(nodes_min=2, nodes_max=4, replica_nodes=2))
    assert isinstance(joined.report, LauncherJoined)


@pytest.mark.parametrize(("generation", "is_taken"), [(4, False), (5, False), (6, True)])
def test_a_generation_follows_an_older_one(generation: int, is_taken: bool) -> None:
    wire = fleet_pb2.RestartedHere(after_generation=5, generation=generation)
    record = fleet_pb2.Record(sequence=7, stamp=_STAMP, restarted_here=wire)
    if is_taken:
        assert isinstance(_event(record).report, RestartedHere)
        return
    with pytest.raises(WireError, match="cannot follow"):
        _event(record)


def test_data_that_ends_before_it_begins_is_no_range() -> None:
    skip = fleet_pb2.DataRange(first=4, last=3)
    wire = fleet_pb2.RollbackAsked(generation=1, step=5, skip=skip)
    with pytest.raises(WireError, match="range"):
        _event(fleet_pb2.Record(sequence=7, stamp=_STAMP, rollback_asked=wire))


def test_a_death_has_its_own_time_and_no_step_that_nobody_told() -> None:
    wire = fleet_pb2.RankExited(generation=1, rank=3, at_boot_ns=20)
    untold = _event(fleet_pb2.Record(sequence=7, stamp=_STAMP, rank_exited=wire))
    assert isinstance(untold.report, RankExited)
    assert (untold.report.step, untold.at_ns) == (None, _BOOT_NS + 20)
    wire.step = 0
    told = _event(fleet_pb2.Record(sequence=7, stamp=_STAMP, rank_exited=wire))
    assert isinstance(told.report, RankExited)
    assert told.report.step == 0


def test_what_has_no_time_of_its_own_happened_when_it_was_stamped() -> None:
    wire = fleet_pb2.LauncherLeft(reason="killed")
    left = _event(fleet_pb2.Record(sequence=7, stamp=_STAMP, launcher_left=wire))
    assert isinstance(left.report, LauncherLeft)
    assert left.at_ns == _BOOT_NS + 50


def test_a_name_that_is_no_file_name_is_refused() -> None:
    wire = fleet_pb2.LauncherLeft(reason="killed")
    with pytest.raises(WireError, match="expected a name of 1 to 200 letters"):
        _event(fleet_pb2.Record(sequence=7, stamp=_STAMP, job="a/b", launcher_left=wire))


@pytest.mark.parametrize(
    ("ends", "stalls"), [([10, 20], [0]), ([10], [0, 0]), ([10], [-1])], ids=str
)
def test_steps_and_their_stalls_go_together(ends: list[int], stalls: list[int]) -> None:
    wire = fleet_pb2.StepsCompleted(generation=1, end_boot_ns=ends, stall_ns=stalls)
    with pytest.raises(WireError, match="stall"):
        _event(fleet_pb2.Record(sequence=7, stamp=_STAMP, steps_completed=wire))


def test_an_agent_names_its_outbox() -> None:
    hello = fleet_pb2.Hello(node="node-1", stamp=_STAMP)
    with pytest.raises(WireError, match="outbox"):
        from_agent.node_connected(hello, 0)
    hello.outbox = "outbox"
    assert from_agent.node_connected(hello, 0).node == "node-1"


def test_an_agent_that_says_nothing_of_snapshots_says_not_that_there_were_none() -> None:
    told = fleet_pb2.JobOnNode(job="j", generation=3, job_id="j-4", world_size=4)
    of_before = fleet_pb2.Hello(node="node-1", stamp=_STAMP, outbox="outbox", jobs=[told])
    (job,) = from_agent.node_connected(of_before, 0).jobs
    assert job.without_snapshot is None
    never = RanksWithoutSnapshot(3, 2, 4, stop_ordered=True)
    wire = to_wire(replace(job, without_snapshot=never), fleet_pb2.JobOnNode)
    again = fleet_pb2.Hello(node="node-1", stamp=_STAMP, outbox="outbox", jobs=[wire])
    event = from_agent.node_connected(again, 0)
    assert event.jobs[0].without_snapshot == never
    # As the journal has it.
    assert codec.decode_event(codec.kind_of(event), codec.encode(event)) == event


def test_what_an_agent_remembers_of_ended_jobs_comes_as_it_says_it() -> None:
    ended = EndedJob(
        job="j", job_id="j-4", generation=3, term=7, succeeded=True, unsaved=True, reason="well"
    )
    wire = to_wire(ended, fleet_pb2.EndedJob)
    hello = fleet_pb2.Hello(node="node-1", stamp=_STAMP, outbox="outbox", ended_jobs=[wire])
    event = from_agent.node_connected(hello, 0)
    assert event.ended_jobs == (ended,)
    assert codec.decode_event(codec.kind_of(event), codec.encode(event)) == event
    hello.ended_jobs[0].job_id = "no id"
    with pytest.raises(WireError, match="job_id"):
        from_agent.node_connected(hello, 0)


def test_the_age_of_an_open_finding_is_taken_on_the_agents_clock() -> None:
    now = fleet_pb2.Stamp(boot_id="b", boot_ns=1000, wall_ns=1)
    since = [
        fleet_pb2.Stamp(boot_id="b", boot_ns=400, wall_ns=1),
        fleet_pb2.Stamp(boot_id="the one before", boot_ns=7000, wall_ns=1),
        fleet_pb2.Stamp(boot_id="b", boot_ns=2000, wall_ns=1),
    ]
    hello = fleet_pb2.Hello(node="node-1", stamp=now, outbox="outbox", findings_since=since)
    told = from_agent.node_connected(hello, 50_000).findings_since_ns
    assert told == (49_400, 49_000, 50_000)


def test_a_finding_was_seen_when_its_record_was_made_not_when_it_began() -> None:
    finding = fleet_pb2.Finding(
        component="gpu/0",
        condition="XidFatal",
        severity=fleet_pb2.SEVERITY_FATAL,
        suggested_action=fleet_pb2.SUGGESTED_ACTION_NONE,
        message="m",
    )
    began = fleet_pb2.Stamp(boot_id="boot", boot_ns=5, wall_ns=45)
    raised = fleet_pb2.FindingRaised(finding=finding, since=began)
    cleared = fleet_pb2.FindingCleared(component="gpu/0", condition="XidFatal", evidence="e")
    context = replace(_CONTEXT, seen_ns=lambda stamp: 1_000_000 + stamp.wall_ns)
    for record, at_ns, seen_ns in (
        (fleet_pb2.Record(finding_raised=raised), _BOOT_NS + 5, 1_000_090),
        (fleet_pb2.Record(finding_cleared=cleared), _BOOT_NS + 50, 1_000_090),
        (_joined(), _BOOT_NS + 50, 0),
    ):
        record.sequence, record.job = 7, "train"
        record.stamp.CopyFrom(_STAMP)
        event = from_agent.reported(record, context)
        assert isinstance(event, events.Reported)
        assert (event.at_ns, event.seen_ns) == (at_ns, seen_ns)
