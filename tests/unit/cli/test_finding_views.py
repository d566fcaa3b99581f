"""Findings on a terminal: who found it is said where it is not the node itself."""

import io

from everstep_cli.main import screen
from everstep_cli.views.findings import finding_table
from everstep_proto.generated import admin_pb2
from fakes.cli_fleet import FINDING, NOW_NS

BY_PEERS = "found by the controller"


def shown(node: str, owner: str) -> str:
    """Return what is drawn of a finding."""
    line = admin_pb2.FindingLine()
    line.CopyFrom(FINDING)
    line.node, line.owner = node, owner
    drawn = io.StringIO()
    screen(drawn, 120).print(finding_table([line], NOW_NS))
    return drawn.getvalue()


def test_a_finding_about_a_node_says_when_the_controller_made_it() -> None:
    assert BY_PEERS in shown("node-3", "controller")
    assert "by what has happened" in shown("node-3", "core")
    assert BY_PEERS not in shown("node-3", "agent")


def test_a_finding_of_the_controller_about_itself_does_not_say_the_obvious() -> None:
    assert BY_PEERS not in shown("controller", "controller")
