"""List of nodes: which are selected, in which order, and a page of them with all in numbers."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from everstep_controller.api.admin.errors import UnusableRequestError, group_named, node_named
from everstep_controller.api.admin.messages import fleet_messages as messages
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.planned.forecast import window_sentences
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

Key = tuple[int | str, ...]

_WORST_FIRST = (
    NodeState.LOST,
    NodeState.REPAIRING,
    NodeState.SUSPECT,
    NodeState.PROBATION,
    NodeState.VALIDATING,
    NodeState.JOINING,
    NodeState.MAINTENANCE,
    NodeState.RETIRED,
    NodeState.HEALTHY,
)
_BADNESS = {state: place for place, state in enumerate(_WORST_FIRST)}


def _away(node: NodeRecord) -> bool:
    return not node.liveness.connected and node.state is not NodeState.LOST


# What a node can be beside its state, as people ask for it.
_QUALITIES: Mapping[str, Callable[[NodeRecord], bool]] = MappingProxyType(
    {
        "claimed": lambda node: bool(node.isolation.claims),
        "doubtful": lambda node: node.doubtful,
        "away": _away,
    }
)
STATES = (*(state.value for state in _WORST_FIRST), *_QUALITIES)
ORDERS: Mapping[str, Callable[[NodeRecord], Key]] = MappingProxyType(
    {
        "name": lambda node: (node.name,),
        "state": lambda node: (_BADNESS[node.state], node.name),
        "since": lambda node: (-node.since_ns, node.name),
        "findings": lambda node: (-len(messages.troubling(node)), node.name),
        "domain": lambda node: (node.spec.domain, node.name),
    }
)


def list_nodes(state: State, request: admin_pb2.ListNodesRequest) -> admin_pb2.ListNodesReply:
    """Return what is asked for. Raises UnknownNameError and UnusableRequestError."""
    selected = list(_selected(state, request))
    # Looked for once: of 12,500 nodes each further look takes the loop milliseconds.
    unwell = [node for node in selected if troubled(node)]
    refused = sorted(state.refused_agents.values(), key=lambda one: (one.node, one.since_ns))
    reply = admin_pb2.ListNodesReply(
        halted=state.halted,
        drivers_paused=state.drivers_paused,
        refused_agents=[answer(admin_pb2.RefusedAgent, one) for one in refused],
        summary=_summary(selected, unwell, len(state.nodes)),
    )
    if not request.summary_only:
        page = _page(unwell if request.troubled else selected, request)
        reply.nodes.extend(_summaries(state, page.nodes))
        reply.next_page_token = page.next_token
    return reply


def troubled(node: NodeRecord) -> bool:
    """Return whether a node is not simply healthy."""
    liveness = node.liveness
    return (
        node.state is not NodeState.HEALTHY
        or not liveness.connected
        or bool(liveness.silence.doubt)
        or bool(node.isolation.claims)
    )


def _selected(state: State, request: admin_pb2.ListNodesRequest) -> Iterator[NodeRecord]:
    if unknown := [word for word in request.states if word not in STATES]:
        raise UnusableRequestError(
            f"there is no state {unknown[0]!r}; states are {', '.join(STATES)}"
        )
    groups = frozenset(group_named(state, name) for name in request.groups)
    nodes: Iterable[NodeRecord] = state.nodes.values()
    if request.names:
        nodes = (node_named(state, name) for name in dict.fromkeys(request.names))
    states, domains = frozenset(request.states), frozenset(request.domains)
    conditions = frozenset(name.lower() for name in request.findings)
    if not (states or domains or groups or conditions):
        yield from nodes
        return
    for node in nodes:
        if (
            (not states or _is_one_of(node, states))
            and (not domains or node.spec.domain in domains)
            and (not groups or not groups.isdisjoint(state.index.groups_of(node.name)))
            and (not conditions or not conditions.isdisjoint(_conditions(node)))
        ):
            yield node


def _is_one_of(node: NodeRecord, states: frozenset[str]) -> bool:
    return node.state.value in states or any(
        word in states and has(node) for word, has in _QUALITIES.items()
    )


def _conditions(node: NodeRecord) -> Iterator[str]:
    return (held.finding.condition.lower() for held in node.health.findings.values())


@dataclass(frozen=True, slots=True)
class _Page:
    nodes: Sequence[NodeRecord]
    next_token: str


def _page(listed: Sequence[NodeRecord], request: admin_pb2.ListNodesRequest) -> _Page:
    key = ORDERS.get(request.sort or "name")
    if key is None:
        raise UnusableRequestError(
            f"nodes are not sorted by {request.sort!r}, but by {', '.join(ORDERS)}"
        )
    ordered = sorted(listed, key=key)
    if request.page_token:
        # By its key, not its place: what came or went meanwhile shifts no node over the edge.
        after = _last_key(request.page_token, kind=key)
        ordered = [node for node in ordered if key(node) > after]
    if not request.page_nodes or len(ordered) <= request.page_nodes:
        return _Page(ordered, "")
    page = ordered[: request.page_nodes]
    return _Page(page, json.dumps(key(page[-1])))


def _last_key(token: str, kind: Callable[[NodeRecord], Key]) -> Key:
    wanted = [type(part) for part in kind(NodeRecord(""))]
    try:
        found = json.loads(token)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or [type(part) for part in found] != wanted:
        raise UnusableRequestError(
            "this page token is of no list in this order; ask from the start"
        )
    return tuple(found)


def _summaries(state: State, nodes: Iterable[NodeRecord]) -> Iterator[admin_pb2.NodeSummary]:
    jobs, windows = _jobs_by_node(state), window_sentences(state)
    for node in nodes:
        groups = state.index.groups_of(node.name)
        yield messages.node_summary(
            node, jobs.get(node.name, ()), windows.get(node.name, ""), groups
        )


def _jobs_by_node(state: State) -> Mapping[str, Sequence[str]]:
    """Return the jobs that have ranks on each node: each job's members are gone through once."""
    jobs: defaultdict[str, list[str]] = defaultdict(list)
    for job in sorted(state.jobs.values(), key=lambda one: one.name):
        if job.state is not JobState.ENDED:
            for name in job.generation.members:
                jobs[name].append(job.name)
    return jobs


def _summary(
    nodes: Sequence[NodeRecord], unwell: Sequence[NodeRecord], fleet_nodes: int
) -> admin_pb2.FleetSummary:
    states = Counter(node.state.value for node in unwell)
    states[NodeState.HEALTHY.value] += len(nodes) - len(unwell)
    claims = Counter(
        owner for node in unwell for owner in {one.owner for one in node.isolation.claims}
    )
    findings = Counter(
        name
        for node in nodes
        if node.health.findings
        for name in {held.finding.condition for held in messages.troubling(node)}
    )
    return admin_pb2.FleetSummary(
        fleet_nodes=fleet_nodes,
        nodes=len(nodes),
        states=[
            _count(each.value, states[each.value]) for each in _WORST_FIRST if states[each.value]
        ],
        claims=_most_first(claims),
        findings=_most_first(findings),
        doubtful=sum(node.doubtful for node in unwell),
        away=sum(map(_away, unwell)),
        troubled=len(unwell),
    )


def _most_first(counted: Counter[str]) -> list[admin_pb2.NodeCount]:
    ordered = sorted(counted.items(), key=lambda pair: (-pair[1], pair[0]))
    return [_count(name, nodes) for name, nodes in ordered]


def _count(name: str, nodes: int) -> admin_pb2.NodeCount:
    return admin_pb2.NodeCount(name=name, nodes=nodes)
