"""Nodes of a fleet on the command line: summary, lines, lists of nodes, drawn again and again."""

import csv
import io
import json
from collections.abc import Callable

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from everstep_cli.client.admin import AdminError, RefusedError
from everstep_cli.client.times import RequestedTime
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from everstep_cli.views import formatting, tables
from everstep_cli.views.findings import finding_list
from everstep_cli.views.fleet_ledger import fleet_ledger_csv, fleet_ledger_sheet
from everstep_common.node_lists import NodeListError, expand
from everstep_proto.generated import admin_pb2
from fakes import cli_fleet
from fakes.cli_admin import NOW_NS, FakeAdmin


def call(
    *arguments: str,
    admin: FakeAdmin | None = None,
    wait: Callable[[float], None] = lambda _: None,
) -> tuple[int, str]:
    drawn = io.StringIO()
    clock = iter(range(NOW_NS, NOW_NS + 1000 * 10**9, 10**9))
    connect = (admin or FakeAdmin()).connect
    session = AdminSession(connect, screen(drawn, 80), lambda: next(clock), wait)
    return run_command(session, arguments), drawn.getvalue()


def test_the_fleet_is_told_in_numbers_before_any_node() -> None:
    _, drawn = call("nodes")
    assert drawn.splitlines()[:3] == [
        "5 nodes: 1 lost, 1 repairing, 3 healthy",
        "2 claimed by automation, 1 doubtful",
        "open findings: XidFatal on 1",
    ]


def test_a_node_is_one_line_that_says_all_there_is_to_say_of_it() -> None:
    _, drawn = call("nodes")
    lines = [line for line in drawn.splitlines() if line.startswith("node-")]
    assert [line.split()[0] for line in lines[:5]] == [f"node-{n}" for n in range(1, 6)]
    because = "node-1 and node-3 did not hear from it, and its stream is closed"
    assert lines[1].split(maxsplit=8)[1:] == [
        "lost", "3", "m", "20", "s", "automation", "0", f"demo  {because}",
    ]  # fmt: skip
    because = "its agent does not answer, and its kernel accepts connects"
    assert lines[3].endswith(f"doubtful for 12 s: {because}")
    assert "healthy, doubtful" in lines[3]
    assert "node-9, an agent refused for 1 m 10 s" in lines[5]


def test_names_after_nodes_are_told_where_single_nodes_are_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _ = call("nodes", "node-1", "node-2")
    assert code == 2
    told = capsys.readouterr().err
    assert "everstep node node-1 node-2" in told
    assert "everstep nodes lost" in told


def test_hardware_and_domain_are_columns_on_demand() -> None:
    assert "24 GiB" not in call("nodes")[1]
    assert "24 GiB" in call("nodes", "--long")[1]
    assert "batch,row-1" in call("nodes", "--long")[1]


def test_every_choice_goes_to_the_controller() -> None:
    admin = FakeAdmin()
    options = ["--state", "lost,away", "--state", "suspect", "--finding", "XidFatal"]
    options += ["--domain", "rack 7", "--node", "node-[1-2]", "--sort", "since", "--summary"]
    options += ["--group", "batch,logins"]
    assert call("nodes", *options, admin=admin)[0] == 0
    (asked,) = admin.selections
    assert asked == admin_pb2.ListNodesRequest(
        names=["node-1", "node-2"],
        states=["lost", "away", "suspect"],
        findings=["XidFatal"],
        domains=["rack 7"],
        groups=["batch", "logins"],
        sort="since",
        summary_only=True,
    )


def test_of_a_large_fleet_only_what_is_not_simply_healthy_is_asked_for() -> None:
    admin = FakeAdmin()
    admin.summary.CopyFrom(cli_fleet.SUMMARY)
    admin.summary.fleet_nodes = admin.summary.nodes = 2000
    _, drawn = call("nodes", admin=admin)
    assert [asked.troubled for asked in admin.selections] == [True]
    assert "1997 healthy nodes are not listed; 'everstep nodes --all' lists them, too." in drawn
    call("nodes", "--all", admin=admin)
    call("nodes", "--json", admin=admin)
    call("nodes", "--state", "healthy", admin=admin)
    assert [asked.troubled for asked in admin.selections] == [True, False, False, False]


def test_an_older_controller_lists_all_and_is_not_asked_to_choose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    admin.older = True
    code, drawn = call("nodes", admin=admin)
    assert code == 0
    assert "node-5" in drawn
    assert call("nodes", "--state", "lost", admin=admin)[0] == 1
    assert "of an older version" in capsys.readouterr().err


def test_a_fleet_is_drawn_again_and_again_until_it_is_ended() -> None:
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            raise KeyboardInterrupt

    code, drawn = call("nodes", "--watch", wait=wait)
    assert code == 130
    assert waited == [2.0, 2.0, 2.0]
    assert drawn.count("5 nodes:") == 3
    # Each is of its own time.
    assert [f"3 m {seconds} s" in drawn for seconds in (21, 22, 23)] == [True, True, True]


def test_a_watch_outlives_a_controller_that_is_away_for_a_while(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    rounds = iter([AdminError("no controller answers"), None])

    def wait(_: float) -> None:
        admin.trouble = next(rounds, None)
        if admin.trouble is None and len(admin.selections) > 4:
            raise KeyboardInterrupt

    code, drawn = call("nodes", "--watch", "5", admin=admin, wait=wait)
    assert code == 130
    assert drawn.count("5 nodes:") >= 2
    assert "no controller answers; it is asked again" in capsys.readouterr().err


# -- lists of nodes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-0042", ["gpu-0042"]),
        ("a, b,a", ["a", "b"]),
        ("gpu-[0009-0011,0020]", ["gpu-0009", "gpu-0010", "gpu-0011", "gpu-0020"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu-[1-2],login", ["gpu-1", "gpu-2", "login"]),
        ("@all", ["@all"]),
    ],
)
def test_a_list_of_nodes_is_the_names_in_it(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["gpu-[1", "gpu-]1[", "gpu-[2-1]", "a,,b", "a,", "", "gpu-[x]", "gpu-[]"]
)
def test_what_is_no_list_of_nodes_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(NodeListError) as told:
        expand(text)
    assert repr(text) in str(told.value)


def test_a_list_that_would_fill_the_memory_is_refused_before_it_is_made() -> None:
    for text in ("n[1-999999999999]", "a[1-9999]b[1-9999]", f"n[0-{'9' * 300}]", "n[0-99999999"):
        with pytest.raises(NodeListError, match="names more than 200000 nodes"):
            expand(text)
    for text in (f"n[{'0' * 29}1-{'0' * 20}9999999999]", "a[1,2]" * 18):
        with pytest.raises(NodeListError, match="names more than 200000 nodes"):
            expand(text)


@pytest.mark.parametrize("fold", ["1-1_000_000_000", "1-+999999999", "٠-٩٩٩٩٩٩٩٩٩"])  # noqa: RUF001 - digits
def test_numbers_that_nobody_writes_are_refused_before_they_are_counted_wrong(fold: str) -> None:
    with pytest.raises(NodeListError, match="is no range"):
        expand(f"n[{fold}]")


def test_several_lists_with_commas_between_them_are_counted_together() -> None:
    assert len(expand("r[1-600]n1,r[1-600]n2,login")) == 1201


_NAME = st.builds(
    lambda stem, number, width: f"{stem}{number:0{width}}",
    st.sampled_from(["gpu-", "node", "r1n"]),
    st.integers(0, 120),
    st.integers(1, 4),
)


@given(st.lists(_NAME | st.just("login"), min_size=1, max_size=30, unique=True))
def test_what_is_folded_unfolds_to_the_same_nodes(names: list[str]) -> None:
    folded = NodeSet(formatting.names(names), resolver=RESOLVER_NOGROUP)
    assert sorted(map(str, folded)) == sorted(names)


def test_an_order_for_a_list_is_given_for_each_node_of_it() -> None:
    admin = FakeAdmin()
    code, drawn = call("drain", "node-[1-2],node-5", "--reason", "fans", admin=admin)
    assert code == 0
    assert [told[1] for told in admin.told] == ["node-1", "node-2", "node-5"]
    assert "node-5 takes no new ranks." in drawn


def test_nothing_is_done_where_one_node_of_a_list_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    assert call("isolate", "node-[4-7]", "--reason", "fans", admin=admin)[0] == 2
    assert admin.told == []
    assert "'node-6'" in capsys.readouterr().err


def test_a_node_that_is_refused_keeps_no_other_from_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    admin.refuses = {"node-2": RefusedError("node-2 is healthy and not lost")}
    code, drawn = call("nodes", "remove", "node-[1-3]", "--reason", "gone", admin=admin)
    assert code == 1
    assert [told[1] for told in admin.told] == ["node-1", "node-3"]
    assert "node-3 is forgotten" in drawn
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "node-2: node-2 is healthy and not lost"
    assert told[1] == "Error: not done for node-2, for what is said above"


def test_an_order_that_cannot_be_given_says_which_nodes_are_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    admin.refuses = {"node-2": AdminError("no controller answers")}
    assert call("nodes", "remove", "node-[1-4]", "--reason", "gone", admin=admin)[0] == 1
    assert "nothing was done for node-[2-4]" in capsys.readouterr().err


def test_several_answers_are_a_line_of_json_each(capsys: pytest.CaptureFixture[str]) -> None:
    call("drain", "node-[1-2]", "--reason", "fans", "--json")
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["node"] for line in lines] == ["node-1", "node-2"]


def test_an_action_on_a_job_has_no_findings_to_list_one_by_one() -> None:
    assert call("job", "demo", "--all")[0] == 0
    assert call("findings", "--all", "--node", f"node-1,{cli_fleet.FINDING.node}")[0] == 0
    assert call("job", "demo", "slow", "--all")[0] == 2


def test_findings_and_copies_of_a_list_of_nodes_are_those_of_its_nodes() -> None:
    _, found = call("findings", "--node", f"node-1,{cli_fleet.FINDING.node}")
    assert "XidFatal" in found
    _, none = call("findings", "--node", "node-[1-2]")
    assert "XidFatal" not in none
    _, copies = call("snapshots", "demo", "--copies", "--node", "node-[3-4]")
    of_each = [call("snapshots", "demo", "--copies", "--node", f"node-{n}")[1] for n in (3, 4)]
    assert set(copies.splitlines()) == set("".join(of_each).splitlines())


@pytest.mark.parametrize(
    "command",
    [
        ["findings", "--node", "node-[1-2],node-x"],
        ["snapshots", "demo", "--copies", "--node", "node-1,node-x"],
        ["inject", "node-1,node-x", "xid:79"],
        ["pause", "node-1,node-x", "--reason", "fans"],
        ["node", "node-1,node-x"],
    ],
)
def test_a_list_with_an_unknown_node_is_refused_wherever_nodes_are_named(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()
    code, drawn = call(*command, admin=admin)
    assert (code, drawn, admin.told) == (2, "", [])
    assert "no node named 'node-x'" in capsys.readouterr().err


def test_a_fault_is_injected_into_each_node_of_a_list() -> None:
    admin = FakeAdmin()
    code, drawn = call("inject", "node-[1-2]", "xid:79", admin=admin)
    assert (code, [told[:2] for told in admin.told]) == (
        0,
        [("inject", "node-1"), ("inject", "node-2")],
    )
    assert "node-2: xid:79 is injected" in drawn
    assert call("inject", "node-[1-2]", "--clear", admin=admin)[0] == 0
    assert admin.told[2:] == [("clear", "node-1", ""), ("clear", "node-2", "")]


@pytest.mark.parametrize("end", [["xid:79"], ["--clear"]])
def test_nodes_of_an_injection_are_separate_arguments_or_lists(end: list[str]) -> None:
    admin = FakeAdmin()
    code, drawn = call("inject", "node-1", "node-[1-2]", "node-3", *end, admin=admin)
    assert code == 0, drawn
    assert [told[1] for told in admin.told] == ["node-1", "node-2", "node-3"]
    listed = call("inject", "node-1", "--list")[1]
    assert call("inject", "node-1", "node-2", "--list")[1] == 2 * listed


def test_an_option_names_nodes_several_times() -> None:
    admin, twice = FakeAdmin(), ("--node", "node-1", "--node", "node-3")
    call("nodes", *twice, admin=admin)
    assert list(admin.selections[0].names) == ["node-1", "node-3"]
    assert "XidFatal" in call("findings", *twice)[1]
    assert "XidFatal" not in call("findings", "--node", "node-1", "--node", "node-2")[1]
    _, copies = call("snapshots", "demo", "--copies", "--node", "node-3", "--node", "node-4")
    assert copies == call("snapshots", "demo", "--copies", "--node", "node-[3-4]")[1]


def test_one_injection_is_not_ended_on_several_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inject", "node-[1-2]", "--clear", "node-1/inject/1")[0] == 2
    assert "name that one, or leave the id out" in capsys.readouterr().err


def test_automation_is_paused_for_a_list_of_nodes_and_for_everything_without_a_name() -> None:
    admin = FakeAdmin()
    call("pause", "node-[1-2]", "--reason", "fans", admin=admin)
    call("pause", "--reason", "all", admin=admin)
    call("resume", "node-[1-2]", admin=admin)
    call("resume", admin=admin)
    assert admin.told == [
        ("pause", "node-1", "fans"),
        ("pause", "node-2", "fans"),
        ("pause", "", "all"),
        ("resume", "node-1"),
        ("resume", "node-2"),
        ("resume", ""),
    ]


@pytest.mark.parametrize("command", [["why"], ["events", "--subject"]])
def test_what_takes_one_name_says_so_of_a_list(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*command, "node-[1-2]")[0] == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "is a list of nodes, and this takes one name" in told
    assert "everstep nodes --node 'node-[1-2]'" in told


# -- events since a time ---------------------------------------------------------------------------

_S = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "since"),
    [
        ("2h", RequestedTime(None, 7200 * _S)),
        ("90m ago", RequestedTime(None, 5400 * _S)),
        ("2026-01-31T12:00", RequestedTime(1769860800 * _S)),
        ("2026-01-31T12:00+01:00", RequestedTime(1769857200 * _S)),
    ],
)
def test_events_are_asked_for_from_a_time_on(text: str, since: RequestedTime) -> None:
    admin = FakeAdmin()
    assert call("events", "--since", text, admin=admin)[0] == 0
    assert admin.since == [since]


@pytest.mark.parametrize("text", ["tomorrow", "in 2h", "now", "0h", "-2h", ""])
def test_what_is_no_time_of_the_past_is_a_wrong_command_line(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = FakeAdmin()
    assert call("events", "--since", text, admin=admin)[0] == 2
    assert admin.since == []
    told = capsys.readouterr().err
    assert repr(text)[1:-1] in told
    assert "say 2h (ago), or 2026-12-24T08:00 (UTC)" in " ".join(told.split()) or text == "0h"


def test_a_stop_needs_a_reason_and_passes_it_on(capsys: pytest.CaptureFixture[str]) -> None:
    admin = FakeAdmin()
    assert call("job", "demo", "stop", admin=admin)[0] == 2
    assert "everstep job demo stop --reason TEXT" in capsys.readouterr().err
    assert call("job", "demo", "stop", "--at-step", "9", "--reason", "over", admin=admin)[0] == 0
    assert call("job", "demo", "stop", "--cancel", admin=admin)[0] == 0
    assert admin.told == [("stop", "demo", "9", "over"), ("cancel restart", "demo", "")]


def test_the_ettr_of_the_fleet_is_a_row_for_each_period(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    _, drawn = call("ettr", admin=admin)
    lines = [" ".join(line.split()) for line in drawn.splitlines()]
    assert lines[2].endswith("2 10.0 95.00% 95.00% 3 inc.capacity 4.0%,")
    assert any(line.startswith("all 2 10.0 95.00%") for line in lines)
    assert "ETTR_time = …" in drawn
    call("ettr", "--by", "month", "--last", "3", admin=admin)
    assert admin.told == [("fleet ledger", "day", "14"), ("fleet ledger", "month", "3")]
    assert call("ettr", "demo", "--by", "cause", admin=admin)[0] == 0
    assert admin.told[-1] == ("fleet ledger", "cause", "14")
    assert call("ettr", "demo", "--by", "week", "--published", admin=admin)[0] == 2
    assert "without --by" in capsys.readouterr().err
    assert call("ettr", "--by", "rack", admin=admin)[0] == 2
    assert "'queue', 'account', 'cause'" in capsys.readouterr().err


def test_what_a_rank_wrote_is_shown_with_its_rank_and_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = FakeAdmin()
    assert call("logs", "demo", admin=admin)[0] == 0
    told = capsys.readouterr()
    assert told.out.splitlines() == ["[3] step 9", r"[3] \x1b[2Jboo"]
    assert told.err == "the agent of node-2 is away\n"
    assert call("logs", "demo", "--rank", "3", "--follow", admin=admin)[0] == 0
    assert capsys.readouterr().out.splitlines() == ["step 9", r"\x1b[2Jboo"]
    assert admin.told[-1] == ("logs", "demo", "3", "True")


def test_the_step_in_hand_of_a_running_job_is_no_loss() -> None:
    one = admin_pb2.FleetPeriod(jobs=1, node_ns=100)
    one.categories.add(name="inflight", time_ns=40)
    one.categories.add(name="init.proc", time_ns=10)
    drawn = io.StringIO()
    for view in fleet_ledger_sheet(admin_pb2.FleetLedger(periods=[one], whole=one, by="day")):
        screen(drawn, 120).print(view)
    assert "init.proc 10.0%" in drawn.getvalue()
    assert "inflight" not in drawn.getvalue()


def test_what_is_billed_is_a_table_with_hours_by_category_and_no_formula() -> None:
    hour_ns = 3_600_000_000_000
    one = admin_pb2.FleetPeriod(
        key="=SUM(A1)", jobs=2, node_ns=3 * hour_ns, device_ns=24 * hour_ns, cost=60.0,
        cost_lost=20.0, end_ns=86_400 * 10**9,
    )  # fmt: skip
    one.categories.add(name="productive", time_ns=2 * hour_ns)
    one.categories.add(name="inc.detect", time_ns=hour_ns)
    table = fleet_ledger_csv(admin_pb2.FleetLedger(periods=[one], by="account"))
    (row,) = csv.DictReader(io.StringIO(table))
    assert (row["account"], row["jobs"], row["from"]) == ("'=SUM(A1)", "2", "1970-01-01T00:00:00Z")
    assert (row["node_hours"], row["device_hours"], row["cost"]) == (
        "3.000000",
        "24.000000",
        "60.00",
    )
    assert row["node_hours productive"] == "2.000000"
    categories = [float(value) for name, value in row.items() if name.startswith("node_hours ")]
    assert sum(categories) == 3


def test_incidents_are_shown_with_the_newest_of_each_cause_to_ask_about() -> None:
    one = admin_pb2.FleetPeriod(key="node", incidents=3, failures=3, device_ns=36 * 10**11, cost=9)
    one.incident_ids.append("demo-1.7")
    ledger = admin_pb2.FleetLedger(
        periods=[one], whole=one, by="cause", price_per_device_hour=2.5, notes=["It begins late."]
    )
    drawn = io.StringIO()
    for view in fleet_ledger_sheet(ledger):
        screen(drawn, 120).print(view)
    lines = drawn.getvalue().splitlines()
    assert lines[0] == "It begins late."
    assert any(line.split()[:4] == ["node", "3", "3", "1.00"] for line in lines)
    assert "demo-1.7" in drawn.getvalue()


@pytest.mark.parametrize(
    "nodes", [["node-1", "node-2"], ["node-1,node-2"], ["node-[1-2]"], ["node-1", "node-[1-2]"]]
)
def test_nodes_are_separate_arguments_or_a_list(nodes: list[str]) -> None:
    for command in (["isolate"], ["drain"], ["release"], ["pause"], ["nodes", "remove"]):
        admin = FakeAdmin()
        code, drawn = call(*command, *nodes, "--reason", "rack 7", admin=admin)
        assert code == 0, drawn
        assert [told[1] for told in admin.told] == ["node-1", "node-2"]


def piped(*arguments: str) -> list[str]:
    """Return the lines of an answer that goes into a pipe."""
    drawn = io.StringIO()
    session = AdminSession(FakeAdmin().connect, screen(drawn), lambda: NOW_NS)
    assert run_command(session, arguments) == 0
    return drawn.getvalue().splitlines()


def test_a_row_that_is_piped_is_one_line_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    drawn, sentence = io.StringIO(), "only its own agent has seen it, " * 20
    for part in finding_list([admin_pb2.FindingLine(node="n", message=sentence)], NOW_NS):
        screen(drawn).print(part)
    assert sentence.strip() in drawn.getvalue()


def test_findings_of_one_cause_are_a_line_in_a_pipe_with_all_that_is_told_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    same = [
        admin_pb2.FindingLine(
            node="node-1",
            component=f"link/mlx5_{link}",
            condition="LinkDown",
            severity="degraded",
            message="the link is down",
            evidence="state 1: DOWN",
            suggested_action="check_cable",
            rule="link-state",
        )
        for link in range(6)
    ]
    drawn = io.StringIO()
    for part in finding_list(same, NOW_NS):
        screen(drawn).print(part)
    header, _, row = drawn.getvalue().splitlines()
    assert header.split() == ["node", "severity", "condition", "since", "finding"]
    assert "LinkDown; link/mlx5_0; link/mlx5_1; link/mlx5_2; link/mlx5_3, and 2 more " in row
    assert row.rstrip().endswith(
        "the link is down; seen: state 1: DOWN; do: check cable; rule: link-state; "
        "and 5 more findings of this cause; each: everstep findings --all"
    )


@pytest.mark.parametrize(
    ("command", "first", "last"),
    [
        (["job", "demo"], "demo-1 ", "imports 1.400"),
        (["ettr", "demo"], "demo-1 ", "imports 1.400"),
        (["findings"], "node-3 ", "injected on purpose"),
        (["snapshots", "demo"], "→   129 ", "peer memory: 3 of 4 on node-[1-3]"),
    ],
)
def test_a_row_of_several_lines_is_one_in_a_pipe(
    command: list[str], first: str, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    [row] = [line.rstrip() for line in piped(*command) if line.startswith(first)]
    assert row.endswith(last)


def test_a_cell_has_its_lines_on_a_screen_and_none_that_are_empty_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    rows = tables.table("a", "b")
    rows.add_row("x\n", Text("p\n\nq"))
    wide, narrow = io.StringIO(), io.StringIO()
    screen(wide).print(rows)
    screen(narrow, 80).print(rows)
    assert [line.split() for line in wide.getvalue().splitlines()[2:]] == [["x", "p;", "q"]]
    assert [line.split() for line in narrow.getvalue().splitlines()[2:]] == [["x", "p"], [], ["q"]]


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("incidents", "node on node-1 gpu/3, cost 1 m 0 s: node-1 was lost"),
        ("hours", "since its start productive 1 h 0 m, gap 1 s; 8 nodes"),
        (
            "nodes",
            "repairing 2 h 0 m; isolated 1 h 0 m; XidFatal 2 times; 1 incident, cost 59 s",
        ),
        ("fleet", "2 nodes; healthy 2 d 0 h"),
    ],
)
def test_each_row_of_the_history_is_a_line(what: str, line: str) -> None:
    (told,) = piped("history", what)
    assert told == f"1970-01-02 00:00 demo-17 {line}"


def test_the_history_is_asked_for_days_and_one_name() -> None:
    admin = FakeAdmin()
    assert call("history", "nodes", "node-1", "--last", "400", admin=admin)[0] == 0
    assert admin.told == [("history", "node-day", "node-1", str(400 * 86_400 * 10**9))]
    assert call("history", "racks", admin=admin)[0] == 2
