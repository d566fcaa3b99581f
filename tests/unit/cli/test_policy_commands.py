"""`everstep policy`: rules, groups, and what enforcing would have done, in words."""

import io

import pytest

from everstep_cli.client.admin import NameNotFoundError
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import NOW_NS, FakeAdmin

_DAY_NS = 86400 * 10**9


def call(*arguments: str, admin: FakeAdmin | None = None) -> tuple[int, list[str]]:
    """Run a command; return its exit code and the lines that it drew."""
    drawn = io.StringIO()
    session = AdminSession((admin or FakeAdmin()).connect, screen(drawn, 300), lambda: NOW_NS)
    code = run_command(session, arguments)
    return code, [line.rstrip() for line in drawn.getvalue().splitlines()]


def test_the_rule_that_decided_is_marked_below_the_mode_that_holds() -> None:
    _, lines = call("policy", "node-1")
    at = lines.index("XidFatal: enforce")
    assert lines[at + 1 : at + 3] == [
        "  * [groups.row-1] enforce: enforce",
        "    core.mode: advise",
    ]


def test_the_mode_of_the_fleet_its_budgets_and_groups_come_first() -> None:
    _, lines = call("policy")
    facts = [line.split(maxsplit=1) for line in lines[:2]]
    assert facts[0] == ["mode", "of the fleet  advise"]
    assert lines[1].endswith("1 of 2 working nodes isolated")
    rows = [line.split(maxsplit=2) for line in lines if line.startswith(("row-1", "logins"))]
    assert rows == [
        ["row-1", "512", "mode enforce; drivers: slurm"],
        ["logins", "2", "nothing"],
    ]


def test_what_if_is_asked_for_the_time_that_is_said_and_not_unasked() -> None:
    admin = FakeAdmin()
    call("policy", admin=admin)
    call("policy", "XidFatal", "--what-if", "enforce", admin=admin)
    call("policy", "--what-if", "enforce", "--last", "12h", admin=admin)
    assert admin.policies == [
        admin_pb2.GetPolicyRequest(),
        admin_pb2.GetPolicyRequest(subject="XidFatal", what_if_ns=7 * _DAY_NS),
        admin_pb2.GetPolicyRequest(what_if_ns=_DAY_NS // 2),
    ]


def test_what_enforcing_would_have_done_is_a_sentence_for_each_condition() -> None:
    _, lines = call("policy", "--what-if", "enforce", "--last", "30d")
    at = next(n for n, line in enumerate(lines) if "if it had been enforced for 30 d" in line)
    assert [line for line in lines[at + 1 :] if line.strip(" ─━")] == [
        "XidFatal: found on 12 nodes; 10 nodes isolated (node-[1-8] and 2 more), 2 held back by the"
        " budget of domain row-1 (node-[11-12]). In truth 1 node was isolated. 2 of the isolated"
        " were well again within 10 m 0 s.",
        "LinkDown: found on 1 node; 0 nodes isolated, 1 held back by the budget (node-9).",
        "all of them together: found on 13 nodes; 0 nodes isolated.",
    ]


def test_records_that_do_not_go_back_so_far_are_told_first() -> None:
    admin = FakeAdmin()
    admin.records_since_ns = NOW_NS - 3 * _DAY_NS
    _, lines = call("policy", "--what-if", "enforce", admin=admin)
    told = lines.index("Records go back 3 d 0 h only.")
    assert told < next(n for n, line in enumerate(lines) if line.startswith("XidFatal: found"))


def test_where_nothing_was_found_the_answer_says_so() -> None:
    admin = FakeAdmin()
    admin.outcomes = ()
    _, lines = call("policy", "--what-if", "enforce", admin=admin)
    assert lines[-1] == "Nothing was found for which automation isolates nodes."


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--last", "soon"], "'soon' is no length of time"),
        (["--what-if", "observe"], "'observe' is not 'enforce'"),
    ],
)
def test_a_time_or_a_mode_that_is_none_is_refused_before_anything_is_asked(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()
    assert call("policy", *arguments, admin=admin)[0] == 2
    assert admin.policies == []
    assert told in capsys.readouterr().err


def test_a_name_that_is_neither_node_nor_condition_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin(NameNotFoundError("no node, and no condition, is named 'gpu'"))
    assert call("policy", "gpu", admin=admin)[0] == 2
    assert "no node, and no condition, is named 'gpu'" in capsys.readouterr().err
