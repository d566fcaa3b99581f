"""Lists of nodes: which are selected, in which order, page by page, and all of them in numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.judging.findings import Finding, Severity
from everstep_controller.api.admin.errors import UnknownNameError, UnusableRequestError
from everstep_controller.api.admin.node_list import ORDERS, STATES, list_nodes
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.node import Claim, NodeRecord, NodeState, OpenFinding
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.state import State
from everstep_proto.generated import admin_pb2

Request = admin_pb2.ListNodesRequest


def _finding(condition: str, severity: Severity = Severity.FATAL) -> OpenFinding:
    finding = Finding(component="gpu/0", condition=condition, severity=severity, message="broken")
    return OpenFinding(finding, 0)


def fleet() -> State:
    """Return seven nodes: three simply healthy, and one of each other kind."""
    state = State()
    for number in range(1, 8):
        node = NodeRecord(
            f"n{number}", NodeState.HEALTHY, since_ns=number, liveness=NodeLiveness(connected=True)
        )
        node.spec = replace(node.spec, domain="left" if number % 2 else "right")
        state.nodes[node.name] = node
    nodes = state.nodes
    nodes["n3"].isolation.claims.append(Claim("operator", "fans", 1))
    nodes["n4"].state, nodes["n4"].liveness.connected = NodeState.LOST, False
    nodes["n4"].health.findings = {"a": _finding("XidFatal"), "b": _finding("LinkDown")}
    nodes["n5"].liveness.silence.doubt = "it does not answer"
    nodes["n6"].liveness.connected = False
    nodes["n7"].health.findings = {"a": _finding("XidFatal")}
    return state


def grouped_fleet() -> State:
    """Return them, some of them in groups."""
    state = fleet()
    state.groups = {
        "batch": Group(nodes=("n1", "n4")),
        "left": Group(domains=("left",)),
        "nobody": Group(nodes=("n99",)),
    }
    state.reindex()
    return state


def names(request: Request, state: State | None = None) -> list[str]:
    return [node.node for node in list_nodes(state or fleet(), request).nodes]


def test_without_a_choice_all_nodes_are_listed_by_name_as_older_commands_want_it() -> None:
    assert names(Request()) == [f"n{number}" for number in range(1, 8)]


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (Request(names=["n5", "n2", "n5"]), ["n2", "n5"]),
        (Request(states=["lost"]), ["n4"]),
        (Request(states=["lost", "claimed"]), ["n3", "n4"]),
        (Request(states=["doubtful"]), ["n5"]),
        # What is lost is away as well, and nobody asks for it so.
        (Request(states=["away"]), ["n6"]),
        (Request(domains=["right"]), ["n2", "n4", "n6"]),
        (Request(findings=["xidfatal"]), ["n4", "n7"]),
        (Request(findings=["XidFatal"], domains=["right"]), ["n4"]),
        (Request(troubled=True), ["n3", "n4", "n5", "n6"]),
        (Request(domains=["nowhere"]), []),
    ],
)
def test_a_node_is_listed_that_meets_every_choice(request_: Request, found: list[str]) -> None:
    assert names(request_) == found


@pytest.mark.parametrize(
    ("sort", "first"),
    [("state", "n4"), ("since", "n7"), ("findings", "n4"), ("domain", "n1"), ("name", "n1")],
)
def test_an_order_begins_with_what_is_to_be_looked_at_first(sort: str, first: str) -> None:
    assert names(Request(sort=sort))[0] == first


def test_every_state_of_a_node_has_its_place_among_the_worse_ones() -> None:
    assert {state.value for state in NodeState} <= set(STATES)


@given(st.integers(1, 9), st.sampled_from(list(ORDERS)))
def test_pages_together_are_the_list(page_nodes: int, sort: str) -> None:
    state, found, token = fleet(), [], ""
    while True:
        request = Request(page_nodes=page_nodes, sort=sort, page_token=token)
        reply = list_nodes(state, request)
        assert len(reply.nodes) <= page_nodes
        found += [node.node for node in reply.nodes]
        token = reply.next_page_token
        if not token:
            break
    assert found == names(Request(sort=sort))


def test_a_node_that_goes_between_two_pages_moves_no_other_over_the_edge() -> None:
    state = fleet()
    first = list_nodes(state, Request(page_nodes=3))
    del state.nodes["n2"]
    rest = names(Request(page_nodes=9, page_token=first.next_page_token), state)
    assert rest == ["n4", "n5", "n6", "n7"]


@pytest.mark.parametrize("token", ["x", "[]", "[1]", '["n1", "n2"]', "null", "[" * 5000])
def test_a_page_token_of_nobody_is_refused(token: str) -> None:
    with pytest.raises(UnusableRequestError, match="ask from the start"):
        list_nodes(fleet(), Request(page_token=token))


def test_what_there_is_not_is_refused_with_what_there_is() -> None:
    with pytest.raises(UnusableRequestError, match="no state 'broken'; states are lost, repairing"):
        list_nodes(fleet(), Request(states=["broken"]))
    with pytest.raises(UnusableRequestError, match="by 'size', but by name, state"):
        list_nodes(fleet(), Request(sort="size"))
    with pytest.raises(UnknownNameError, match="no node named 'n9'"):
        list_nodes(fleet(), Request(names=["n1", "n9"]))


def test_the_summary_counts_all_that_are_selected_on_whichever_page() -> None:
    summary = list_nodes(fleet(), Request(page_nodes=1, troubled=True)).summary
    assert (summary.fleet_nodes, summary.nodes, summary.troubled) == (7, 7, 4)
    assert [(one.name, one.nodes) for one in summary.states] == [("lost", 1), ("healthy", 6)]
    assert [(one.name, one.nodes) for one in summary.claims] == [("operator", 1)]
    findings = [(one.name, one.nodes) for one in summary.findings]
    assert findings == [("XidFatal", 2), ("LinkDown", 1)]
    assert (summary.doubtful, summary.away) == (1, 1)
    chosen = list_nodes(fleet(), Request(domains=["right"])).summary
    assert (chosen.fleet_nodes, chosen.nodes) == (7, 3)


def test_a_summary_alone_has_no_nodes() -> None:
    reply = list_nodes(fleet(), Request(summary_only=True))
    assert (len(reply.nodes), reply.summary.nodes) == (0, 7)


def test_what_is_only_information_counts_for_no_node_and_is_still_found_by_its_name() -> None:
    state = fleet()
    state.nodes["n1"].health.findings = {"a": _finding("JobOutOfMemory", Severity.INFO)}
    reply = list_nodes(state, Request())
    assert {one.node: one.findings for one in reply.nodes}["n1"] == 0
    assert "JobOutOfMemory" not in {one.name for one in reply.summary.findings}
    assert names(Request(sort="findings"), state)[:2] == ["n4", "n7"]
    assert names(Request(findings=["JobOutOfMemory"]), state) == ["n1"]


@pytest.mark.parametrize(
    ("request_", "found"),
    [
        (Request(groups=["batch"]), ["n1", "n4"]),
        (Request(groups=["batch", "left"]), ["n1", "n3", "n4", "n5", "n7"]),
        (Request(groups=["left"], states=["claimed"]), ["n3"]),
        (Request(groups=["nobody"]), []),
    ],
)
def test_nodes_of_any_of_the_named_groups_are_listed(request_: Request, found: list[str]) -> None:
    state = grouped_fleet()
    assert names(request_, state) == found
    summary = list_nodes(state, request_).summary
    assert (summary.nodes, summary.fleet_nodes) == (len(found), 7)


def test_a_group_that_is_not_configured_is_refused_with_those_that_are() -> None:
    with pytest.raises(UnusableRequestError, match="no group 'left ring'; groups are batch, left"):
        list_nodes(grouped_fleet(), Request(groups=["left ring"]))
    with pytest.raises(UnusableRequestError, match=r"none is configured; docs/groups\.md"):
        list_nodes(fleet(), Request(groups=["batch"]))
