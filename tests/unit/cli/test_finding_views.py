"""Findings on a terminal: who found it is said where it is not the node itself."""

import io

from everstep_cli.main import screen
from everstep_cli.views.findings import explanation, finding_list, finding_table
from everstep_cli.views.jobs import job_sheet
from everstep_proto.generated import admin_pb2
from fakes.cli_fleet import FINDING, NOW_NS

BY_PEERS = "found by the controller"


def shown(node: str, owner: str) -> str:
    """Return what is drawn of a finding."""
    line = admin_pb2.FindingLine()
    line.CopyFrom(FINDING)
    line.node, line.owner = node, owner
    drawn = io.StringIO()
    screen(drawn, 120).print(finding_table([[line]], NOW_NS))
    return drawn.getvalue()


def test_a_finding_about_a_node_says_when_the_controller_made_it() -> None:
    assert BY_PEERS in shown("node-3", "controller")
    assert "by what has happened" in shown("node-3", "core")
    assert BY_PEERS not in shown("node-3", "agent")


def test_a_finding_of_the_controller_about_itself_does_not_say_the_obvious() -> None:
    assert BY_PEERS not in shown("controller", "controller")


def links_down(nodes: int = 1, links: int = 6) -> list[admin_pb2.FindingLine]:
    """Return what nodes find when a switch fails: each of their links is down."""
    return [
        admin_pb2.FindingLine(
            node=f"node-{node}",
            component=f"link/mlx5_{link}",
            condition="LinkDown",
            severity="degraded",
            message=f"link mlx5_{link} is down for {7 * link + node} s",
            since_ns=NOW_NS - (1 + link) * 10**9,
        )
        for node in range(nodes)
        for link in range(links)
    ]


def drawn_list(findings: list[admin_pb2.FindingLine], *, every: bool = False) -> str:
    """Return what is drawn of open findings."""
    drawn = io.StringIO()
    for part in finding_list(findings, NOW_NS, every=every):
        screen(drawn, 120).print(part)
    return drawn.getvalue()


def test_nodes_of_one_cause_are_folded_whatever_came_first() -> None:
    found = links_down(nodes=12, links=1)
    assert "node-[0-11]" in drawn_list([*found[7:], *reversed(found[:7])])


def test_six_findings_of_one_cause_are_one_line_that_says_how_to_list_each() -> None:
    drawn = drawn_list(links_down())
    assert drawn.count("LinkDown") == 1
    assert "and 5 more findings of this cause; each: everstep findings --all" in drawn
    assert "link/mlx5_3, and 2 more" in drawn
    assert " 6 s " in drawn  # since the first of them
    assert drawn_list(links_down(), every=True).count("LinkDown") == 6


def test_findings_of_one_cause_on_many_nodes_are_one_line_with_the_nodes() -> None:
    drawn = drawn_list(links_down(nodes=3, links=1))
    assert drawn.count("LinkDown") == 1
    assert "node-[0-2]" in drawn


def test_what_differs_in_more_than_where_and_how_much_is_another_cause() -> None:
    def line(**other: str) -> admin_pb2.FindingLine:
        made = admin_pb2.FindingLine(
            node="n1",
            component="gpu/0000:3b:00.0",
            condition="XidFatal",
            severity="fatal",
            message="GPU 0000:3b:00.0: Xid 79, GPU has fallen off the bus",
        )
        for name, value in other.items():
            setattr(made, name, value)
        return made

    same = line(message="GPU 0000:5e:00.0: Xid 79, GPU has fallen off the bus")
    xid = line(message="GPU 0000:5e:00.0: Xid 95, GPU has fallen off the bus")
    others = [xid, line(condition="GpuLost"), line(severity="degraded"), line(mode="observe")]
    others += [line(owner="core"), line(suggested_action="reboot_node")]
    drawn = drawn_list([line(), same, *others])
    assert drawn.count("of this cause") == 1
    assert len([one for one in drawn.splitlines() if one.startswith("n1")]) == 7


def test_a_job_lists_its_findings_by_cause_and_one_by_one() -> None:
    job = admin_pb2.JobDetail(
        summary=admin_pb2.JobSummary(job="llm", state="running"), findings=links_down(2)
    )
    counts = []
    for every in (False, True):
        drawn = io.StringIO()
        for part in job_sheet(job, NOW_NS, every=every):
            screen(drawn, 120).print(part)
        counts.append((drawn.getvalue().count("LinkDown"), "job llm --all" in drawn.getvalue()))
    assert counts == [(1, True), (12, False)]


def test_the_history_of_a_node_tells_findings_of_one_cause_once_and_each_decision() -> None:
    def event(reason: str, message: str) -> admin_pb2.Event:
        return admin_pb2.Event(reason=reason, subject="n1", message=message)

    found = [
        event("LinkDown", f"degraded on n1: link mlx5_{link} is down for {link} s")
        for link in range(6)
    ]
    over = [event("LinkDownCleared", f"LinkDown is over on n1: {link} is up") for link in range(2)]
    decided = [event("NodeDrained", f"n1 takes no ranks (operator): {why}") for why in (1, 2)]
    reply = admin_pb2.WhyReply(kind="node", state="suspect", decisions=[*found, *decided, *over])
    drawn = io.StringIO()
    for part in explanation(reply, "n1"):
        screen(drawn, 120).print(part)
    told = drawn.getvalue()
    assert "and 5 more findings of this cause; each: everstep events --subject n1" in told
    assert told.count("NodeDrained") == 2
    assert told.count("LinkDownCleared") == 1
