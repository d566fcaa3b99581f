"""Planned work at the command line: what is asked, and what is refused before it is asked."""

import json

import pytest

from everstep_cli.views.jobs import planned_facts
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import NOW_NS, FakeAdmin
from unit.cli.test_commands import call


def test_a_drain_tells_what_becomes_of_each_job() -> None:
    admin = FakeAdmin()
    assert call("drain", "node-1", admin=admin)[0] == 2
    code, drawn = call("drain", "node-1", "--reason", "fan", admin=admin)
    assert code == 0
    assert "demo goes on without node-1 after step 9" in drawn
    assert admin.told == [("drain", "node-1", "fan")]


def test_a_restart_needs_a_reason_and_may_name_a_step() -> None:
    admin = FakeAdmin()
    assert call("job", "demo", "restart", admin=admin)[0] == 2
    assert call("job", "demo", "--at-step", "9", admin=admin)[0] == 2
    assert call("job", "demo", "restart", "--at-step", "-1", "--reason", "x", admin=admin)[0] == 2
    assert call("job", "demo", "restart", "--at-step", "9", "--reason", "code", admin=admin)[0] == 0
    assert call("job", "demo", "restart", "--reason", "code", admin=admin)[0] == 0
    assert admin.told == [("restart", "demo", "9", "code"), ("restart", "demo", "None", "code")]


def test_a_restart_is_taken_back_by_its_own_option() -> None:
    admin = FakeAdmin()
    assert call("job", "demo", "--cancel", admin=admin)[0] == 2
    assert call("job", "demo", "forget", "--cancel", admin=admin)[0] == 2
    assert call("job", "demo", "restart", "--cancel", "--at-step", "9", admin=admin)[0] == 2
    assert admin.told == []
    code, drawn = call("job", "demo", "restart", "--cancel", "--reason", "a bug", admin=admin)
    assert code == 0
    assert "demo goes on as it is" in drawn
    assert call("job", "demo", "restart", "--cancel", admin=admin)[0] == 0
    assert admin.told == [("cancel restart", "demo", "a bug"), ("cancel restart", "demo", "")]


def test_what_is_planned_of_a_job_is_shown_with_who_since_when_and_what_undoes_it() -> None:
    line = admin_pb2.PlannedLine(
        kind="restart", by="ann", reason="new rate", ordered_ns=NOW_NS - 90_000_000_000,
        after_step=150, waits="for step 150, the newest is 130",
        undo="everstep job demo restart --cancel",
    )  # fmt: skip
    admin = FakeAdmin()
    admin.planned = line
    _, drawn = call("job", "demo", admin=admin, width=120)
    assert "a restart after step 150, ordered by ann 1 m 30 s ago: new rate" in drawn
    assert "for step 150, the newest is 130" in drawn
    assert "everstep job demo restart --cancel" in drawn
    assert "planned" not in call("job", "demo")[1]


def test_a_plan_without_a_step_yet_says_nothing_of_one() -> None:
    line = admin_pb2.PlannedLine(kind="drain", by="operator", reason="n is drained")
    line.ordered_ns = NOW_NS
    told = dict(planned_facts(line, NOW_NS))
    assert told["planned"] == "a move to other nodes, ordered by operator 0 s ago: n is drained"


def test_no_plan_is_null_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    call("job", "demo", "--json")
    assert json.loads(capsys.readouterr().out)["planned"] is None


def test_silent_nodes_are_declared_lost_below_the_list_of_nodes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    assert call("nodes", "lost", "node-1", admin=admin)[0] == 2
    code, drawn = call("nodes", "lost", "node-1", "--reason", "no power", admin=admin)
    assert code == 0
    assert drawn == "node-1 is lost: its jobs go on without it.\n"
    assert admin.told == [("lost", "node-1", "no power")]
    assert call("nodes", "lost", "node-9", "--reason", "no power", admin=admin)[0] == 2
    capsys.readouterr()
    assert call("nodes", "lost", "node-1", "--reason", "no power", "--json")[0] == 0
    assert json.loads(capsys.readouterr().out) == {"node": "node-1", "state": "lost"}


def test_a_node_that_is_gone_for_good_is_removed_below_the_list_of_nodes() -> None:
    admin = FakeAdmin()
    assert call("nodes", "remove", "node-1", admin=admin)[0] == 2
    code, drawn = call("nodes", "remove", "node-1", "--reason", "sold", admin=admin)
    assert code == 0
    assert drawn == "node-1 is forgotten.\n"
    assert admin.told == [("remove", "node-1", "sold")]
    assert call("nodes", "remove", "node-9", "--reason", "sold", admin=admin)[0] == 2
    assert call("nodes", "--json")[0] == 0
