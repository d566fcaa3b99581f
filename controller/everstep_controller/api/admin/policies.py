"""Policy in the admin API: how far automation may go, by which rule; what enforcing would do."""

import re
from collections import Counter
from collections.abc import Iterator

from everstep_common.judging.findings import Mode
from everstep_controller.api.admin.errors import UnknownNameError
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.judged import JUDGED_MAX
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.policy import NodePolicy
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import budgets
from everstep_controller.core.nodes.judged import judged_isolations
from everstep_controller.core.nodes.what_if import BY_ITSELF_NS, WhatIf, together, what_if
from everstep_controller.runtime.runtime import Runtime
from everstep_proto.generated import admin_pb2

# The controller has no list of the conditions of agents: what looks like one may be one.
_CONDITION = re.compile(r"[A-Z][A-Za-z0-9]{2,63}", re.ASCII)
_NODES_NAMED = 1000


class PolicyQueries:
    """Questions about modes, groups and budgets; they raise UnknownNameError."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def policy(self, request: admin_pb2.GetPolicyRequest) -> admin_pb2.PolicyReply:
        """Return how far automation may go for a node, a condition or the fleet."""
        state, subject = self._runtime.state, request.subject
        node = state.nodes.get(subject)
        if subject and node is None and not _CONDITION.fullmatch(subject):
            raise UnknownNameError(f"no node, and no condition, is named {subject!r}")
        reply = admin_pb2.PolicyReply(
            kind="node" if node is not None else "condition" if subject else "fleet",
            mode=state.settings.mode.value,
            budgets=budgets.summary(state),
        )
        if node is not None:
            reply.lines.extend(_of_node(state, node))
        elif subject:
            reply.lines.extend(_of_condition(state, subject))
        reply.groups.extend(_groups(state, node))
        if request.what_if_ns > 0:
            self._add_what_if(reply, subject, self._runtime.now_ns() - request.what_if_ns)
        return reply

    def _add_what_if(self, reply: admin_pb2.PolicyReply, subject: str, since_ns: int) -> None:
        """Say what enforcing would have done: each condition alone, and all of them together."""
        state = self._runtime.state
        records = list(judged_isolations(state))
        recent = [one for one in records if one.at_ns >= since_ns]
        if reply.kind == "node":
            found = {one.condition for one in recent if one.node == subject}
        else:
            found = {subject} if subject else {one.condition for one in recent}
        for condition in sorted(found):
            outcome = what_if(state, records, {condition}, since_ns)[condition]
            reply.what_if.append(_what_if_line(outcome))
        if len(found) > 1:
            at_once = what_if(state, records, found, since_ns)
            reply.what_if.append(_what_if_line(together(at_once.values())))
        full = len(state.judged) >= JUDGED_MAX
        oldest_ns = min((one.at_ns for one in state.judged), default=0) if full else 0
        reply.known_since_ns = oldest_ns if oldest_ns > since_ns else 0


def _of_node(state: State, node: NodeRecord) -> Iterator[admin_pb2.PolicyLine]:
    policy, shipped = state.policy_of(node.name), _shipped(node)
    named = {*shipped, *_named(policy)}
    for condition in sorted(named):
        yield _line(condition, policy, condition, shipped.get(condition, Mode.ENFORCE), 1)


def _of_condition(state: State, condition: str) -> Iterator[admin_pb2.PolicyLine]:
    """Yield a line for each kind of nodes: those of the same groups, in a wave or not."""
    most = next(
        (mode for node in state.nodes.values() for mode in [_shipped(node).get(condition)] if mode),
        Mode.ENFORCE,
    )
    kinds: Counter[tuple[tuple[str, ...], Mode]] = Counter()
    samples: dict[tuple[tuple[str, ...], Mode], NodePolicy] = {}
    for name in state.nodes:
        policy = state.policy_of(name)
        kind = state.index.groups_of(name), policy.mode_of(condition, most)
        kinds[kind] += 1
        samples.setdefault(kind, policy)
    for kind, count in sorted(kinds.items(), key=lambda one: (one[0][0], one[0][1].value)):
        groups, _ = kind
        many = "nodes in no group" if not groups else f"nodes of group {' and '.join(groups)}"
        yield _line(many, samples[kind], condition, most, count)


def _shipped(node: NodeRecord) -> dict[str, Mode]:
    """Return how far agents or judges let automation go for what is open on a node."""
    held = node.health.findings.values()
    return {one.finding.condition: one.finding.mode for one in held}


def _named(policy: NodePolicy) -> Iterator[str]:
    settings = policy.settings
    yield from (*settings.observe, *settings.advise, *settings.enforce)
    for _, group in policy.groups:
        yield from (*group.observe, *group.advise, *group.enforce, *group.enforce_shares)


def _line(
    subject: str, policy: NodePolicy, condition: str, most: Mode, nodes: int
) -> admin_pb2.PolicyLine:
    return admin_pb2.PolicyLine(
        subject=subject,
        mode=policy.mode_of(condition, most).value,
        nodes=nodes,
        rules=[
            admin_pb2.PolicyRule(place=rule.place, says=rule.says, decides=rule.decides)
            for rule in policy.rules_of(condition, most)
        ],
    )


def _groups(state: State, node: NodeRecord | None) -> Iterator[admin_pb2.GroupLine]:
    members = Counter(name for one in state.nodes for name in state.index.groups_of(one))
    wanted = state.groups if node is None else state.index.groups_of(node.name)
    for name in sorted(wanted):
        says = list(_says(state.groups[name]))
        yield admin_pb2.GroupLine(group=name, nodes=members[name], says=says)


def _says(group: Group) -> Iterator[str]:
    """Yield what is set for a group, a part of a sentence each."""
    if group.mode is not None:
        yield f"mode {group.mode.value}"
    lists = (("observe", group.observe), ("advise", group.advise), ("enforce", group.enforce))
    yield from (f"{mode}: {', '.join(names)}" for mode, names in lists if names)
    if group.enforce_share < 1:
        yield f"enforces on {group.enforce_share:.2%} of its nodes"
    for condition, share in sorted(group.enforce_shares.items()):
        yield f"enforces {condition} on {share:.2%} of its nodes"
    if group.drivers is not None:
        yield f"drivers: {', '.join(group.drivers) or 'none'}"
    if group.cordon is not None:
        yield "cordoned" if group.cordon else "not cordoned"
    yield from _budgets_of(group)


def _budgets_of(group: Group) -> Iterator[str]:
    if group.isolation_budget_nodes is not None:
        yield f"at most {group.isolation_budget_nodes} isolated"
    if group.isolations_per_hour_nodes is not None:
        yield f"at most {group.isolations_per_hour_nodes} isolations an hour"


def _what_if_line(outcome: WhatIf) -> admin_pb2.WhatIfLine:
    return admin_pb2.WhatIfLine(
        condition=outcome.condition,
        found=len(outcome.found),
        isolated=outcome.isolated[:_NODES_NAMED],
        held_back=outcome.held_back[:_NODES_NAMED],
        why=outcome.why,
        by_itself=len(outcome.by_itself),
        within_ns=BY_ITSELF_NS,
        done=len(outcome.done),
    )
