"""Agent identity: whose Hello is taken as its node's, and what becomes of the others.

A known name with another outbox is another agent: a node that was installed anew, or a second one
that somebody gave the name of the first. The first is asked on its stream, and loses the name if it
does not answer. Strangers are refused: agents of another cluster, and agents that have seen what
this journal does not know. Two nodes that have seen more than the journal show that the journal is
old: then the controller halts, as it does when the journal itself shows it. What agents tell of a
job that this journal knows to have lost is no such word, but what that job waits for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from everstep_common.job_ids import number_of_job
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_common.reports import JobOnNode, RestartedHere
from everstep_controller.core.actions import PingAgent
from everstep_controller.core.events import NodeConnected, Reported
from everstep_controller.core.model.agents import (
    Contender,
    LostJob,
    NamedRanks,
    RefusalKind,
    RefusedAgent,
    SeenGeneration,
)
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_S = 1_000_000_000
# So long the agent that has a name has to answer when another one asks for it; and so long the
# other one may then take it.
ANSWER_NS = 1 * _S
_TAKE_NS = 10 * _S
# A refusal that is repeated within this time needs no new question, and no row of the journal.
_REPEAT_NS = 30 * _S
# A refused agent knocks a few times a minute: one that does not is gone.
_QUIET_NS = 600 * _S
# Names are free to choose where there are no certificates; this bounds what is kept then.
_KEPT_MAX = 1000

NODE_NAME_TAKEN = Condition(
    name="NodeNameTaken",
    component="controller/agents/NODE",
    meaning="a second agent says that it is this node's, and is refused: the first one answers",
    source="another outbox under a known name, and a ping on the stream of the first agent, which "
    "has 1 s to answer",
    clears_when="one of the two was stopped or has got another name ('node' in agent.toml); "
    "ten minutes after the last refusal at most",
    quiet_ns=_QUIET_NS,
    mode=Mode.ADVISE,
)
AGENT_QUARANTINED = Condition(
    name="AgentQuarantined",
    component="controller/agents/NODE",
    meaning="an agent is a stranger: it belongs to another cluster, or has seen a term or a "
    "generation that is not of this journal; nothing that it says is taken or acknowledged, and "
    "its node takes no ranks",
    source="the cluster, the term and the generations in its Hello",
    clears_when="it is accepted (after 'everstep-agent leave-cluster', say) or has not come for "
    "ten minutes; if a second node says the same, the controller halts",
    quiet_ns=_QUIET_NS,
    mode=Mode.ADVISE,
)


class HelloDecision(Enum):
    """Decision on a Hello."""

    TAKEN = "taken"
    # Taken, and the controller acts on nothing from now on.
    HALTS = "halts"
    # The agent that has the name is asked first.
    CONTENDS = "contends"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class HelloVerdict:
    """Decision on a Hello, with a reason unless it is taken."""

    decision: HelloDecision
    reason: str = ""
    kind: RefusalKind = RefusalKind.NEWER


_TAKEN = HelloVerdict(HelloDecision.TAKEN)
_CONTENDS = HelloVerdict(HelloDecision.CONTENDS)


def judge_hello(state: State, event: NodeConnected, now_ns: int) -> HelloVerdict:
    """Return the decision on a Hello that comes now."""
    if _is_foreign(state, event):
        return HelloVerdict(HelloDecision.REFUSED, _foreign(state, event), RefusalKind.CLUSTER)
    if state.halted:
        return _TAKEN
    newer = _what_is_newer(state, event)
    if newer:
        return _judge_newer(state, event, newer)
    node = state.nodes.get(event.node)
    if node is None or node.spec.outbox in ("", event.outbox):
        return _TAKEN
    return _judge_name(state, node, event, now_ns)


def is_repeated(state: State, event: NodeConnected, found: HelloVerdict, now_ns: int) -> bool:
    """Return whether an agent was refused a moment ago for the reason for which it is now."""
    known = state.refused_agents.get(_key(event.node, event.outbox))
    if known is None or found.decision is not HelloDecision.REFUSED:
        return False
    return known.kind is found.kind and now_ns - known.last_ns < _REPEAT_NS


def refusal(state: State, event: NodeConnected) -> str:
    """Return why an agent is refused; empty where it is not."""
    known = state.refused_agents.get(_key(event.node, event.outbox))
    return known.reason if known is not None else ""


def contends(state: State, event: NodeConnected) -> bool:
    """Return whether an agent waits for what the one says that has its name."""
    node = state.nodes.get(event.node)
    waiting = node.identity.contender if node is not None else None
    return waiting is not None and waiting.outbox == event.outbox


# --- judging a Hello -----------------------------------------------------------------------------


def _is_foreign(state: State, event: NodeConnected) -> bool:
    """Return whether an agent is of another cluster; a journal that lost its own asks agents."""
    mine, its = state.cluster_id, event.cluster_id
    return bool(mine and its) and mine != its and not asks_for_cluster(state)


def asks_for_cluster(state: State) -> bool:
    """Return whether a journal is rebuilt that knows no agent: its cluster is what they name."""
    return state.recovering and not state.nodes


def _foreign(state: State, event: NodeConnected) -> str:
    lost = (
        ""
        if state.nodes
        else "; if this controller has lost its journal, run 'everstep-controller recover'"
    )
    return (
        f"{_place(event.node, event.address)} is of another cluster: its agent belongs to "
        f"{event.cluster_id}, this controller to {state.cluster_id}. If the node is to join this "
        "cluster, stop its agent, run 'everstep-agent leave-cluster' there and start it again"
        f"{lost}"
    )


def _judge_newer(state: State, event: NodeConnected, newer: str) -> HelloVerdict:
    if _others_with_newer(state, event.node) or _is_alone(state, event.node):
        return HelloVerdict(HelloDecision.HALTS, newer)
    reason = (
        f"{_place(event.node, event.address)} has seen {newer}; nobody else says so, and it is "
        "refused. If the journal is old, run 'everstep-controller recover'; if the agent's data "
        "folder comes from elsewhere, stop the agent, run 'everstep-agent leave-cluster' there and "
        "start it again"
    )
    return HelloVerdict(HelloDecision.REFUSED, reason, RefusalKind.NEWER)


def _others_with_newer(state: State, node: str) -> list[RefusedAgent]:
    refused = state.refused_agents.values()
    return [one for one in refused if one.kind is RefusalKind.NEWER and one.node != node]


def _is_alone(state: State, node: str) -> bool:
    """Return whether nothing is expected from any other node."""
    return all(one.gone or one.name == node for one in state.nodes.values())


def _what_is_newer(state: State, event: NodeConnected) -> str:
    """Return what an agent has seen that this journal does not know; empty when it knows all."""
    term = event.highest_term
    if term > state.term or (term == state.term and not _was_welcomed(state, event)):
        return f"term {term}, which is not of this journal"
    for seen in event.jobs:
        if _was_forgotten(state, seen) or is_awaited(state, seen) or _has_ended(state, seen):
            continue
        # Another job of the name may have begun here; its generations are not this one's.
        job = None if _is_unknown(state, seen) else state.job(seen.job)
        # What a recovery has learned of a job that the journal lost is known from then on.
        known = state.generations_seen.get(seen.job, SeenGeneration(0)).number
        own = job is not None and _is_own(job, event.node, seen)
        own = own or _follows_what_is_known(state, known, seen)
        if seen.generation > max(known, job.generation.number if job else 0) and not own:
            return f"generation {seen.generation} of {seen.job}, which this journal does not know"
    return ""


def _was_welcomed(state: State, event: NodeConnected) -> bool:
    """Return whether it has this term from this controller: as this node, or under another name."""
    node = state.nodes.get(event.node)
    if node is not None and node.identity.welcomed_term == state.term:
        return True
    named = (one for one in state.nodes.values() if one.spec.outbox == event.outbox)
    return event.outbox in state.former_agents or any(
        one.identity.welcomed_term == state.term for one in named
    )


def _was_forgotten(state: State, seen: JobOnNode) -> bool:
    """Return whether a job ended so long ago that this journal does not know it any more."""
    number = number_of_job(seen.job_id, seen.job)
    return (
        number is not None and number <= state.forgotten_through and seen.job_id not in state.jobs
    )


def _has_ended(state: State, seen: JobOnNode) -> bool:
    """Return whether a rebuilt journal knows of a lost job that it ended after a generation."""
    kept = state.lost_ends.get(seen.job_id)
    if kept is None or kept.told is None or not kept.rebuilt:
        return False
    return seen.job == kept.told.job and seen.generation <= kept.told.generation


def is_awaited(state: State, seen: JobOnNode) -> bool:
    """Return whether an agent tells of a job that this journal has lost, and has begun nothing of.

    Another journal has given its id: what became of it, agents alone can tell.
    """
    job = state.jobs.get(seen.job_id)
    if job is None or not job.first_number or job.lineage.started:
        return False
    return seen.launcher and job.state is not JobState.ENDED


def _is_unknown(state: State, seen: JobOnNode) -> bool:
    """Return whether an agent has a launcher of a job to which this journal has given no id."""
    if not seen.launcher or number_of_job(seen.job_id, seen.job) is None:
        return False
    lost = state.lost_jobs.get(seen.job)
    told = lost is not None and lost.id == seen.job_id
    return not told and seen.job_id not in state.jobs and not _was_forgotten(state, seen)


def _is_own(job: JobRecord, node: str, seen: JobOnNode) -> bool:
    """Return whether a generation that only an agent knows is one that its plan allowed it."""
    left = job.generation.number + job.generation.own_restarts
    mine = 0 < seen.planned_generation <= job.generation.number
    return job.generation.members == [node] and mine and seen.generation <= left


def _follows_what_is_known(state: State, known: int, seen: JobOnNode) -> bool:
    """Return whether an agent began a generation itself, after one that agents have told of."""
    planned = seen.planned_generation
    return (
        0 < planned <= known and seen.generation <= planned + state.settings.autonomous_restarts_max
    )


def _judge_name(state: State, node: NodeRecord, event: NodeConnected, now_ns: int) -> HelloVerdict:
    """Judge a Hello of another agent than the one that had the name of its node."""
    waiting = node.identity.contender
    if node.gone or event.outbox == node.identity.successor:
        return _TAKEN
    known = state.refused_agents.get(_key(node.name, event.outbox))
    again = known is not None and now_ns - known.last_ns < _REPEAT_NS
    if waiting is not None and waiting.outbox != event.outbox:
        return HelloVerdict(HelloDecision.REFUSED, _taken(node, event.address), RefusalKind.NAME)
    if node.liveness.connected and waiting is None and again:
        return HelloVerdict(HelloDecision.REFUSED, _taken(node, event.address), RefusalKind.NAME)
    return (
        _CONTENDS if node.liveness.connected or _may_return(state, node, event, now_ns) else _TAKEN
    )


def _may_return(state: State, node: NodeRecord, event: NodeConnected, now_ns: int) -> bool:
    """Return whether the known agent may just be restarting, on another machine than this one's."""
    away_ns = now_ns - node.liveness.silent_since_ns
    return node.spec.boot_id != event.boot_id and away_ns < state.settings.agent_return_ns


def _taken(node: NodeRecord, address: str) -> str:
    one_machine = " (both on this machine)" if address and address == node.identity.address else ""
    mine = node.identity.address or node.spec.host
    return (
        f"two agents have the name {node.name}: the one at {mine} keeps it, "
        f"the one at {address or 'an unknown address'} is refused{one_machine}; give one of them "
        "another 'node' in its agent.toml, or stop it"
    )


def _place(node: str, address: str) -> str:
    return f"{node} ({address})" if address else node


# --- what follows from it ------------------------------------------------------------------------


def turn_away(turn: Turn, event: NodeConnected, found: HelloVerdict) -> None:
    """Refuse a Hello, or have the agent asked that has the name."""
    if found.decision is HelloDecision.REFUSED:
        refused = _refuse(turn, event.node, event.outbox, found)
        refused.highest_term = event.highest_term
        refused.generations = {one.job: _seen(one) for one in event.jobs}
        return
    node = turn.state.nodes[event.node]
    if node.identity.contender is None:
        node.identity.contender = Contender(event.outbox, event.address, turn.state.event_count)
        back_ns = node.liveness.silent_since_ns + turn.state.settings.agent_return_ns - turn.now_ns
        wait_ns = ANSWER_NS if node.liveness.connected else back_ns
        turn.set_timer(f"{TimerKind.CONTENDER}/{node.name}", wait_ns)
        turn.mark_node(node.name)


def forget_refusal(turn: Turn, event: NodeConnected) -> None:
    """Take an agent's Hello that may have been refused before, perhaps as another one.

    An agent that was told to leave its cluster comes back as a new one. Should a stranger still
    come under this name, it is refused anew.
    """
    for key, one in list(turn.state.refused_agents.items()):
        stranger = one.kind is not RefusalKind.NAME and one.node == event.node
        if stranger or key == _key(event.node, event.outbox):
            _forget(turn, key)


def accept(turn: Turn, node: NodeRecord, event: NodeConnected) -> None:
    """Have an agent have the name of its node: whoever asks for it is refused."""
    node.identity.successor, node.identity.address = "", event.address
    if node.identity.contender is not None and node.identity.contender.outbox == event.outbox:
        _end_contention(turn, node)
    elif node.identity.contender is not None:
        node.identity.contender.answered = True


def note_answer(node: NodeRecord) -> None:
    """Enter that the agent that has a name has answered on its stream."""
    node.identity.successor = ""
    if node.identity.contender is not None:
        node.identity.contender.answered = True


def end_contentions(turn: Turn, node: NodeRecord) -> None:
    """Have nobody wait for a node's name: all streams are gone."""
    node.identity.successor = ""
    if node.identity.contender is not None:
        _end_contention(turn, node)


def halt(turn: Turn, event: NodeConnected, newer: str) -> None:
    """Act on nothing from now on: agents have seen what this journal does not know."""
    others = _others_with_newer(turn.state, event.node)
    for one in others:
        turn.state.highest_term_seen = max(turn.state.highest_term_seen, one.highest_term)
        for job, seen in one.generations.items():
            _note_generation(turn.state, job, seen)
    also = f", and {', '.join(sorted({one.node for one in others}))} more than it, too"
    halt_for(turn, f"{event.node} has seen {newer}{also if others else ''}")


def halt_for(turn: Turn, evidence: str) -> None:
    """Act on nothing from now on, because the journal is old."""
    state = turn.state
    state.halted = (
        f"this journal is old, or another controller runs: {evidence}; stop the other one, or run "
        "'everstep-controller recover'"
    )
    forget_newer(turn)
    turn.announce(CONTROLLER, "ControllerHalted", state.halted)


def forget_newer(turn: Turn) -> None:
    """Forget who was refused for what it has seen: that counts now."""
    for key, one in list(turn.state.refused_agents.items()):
        if one.kind is RefusalKind.NEWER:
            _forget(turn, key)


def note_seen(state: State, event: NodeConnected) -> None:
    """Keep what an agent has seen, for the time when the journal is rebuilt."""
    state.highest_term_seen = max(state.highest_term_seen, event.highest_term)
    note_generations(state, event.jobs)
    note_ranks(state, event.node, event.jobs)
    _note_lost_jobs(state, event.jobs)
    if asks_for_cluster(state) and event.cluster_id:
        nodes = state.clusters_seen.setdefault(event.cluster_id, [])
        if event.node not in nodes:
            nodes.append(event.node)


def note_former(state: State, node: NodeRecord) -> None:
    """Remember an agent that its node has no more: the term that it knows is this controller's."""
    if node.identity.welcomed_term == state.term:
        state.former_agents.append(node.spec.outbox)
        del state.former_agents[:-_KEPT_MAX]


def note_generations(state: State, seen: Iterable[JobOnNode]) -> None:
    """Keep which generations an agent has seen."""
    for one in seen:
        _note_generation(state, one.job, _seen(one))


def note_ranks(state: State, node: str, seen: Iterable[JobOnNode]) -> None:
    """Keep on which nodes newest generations run, by the newest word of each agent.

    They are told while the journal is rebuilt, or later of a job that is awaited. One whose agent
    has no such launcher, or a newer generation of it, runs that one no more.
    """
    named = [one for one in seen if one.launcher and one.generation]
    for job, ranks in state.named_ranks.items():
        if not any((one.job, one.generation) == (job, ranks.generation) for one in named):
            ranks.nodes.pop(node, None)
    for one in named:
        known = state.named_ranks.get(one.job)
        if not state.halted and not is_awaited(state, one):
            continue
        if known is None or known.generation < one.generation:
            known = state.named_ranks[one.job] = NamedRanks(one.generation)
        if known.generation == one.generation:
            known.nodes[node] = True


def _seen(one: JobOnNode) -> SeenGeneration:
    return SeenGeneration(one.generation, one.world_size)


def _note_lost_jobs(state: State, seen: Iterable[JobOnNode]) -> None:
    """Keep which jobs have launchers that this journal has lost."""
    for one in seen:
        if one.launcher and one.job_id and one.job_id not in state.jobs:
            known, lost = state.lost_jobs.get(one.job), LostJob(one.job_id, _seen(one))
            if known is None or known.generation.number <= one.generation:
                state.lost_jobs[one.job] = lost


def note_lost_restart(state: State, event: Reported[RestartedHere]) -> None:
    """Keep what a generation of a lost job began from, for when its launcher is heard.

    Its agent may have begun it after the last Hello that was heard while the journal was rebuilt.
    """
    report = event.report
    key: StepKey | None = None
    if report.restore_step is not None:
        key = report.restore_generation, report.restore_step
    for name, lost in state.lost_jobs.items():
        newest = lost.generation
        if event.job not in (name, lost.id):
            continue
        if report.after_generation == newest.number:
            newest = replace(newest, number=report.generation)
        if report.generation == newest.number:
            state.lost_jobs[name] = replace(lost, generation=newest, began_from=key)


def choose_cluster(turn: Turn) -> None:
    """Go on in the cluster that most agents name, where the journal knew none of them."""
    state, seen = turn.state, turn.state.clusters_seen
    if not state.nodes and seen:
        found = max(sorted(seen), key=lambda cluster: len(seen[cluster]))
        if found != state.cluster_id:
            state.cluster_id = found
            turn.announce(CONTROLLER, "ClusterRestored", f"its agents belong to cluster {found}")
    state.clusters_seen = {}


def _note_generation(state: State, job: str, seen: SeenGeneration) -> None:
    known = state.generations_seen.get(job, SeenGeneration(0))
    if (seen.number, seen.world_size) > (known.number, known.world_size):
        state.generations_seen[job] = seen


def _refuse(turn: Turn, node: str, outbox: str, found: HelloVerdict) -> RefusedAgent:
    key = _key(node, outbox)
    known = turn.state.refused_agents.get(key)
    if known is None or known.kind is not found.kind:
        _make_room(turn)
        since_ns = turn.now_ns if known is None else known.since_ns
        known = RefusedAgent(node, outbox, found.kind, found.reason, since_ns, turn.now_ns)
        turn.state.refused_agents[key] = known
        turn.announce(node, _condition(found.kind).name, found.reason)
    known.reason, known.last_ns = found.reason, turn.now_ns
    turn.set_timer(f"{TimerKind.REFUSED}/{key}", _QUIET_NS)
    return known


def _make_room(turn: Turn) -> None:
    kept = turn.state.refused_agents
    if len(kept) >= _KEPT_MAX:
        _forget(turn, min(kept, key=lambda key: kept[key].last_ns))


def _forget(turn: Turn, key: str) -> None:
    if turn.state.refused_agents.pop(key, None) is not None:
        turn.drop_timer(f"{TimerKind.REFUSED}/{key}")


def _end_contention(turn: Turn, node: NodeRecord) -> None:
    node.identity.contender = None
    turn.drop_timer(f"{TimerKind.CONTENDER}/{node.name}")


def _key(node: str, outbox: str) -> str:
    return f"{node}/{outbox}"


# --- reconciliation: who keeps a name ------------------------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Ask the agent that has a name for which another one asks; refuse the other if it answers."""
    contender = node.identity.contender
    if contender is None:
        return
    if contender.answered:
        found = HelloVerdict(
            HelloDecision.REFUSED, _taken(node, contender.address), RefusalKind.NAME
        )
        _refuse(turn, node.name, contender.outbox, found)
        _end_contention(turn, node)
    elif node.liveness.connected and not contender.asked:
        contender.asked = True
        turn.order(ping_order(node, contender))


def ping_order(node: NodeRecord, contender: Contender) -> PingAgent:
    """Return the question to the agent that has a name whether it is there."""
    return PingAgent(
        id=f"{node.name}/name/{contender.number}",
        node=node.name,
        reason=f"another agent asks for the name {node.name}",
    )


def answer_due(turn: Turn, name: str) -> None:
    """The agent that has a name has not answered, or the other one has not taken it."""
    node = turn.state.nodes.get(name)
    if node is None:
        return
    contender, node.identity.contender = node.identity.contender, None
    node.identity.successor = contender.outbox if contender is not None else ""
    if contender is not None:
        turn.set_timer(f"{TimerKind.CONTENDER}/{name}", _TAKE_NS)
        mine = node.identity.address or node.spec.host
        turn.announce(
            name,
            "AgentReplaced",
            f"the agent of {name} at {mine} does not answer: the one at "
            f"{contender.address or 'an unknown address'} takes its name",
        )


def refusal_over(turn: Turn, key: str) -> None:
    """A refused agent has not come for a while."""
    turn.state.refused_agents.pop(key, None)


# --- what people see -----------------------------------------------------------------------------


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each agent that is refused."""
    for one in state.refused_agents.values():
        yield OpenFinding(_finding(one), one.since_ns)


def _condition(kind: RefusalKind) -> Condition:
    return NODE_NAME_TAKEN if kind is RefusalKind.NAME else AGENT_QUARANTINED


def _finding(refused: RefusedAgent) -> Finding:
    condition = _condition(refused.kind)
    return Finding(
        component=f"controller/agents/{refused.node}",
        condition=condition.name,
        mode=condition.mode,
        severity=Severity.DEGRADED,
        message=refused.reason,
        evidence=f"outbox {refused.outbox}",
        suggested_action=SuggestedAction.WATCH,
        rule="cleared when it is accepted, or has not come for ten minutes",
    )


TIMERS: Timers = {
    TimerKind.CONTENDER: answer_due,
    TimerKind.REFUSED: refusal_over,
}
