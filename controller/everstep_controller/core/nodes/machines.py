"""Machines: a node that comes with another name is the node that it was, and copied ids are told.

Agents name the machine that they run on by a keyed hash of its `/etc/machine-id`. That alone proves
nothing, for images of machines are copied with it: hardware that is built in decides, or the data
folder of the agent. What is known of a node goes along with its machine: findings, claims, deaths
and hangs there. What runs there does not: for its jobs the node of the old name is lost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_common.reports import Inventory
from everstep_controller.core.events import NodeConnected
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import (
    Claim,
    JobsOfNode,
    NodeNews,
    NodeRecord,
    NodeSpec,
    OpenFinding,
)
from everstep_controller.core.model.node_liveness import Silence
from everstep_controller.core.model.pair_test import PairRecord
from everstep_controller.core.model.state import State, forget_away
from everstep_controller.core.nodes import agent_identity, indexing, removal
from everstep_controller.core.nodes.agent_findings import AGENT_GONE, AGENT_HUNG
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import TimerKind, Turn

# The record of an old name is looked at so soon whether jobs need it still, and then so often.
_FORGET_NS, _NEEDED_NS = 1_000_000_000, 60_000_000_000
# An id that so many nodes have is one of an image, and tells nothing of any.
_SHARED_MAX = 16
# Number of nodes that a sentence names.
_NAMED_MAX = 4
# Interfaces with an address that is the hardware's own.
_BUILT_IN = frozenset({"ethernet", "infiniband", "roce"})
# Timers of a node that go on under its new name.
_KEPT = (
    TimerKind.STREAM,
    TimerKind.CHECK,
    TimerKind.SPARE,
    TimerKind.PROBATION,
    TimerKind.FLAPPING,
)

MACHINE_ID_SHARED = Condition(
    name="MachineIdShared",
    component="controller/machines/ID",
    meaning="several machines have one id (/etc/machine-id), as after an image of a machine was "
    "copied: they stay separate nodes, but a node of them that gets another name may not be known "
    "again, and the controller's own failure domain is not known by its machine",
    source="agents that are connected, name one machine, and were booted apart",
    clears_when="each of them has an id of its own, or is away",
    mode=Mode.ADVISE,
)


# --- who is who ----------------------------------------------------------------------------------


def known_as(state: State, event: NodeConnected) -> NodeRecord | None:
    """Return the node that an agent's node was, where it comes with another name; else None.

    Not where both may be alive, nor where several could be meant.
    """
    named = state.nodes.get(event.node)
    if not event.machine or (named is not None and not named.gone):
        return None
    names = state.index.machines.of(event.machine)
    if event.node in names or len(names) > _SHARED_MAX:
        return None
    alone = len(names) == 1
    found = [one for one in map(state.nodes.__getitem__, names) if _is_same(one, event, alone)]
    return found[0] if len(found) == 1 else None


def _is_same(node: NodeRecord, event: NodeConnected, alone: bool) -> bool:
    """Return whether an agent's node is the one that another agent of its machine had.

    Where several nodes are of one machine they are played there: only the data folder tells then.
    """
    shared = _shares_hardware(node.spec.inventory, event.inventory)
    booted = node.spec.boot_id != event.boot_id
    if shared is False or (node.liveness.connected and not (shared and booted)):
        return False
    return node.spec.outbox == event.outbox or bool(alone and shared)


def _shares_hardware(one: Inventory, other: Inventory) -> bool | None:
    """Return whether two machines have a built-in part in common; None: nothing tells."""
    for parts in (_accelerators, _addresses):
        mine, its = parts(one), parts(other)
        if mine and its:
            return _mostly_same(mine, its)
    return None


def _mostly_same(mine: frozenset[str], its: frozenset[str]) -> bool | None:
    """Return whether more than half of the parts of the smaller machine are in the other, too.

    Parts that are replaced leave that open; so does one that all machines of a kind seem to have,
    as the network port of a management controller with the same address in each.
    """
    both = len(mine & its)
    if 2 * both > min(len(mine), len(its)):
        return True
    return None if both else False


def _accelerators(inventory: Inventory) -> frozenset[str]:
    return frozenset(one.uuid for one in inventory.accelerators if one.uuid)


def _addresses(inventory: Inventory) -> frozenset[str]:
    built_in = (one.address for one in inventory.interfaces if one.kind in _BUILT_IN)
    return frozenset(address for address in built_in if address.strip("0:"))


# --- a new name ----------------------------------------------------------------------------------


def rename(turn: Turn, node: NodeRecord, name: str) -> None:
    """Have a node go on under another name; of the old one only what jobs had there is left.

    Whoever had the new name is gone: what was claimed there stays so.
    """
    state, old = turn.state, node.name
    agent_identity.end_contentions(turn, node)
    removal.forget_among_peers(turn, node)
    removal.drop_injections(turn, node)
    forget_away(state, old)
    left = NodeRecord(
        old,
        since_ns=turn.now_ns,
        spec=NodeSpec(domain=node.spec.domain),
        jobs=JobsOfNode(node.jobs.ids),
    )
    before = state.nodes.get(name)
    node.name, node.jobs.ids = name, before.jobs.ids if before is not None else []
    node.isolation.claims += _claims_besides(node, before)
    _begin_anew(node)
    state.nodes[name], state.nodes[old] = node, left
    state.pair_wanted = [one for one in state.pair_wanted if one not in (old, name)]
    indexing.note_hearing(turn, left)
    indexing.note_hearing(turn, node)
    _keep_timers(turn, old, name)
    _keep_in_orders(state, old, name)
    for one in state.nodes.values():
        if one.identity.renamed_to == old:
            one.identity.renamed_to = name
    for job in state.jobs.values():
        _keep_in_memory(job, old, name)
    _take_for_lost(turn, left, name)
    sentence = f"{old} is {name} now: its agent came back with another name, on the same machine"
    for subject in (old, name):
        turn.announce(subject, "NodeRenamed", sentence)
    turn.mark_node(name)


def _claims_besides(node: NodeRecord, before: NodeRecord | None) -> list[Claim]:
    """Return what is claimed of a gone node besides; the record of an old name has only ours."""
    if before is None or before.identity.renamed_to:
        return []
    owners = {claim.owner for claim in node.isolation.claims}
    return [one for one in before.isolation.claims if one.owner not in owners]


def _begin_anew(node: NodeRecord) -> None:
    """Forget what is only of the streams of an agent, and of the jobs that its node ran."""
    liveness = node.liveness
    liveness.connected, liveness.silent_to, liveness.questions = False, [], []
    liveness.silence, liveness.blocked_since_ns = Silence(), 0
    node.jobs.refusals, node.injections.by_id = {}, {}
    node.news, node.pair = NodeNews(), PairRecord(count=node.pair.count)
    node.spare_check.asked = False
    told = (AGENT_GONE.name, AGENT_HUNG.name)
    node.health.findings = {
        key: held
        for key, held in node.health.findings.items()
        if held.finding.condition not in told
    }


def _keep_timers(turn: Turn, old: str, name: str) -> None:
    for kind in removal.TIMERS:
        due_ns = turn.state.timers.get(f"{kind}/{old}")
        turn.drop_timer(f"{kind}/{old}")
        turn.drop_timer(f"{kind}/{name}")
        if due_ns is not None and kind in _KEPT:
            turn.set_timer(f"{kind}/{name}", max(due_ns - turn.now_ns, 0))


def _keep_in_orders(state: State, old: str, name: str) -> None:
    """Have what operators have ordered of a node hold under its new name."""
    if old in state.paused:
        state.paused[name] = state.paused.pop(old)
    for window in state.windows.values():
        if window.open and old in window.span.nodes:
            nodes = dict.fromkeys(name if one == old else one for one in window.span.nodes)
            window.span = replace(window.span, nodes=tuple(nodes))


def _keep_in_memory(job: JobRecord, old: str, name: str) -> None:
    """Have what a job remembers of ranks on a node be of its new name."""
    recovery = job.recovery
    recovery.hangs = [
        replace(one, culprits=tuple((rank, _named(at, old, name)) for rank, at in one.culprits))
        for one in recovery.hangs
    ]
    recovery.judgements = [
        replace(
            one,
            node=_named(one.node, old, name),
            nodes=tuple(_named(at, old, name) for at in one.nodes),
        )
        for one in recovery.judgements
    ]


def _named(one: str, old: str, name: str) -> str:
    return name if one == old else one


def _take_for_lost(turn: Turn, left: NodeRecord, name: str) -> None:
    left.identity.renamed_to = left.liveness.lost_by = name
    left.liveness.silent_since_ns = turn.now_ns
    left.news.told_lost = f"it is {name} now"
    indexing.note_hearing(turn, left)
    turn.mark_node(left.name)
    turn.set_timer(f"{TimerKind.RENAMED}/{left.name}", _FORGET_NS)


def forget_old_name(turn: Turn, name: str) -> None:
    """Forget the record of an old name, once no job needs it."""
    left = turn.state.nodes.get(name)
    if left is None or not left.identity.renamed_to:
        return
    if removal.removal_problem(turn.state, left):
        turn.set_timer(f"{TimerKind.RENAMED}/{name}", _NEEDED_NS)
    else:
        removal.forget_node(turn, left)


# --- copied ids ----------------------------------------------------------------------------------


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each id that several machines have."""
    for machine, names in state.index.machines:
        nodes = [state.nodes[name] for name in names] if len(names) > 1 else []
        there = [node for node in nodes if node.liveness.connected]
        if len({node.spec.boot_id for node in there}) > 1:
            since_ns = max(node.since_ns for node in there)
            yield OpenFinding(_finding(machine, [node.name for node in there]), since_ns)


def _finding(machine: str, names: Sequence[str]) -> Finding:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return Finding(
        component=f"controller/machines/{machine[:8]}",
        condition=MACHINE_ID_SHARED.name,
        mode=MACHINE_ID_SHARED.mode,
        severity=Severity.INFO,
        message=f"{', '.join(names[:_NAMED_MAX])}{more} are different machines with the same "
        "machine id, as copies of one image are; they are kept apart",
        suggested_action=SuggestedAction.WATCH,
        rule="on all of them but one: 'rm /etc/machine-id /var/lib/dbus/machine-id; "
        "systemd-machine-id-setup', and where the agent's data folder was copied, too, "
        "'everstep-agent leave-cluster'; then restart their agents",
    )


TIMERS: Timers = {TimerKind.RENAMED: forget_old_name}
