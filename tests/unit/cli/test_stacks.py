"""Stacks of a job at the command line: what ranks tell is shown, and nothing of it is believed."""

import json
from collections.abc import Iterator

import pytest

from everstep_common.codec import to_json
from everstep_common.hangs.reports.rank_report import (
    Blind,
    EvidenceSource,
    GroupReport,
    Operation,
    OperationState,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin
from unit.cli.test_fleet_commands import call


def _text(rank: int, *innermost_first: str, state: ProcessState = ProcessState.SLEEPING) -> str:
    process = ProcessFacts(state=state, state_for_ms=12_000, python_stack=innermost_first)
    blind = (Blind(EvidenceSource.NATIVE_STACK, "ptrace_scope is 2"),)
    return json.dumps(to_json(RankHangReport(rank=rank, process=process, blind=blind)))


def _node(*reports: str, node: str = "node-1", missing: str = "") -> admin_pb2.NodeInspection:
    first = 0 if node == "node-1" else 2
    return admin_pb2.NodeInspection(
        node=node, first_rank=first, ranks=2, reports=reports, missing=missing
    )


def _shown(*nodes: admin_pb2.NodeInspection) -> str:
    admin = FakeAdmin()
    admin.inspections = list(nodes)
    code, drawn = call("job", "demo", "stacks", admin=admin)
    assert code == 0
    return drawn


def test_who_does_something_else_stands_out() -> None:
    waits = ("d.py:1 all_reduce", "t.py:9 main")
    drawn = _shown(
        _node(_text(0, *waits), _text(1, *waits)),
        _node(_text(2, "t.py:4 load", "t.py:9 main"), _text(3, *waits), node="node-2"),
    )
    assert "4 ranks: 0-3" in drawn
    assert "3 ranks: 0-1,3" in drawn
    assert "rank 2\n" in drawn
    assert drawn.count("ptrace_scope is 2 (4 ranks: 0-3)") == 1


def _last(rank: int, enqueued: int) -> str:
    pending = (Operation(7, "all_reduce", "", OperationState.SCHEDULED),) if enqueued > 6 else ()
    group = GroupReport(
        "default_pg", "0-1", 2, enqueued, 6, pending=pending, pending_count=enqueued - 6
    )
    return json.dumps(to_json(RankHangReport(rank=rank, world_size=2, groups=(group,))))


class _GoesOn(FakeAdmin):
    """An administration of a job whose ranks are elsewhere each time that they are looked at."""

    def inspect(self, job: str) -> Iterator[admin_pb2.NodeInspection]:
        yield from super().inspect(job)
        self.inspections = [_node(_last(0, 6), _last(1, 7))]


def test_a_rank_that_is_last_at_one_moment_of_a_job_that_goes_on_is_not_blamed() -> None:
    stands = _node(_last(0, 7), _last(1, 6))
    assert "Rank 1 holds the job back" in _shown(stands)
    goes_on = _GoesOn()
    goes_on.inspections = [stands]
    drawn = call("job", "demo", "stacks", admin=goes_on)[1]
    assert "The job goes on: ranks 0-1 have moved between two looks" in drawn
    assert "holds" not in drawn


def test_a_stopped_rank_is_named_with_its_node() -> None:
    drawn = _shown(_node(_text(1, "a", state=ProcessState.STOPPED)))
    assert "rank 1 on node-1: stopped for 12.0 s" in drawn


@pytest.mark.parametrize(
    "report", ["{", "[1]", _text(3, "a"), _text(7, "a"), "[" * 16_000, '{"rank": true}']
)
def test_a_report_that_is_of_no_rank_there_is_left_out(report: str) -> None:
    drawn = _shown(_node(_text(0, "fine"), report))
    assert "node-1: a report is left out, it is of no rank there" in drawn
    assert "rank 0" in drawn


def test_a_rank_is_believed_once() -> None:
    drawn = _shown(_node(_text(0, "first"), _text(0, "second")))
    assert "rank 0 is reported twice" in drawn
    assert "second" not in drawn


def test_no_frame_steers_the_terminal() -> None:
    drawn = _shown(_node(_text(0, "evil.py:1 \x1b[2Jboo")))
    assert r"\x1b[2Jboo" in drawn


def test_what_a_node_cannot_tell_is_said() -> None:
    assert "node-2: its launcher is away" in _shown(
        _node(node="node-2", missing="its launcher is away")
    )


def test_it_is_read_by_programs_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin()
    admin.inspections = [_node(_text(0, "a"))]
    assert call("job", "demo", "stacks", "--json", admin=admin)[0] == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(json.loads(line)["reports"][0])["rank"] == 0


def _process(rank: int, pid: int, devices: tuple[str, ...] | None) -> str:
    process = ProcessFacts(state=ProcessState.SLEEPING, devices=devices)
    return json.dumps(to_json(RankHangReport(rank=rank, pid=pid, process=process)))


def _placed(*options: str) -> str:
    admin = FakeAdmin()
    admin.inspections = [
        _node(_process(3, 41, ()), node="node-2", missing="it told of 1 of 2 ranks"),
        _node(_process(1, 43, ("0000:3b:00.0", "0000:5e:00.0")), _process(0, 42, None)),
    ]
    code, drawn = call("job", "demo", "ranks", *options, admin=admin)
    assert code == 0
    return drawn


def test_the_node_process_and_devices_of_each_rank_are_listed_in_order() -> None:
    rows = [line.split() for line in _placed().splitlines() if line.strip()[:1].isdigit()]
    assert rows == [
        ["0", "node-1", "42", "sleeping", "not", "read"],
        ["1", "node-1", "43", "sleeping", "0000:3b:00.0,", "0000:5e:00.0"],
        ["3", "node-2", "41", "sleeping", "none"],
    ]
    assert "not seen: node-2: it told of 1 of 2 ranks" in _placed()


def test_ranks_are_a_line_of_json_each(capsys: pytest.CaptureFixture[str]) -> None:
    _placed("--json")
    told = capsys.readouterr()
    lines = [json.loads(line) for line in told.out.splitlines()]
    assert [(one["rank"], one["node"], one["pid"]) for one in lines] == [
        (0, "node-1", 42),
        (1, "node-1", 43),
        (3, "node-2", 41),
    ]
    assert lines[1]["devices"] == ["0000:3b:00.0", "0000:5e:00.0"]
    assert "node-2: it told of 1 of 2 ranks" in told.err
