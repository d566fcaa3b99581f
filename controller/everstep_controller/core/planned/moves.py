"""Moves: ranks whose agent stays away leave their node for a spare, after a step that they saved.

Such a job is saved once in two minutes at best, and beside a spare it need not be. The node is not
isolated for it: it takes no ranks while its agent is away, and may be a spare when that is back.
Nothing waits for the old ranks: like those of any node that is cut off they are fenced by the
number of their generation, and stopped when the agent is back.
"""

from everstep_common.judging.findings import Mode
from everstep_controller.core.jobs import devices, unsaved
from everstep_controller.core.jobs.unsaved import STEPS_UNSAVED
from everstep_controller.core.model.job import JobRecord, JobState, PlanKind, Planned, PlannedKind
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.model.state import State, doubtful_members
from everstep_controller.core.model.windows import shown
from everstep_controller.core.nodes import budgets, claims, outage
from everstep_controller.core.planned.forecast import plan_without
from everstep_controller.core.turn import Reconciliation, Turn

# As for any node that automation has a job leave: an agent that comes and goes would else spend the
# budget of the fleet, and a step that ranks cannot save would hold training up again and again.
_AGAIN_NS = 3600 * 10**9


def begin(turn: Reconciliation, job: JobRecord) -> Planned | None:
    """Return the move that begins now, if one does; and note what people read of it."""
    if not doubtful_members(turn.state, job):
        job.generation.unsaved.move = ""
        return None
    told = unsaved.is_unsaved(job) or job.generation.unsaved.saved_step is not None
    if job.planned is not None or not told:  # a plan of a large job takes time
        return None
    node = _away_member(turn.state, job)
    why = "the agents of several members are away" if node is None else _refusal(turn, job, node)
    saved = node is not None and not why and _saved_since(job, node)
    job.generation.unsaved.move = _sentence(job, why, saved=saved)
    if node is None or not saved or job.state is not JobState.RUNNING:
        return None
    budgets.record_isolation(turn, node)
    node.swap.begun_ns = turn.now_ns
    doubt = node.liveness.silence.doubt
    reason = f"the agent of {node.name} is away, and a spare takes its place: {doubt}"
    return Planned(PlannedKind.MOVE, AUTOMATION, reason, 0, 0, leaves=node.name)


def problem(state: State, job: JobRecord, node: NodeRecord) -> str:
    """Return what speaks against a move now, whether it has begun or not; "" for nothing."""
    mode = state.mode_of(node, STEPS_UNSAVED.name, STEPS_UNSAVED.mode)
    if mode is not Mode.ENFORCE:
        return f"the mode of {STEPS_UNSAVED.name} is {mode.value}"
    if node.liveness.silence.held or outage.is_among_many(state, node.name):
        return "many agents are away at once, or this controller is cut off from them"
    if node.isolation.claims:
        return f"{node.isolation.claims[0].owner} keeps {node.name} out already"
    windows = [one for one in state.windows.values() if one.open and node.name in one.span.nodes]
    if windows:
        return f"{node.name} is expected back: {windows[0].sentence()}"
    return _no_spare(state, job, node)


def why_over(state: State, job: JobRecord, wish: Planned) -> str:
    """Return why nobody has to leave any more; "" while somebody has."""
    node = state.nodes.get(wish.leaves)
    if node is None or node.name not in job.generation.members:
        return f"it has no ranks on {wish.leaves}"
    if node.liveness.connected and not node.doubtful:
        return f"the agent of {node.name} is back"
    return (
        f"{node.isolation.claims[0].owner} keeps {node.name} out by now"
        if node.isolation.claims
        else ""
    )


def may_leave(state: State, wish: Planned) -> bool:
    """Return whether nobody waits for the word of the node that is left.

    A controller that has just started waits for each agent, and a stop would wait as well.
    """
    node = state.nodes.get(wish.leaves)
    return node is None or node.doubtful


# -------------------------------------------------------------------------------------------------


def _away_member(state: State, job: JobRecord) -> NodeRecord | None:
    """Return the only member whose agent is away; None where more are."""
    names = doubtful_members(state, job)
    return state.nodes[names[0]] if len(names) == 1 else None


def _refusal(turn: Turn, job: JobRecord, node: NodeRecord) -> str:
    """Return why no move may begin; "" where one may."""
    if paused := turn.paused(job.name):
        return f"automation is paused: {paused}"
    if why := problem(turn.state, job, node):
        return why
    refused = claims.refusal(turn, node, STEPS_UNSAVED.name, STEPS_UNSAVED.mode)
    if refused is not None:
        return refused.why
    begun_ns = node.swap.begun_ns
    if begun_ns and turn.now_ns - begun_ns < _AGAIN_NS:
        return f"{node.name} was to be left already within an hour, at {shown(begun_ns)}"
    return ""


def _no_spare(state: State, job: JobRecord, node: NodeRecord) -> str:
    """Return why no spare can take a node's place: it has to be well, and to run nothing."""
    members, kind = plan_without(state, job, {*state.index.draining, node.name})
    if not members or kind is not PlanKind.SPARE:
        return "no spare waits"
    new = [state.nodes[name] for name in members if name not in job.generation.members]
    for one in new:
        if one.state is not NodeState.HEALTHY or one.missed:
            return f"the spare {one.name} is {one.state.value}{' and silent' * one.missed}"
        if devices.occupants(state, one, job):
            return f"the spare {one.name} has ranks of another job"
    return ""


def _saved_since(job: JobRecord, node: NodeRecord) -> bool:
    """Return whether all ranks have saved a step that they made after the agent had gone."""
    step = job.generation.unsaved.saved_step
    return step is not None and job.ledger.steps.ended_ns(step) > node.liveness.silence.doubted_ns


def _sentence(job: JobRecord, why: str, *, saved: bool) -> str:
    if why:
        return f"nothing moves its ranks by itself: {why}"
    if saved or unsaved.has_folder(job):
        return "a spare takes its place after a step that its ranks save"
    return "nothing moves its ranks by itself: none of their steps is saved"
