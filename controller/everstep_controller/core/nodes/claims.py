"""Claims on nodes: who keeps a node from taking ranks, within which budget, in a sentence."""

from collections.abc import Sequence
from dataclasses import dataclass

from everstep_common.judging.findings import Mode, Severity
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import (
    AUTOMATION,
    MAINTENANCE,
    OPERATOR,
    SCHEDULER,
    Claim,
    NodeRecord,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.model.state import State
from everstep_controller.core.model.windows import WindowState, holding, shown
from everstep_controller.core.nodes import budgets, indexing
from everstep_controller.core.turn import Reconciliation, Turn

# Number of nodes that a sentence names.
_NAMED_MAX = 3

# --- what automation may -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why automation may not isolate a working node, and whether it is a budget that forbids it."""

    why: str
    by_budget: bool = False


def refusal(
    turn: Turn, node: NodeRecord, condition: str, most: Mode = Mode.ENFORCE
) -> Refusal | None:
    """Return why automation may not isolate this working node, or keep it so; None when it may."""
    mode = turn.state.mode_of(node, condition, most)
    if mode is not Mode.ENFORCE:
        return Refusal(f"the mode of {condition} is {mode.value}")
    if reason := turn.paused(node.name):
        return Refusal(f"automation is paused: {reason}")
    spent = budgets.exceeded(turn.state, node)
    return Refusal(spent, by_budget=True) if spent else None


# --- claims ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClaimCause:
    """Cause of a claim: whose it is, why in a sentence, and for which condition, if for one."""

    owner: str
    reason: str
    condition: str = ""


def claim(turn: Reconciliation, node: NodeRecord, cause: ClaimCause, *, dead: bool = False) -> None:
    """Put a claim on a node; a second claim of the same owner only changes its reason."""
    _claim(turn, node, cause, dead=dead)


def drain(turn: Reconciliation, node: NodeRecord, cause: ClaimCause) -> None:
    """Put a claim on a node that lets its ranks stay; one that does not is left as it is."""
    _drain(turn, node, cause)


def unclaim(turn: Reconciliation, node: NodeRecord, owner: str, reason: str) -> bool:
    """Remove the claim of one owner, and of no other; return whether there was one."""
    return _unclaim(turn, node, owner, reason)


# An operator's claim is the operator's word itself: handlers record it, and nobody decides on it.


def record_operator_claim(turn: Turn, node: NodeRecord, reason: str) -> None:
    """Put an operator's claim on a node."""
    _claim(turn, node, ClaimCause(OPERATOR, reason), dead=False)


def record_operator_drain(turn: Turn, node: NodeRecord, reason: str) -> None:
    """Put an operator's claim on a node that lets its ranks stay."""
    _drain(turn, node, ClaimCause(OPERATOR, reason))


def is_borne(held: OpenFinding, accepted: Sequence[str]) -> bool:
    """Return whether a node takes ranks in spite of a finding, by an operator's word."""
    fatal = held.finding.severity is Severity.FATAL and not held.finding.key.job
    return not fatal or bool(held.accepted_by) or held.finding.key.condition in accepted


def release_problem(node: NodeRecord, accepted: Sequence[str]) -> str:
    """Return which open fatal findings a release would pass over, and what to do; else nothing."""
    left = [held.finding for held in node.health.findings.values() if not is_borne(held, accepted)]
    if not left:
        return ""
    told = "; ".join(f"{one.key.condition} of {one.key.component}: {one.message}" for one in left)
    conditions = sorted({one.key.condition for one in left} | set(accepted))
    return (
        f"{node.name} has open fatal findings: {told}. A repair that its agent sees clears them; "
        f"to take the node back in spite of them: everstep release {node.name} "
        f"--accept {','.join(conditions)}"
    )


def record_operator_release(turn: Turn, node: NodeRecord, reason: str) -> None:
    """Remove an operator's claim on a node, if there is one."""
    _unclaim(turn, node, OPERATOR, reason)


def is_maintained(node: NodeRecord) -> bool:
    """Return whether a node has a claim of a window that has begun, not only of one to come."""
    claim = node.claim_of(MAINTENANCE)
    return claim is not None and not claim.draining


def end_maintenance(
    turn: Reconciliation, node: NodeRecord, reason: str, *, window: str = ""
) -> bool:
    """Remove the claim of maintenance; return whether it is gone, and not another window's now."""
    held = node.claim_of(MAINTENANCE)
    following = holding(turn.state.windows.values(), node.name, besides=window)
    if held is None or following is None:
        return unclaim(turn, node, MAINTENANCE, reason)
    held.reason, held.vacate = following.sentence(), following.vacated
    held.draining = following.state is WindowState.DRAINING
    turn.mark_node(node.name)
    indexing.refresh(turn, node)
    return False


def _claim(turn: Turn, node: NodeRecord, cause: ClaimCause, *, dead: bool) -> None:
    held = node.claim_of(cause.owner)
    if cause.owner == AUTOMATION and not dead and (held is None or held.dead):
        budgets.record_isolation(turn, node)
    if held is None:
        made = Claim(cause.owner, cause.reason, turn.now_ns, dead, condition=cause.condition)
        _put(turn, node, made)
        return
    held.reason, held.condition = cause.reason, cause.condition
    held.dead = held.dead and dead
    held.draining = held.vacate = False
    turn.mark_node(node.name)
    indexing.refresh(turn, node)


def _drain(turn: Turn, node: NodeRecord, cause: ClaimCause) -> None:
    held = node.claim_of(cause.owner)
    if held is None:
        made = Claim(
            cause.owner, cause.reason, turn.now_ns, draining=True, condition=cause.condition
        )
        _put(turn, node, made)
    elif held.draining:
        held.reason, held.condition = cause.reason, cause.condition
        turn.mark_node(node.name)


def _put(turn: Turn, node: NodeRecord, made: Claim) -> None:
    owner, reason = made.owner, made.reason
    node.isolation.claims.append(made)
    turn.mark_node(node.name)
    indexing.refresh(turn, node)
    word, ranks = ("NodeDraining", "new ranks") if made.draining else ("NodeIsolated", "ranks")
    turn.announce(node.name, word, f"{node.name} takes no {ranks} ({owner}): {reason}")


def _unclaim(turn: Turn, node: NodeRecord, owner: str, reason: str) -> bool:
    held = node.claim_of(owner)
    if held is None:
        return False
    node.isolation.claims.remove(held)
    turn.mark_node(node.name)
    indexing.refresh(turn, node)
    turn.announce(node.name, "NodeReleased", f"{owner} released {node.name}: {reason}")
    return True


# --- for people -----------------------------------------------------------------------------------


def why_ineligible(state: State, node: NodeRecord) -> str:
    """Return it in one sentence; empty for a node that takes ranks."""
    if node.usable:
        if failed := failed_check(node):
            return f"{failed}; it takes ranks when it has passed one"
        last = why_last(node)
        return last and f"{last}; that is over when one has been open for 10 min"
    kept = node.claim_of(MAINTENANCE) is not None
    window = holding(state.windows.values(), node.name) if kept else None
    if window is not None:
        return (
            f"{node.name} takes no ranks until {shown(window.span.end_ns)}: {window.sentence()}; "
            f"to end that sooner: everstep maintenance cancel {window.id}"
        )
    if node.isolation.claims:
        claim = node.isolation.claims[-1]
        return (
            f"{node.name} takes no ranks ({claim.owner}): {claim.reason}; {_what_ends(node, claim)}"
        )
    if node.state is NodeState.VALIDATING:
        return f"{node.name} is being checked ({node.reason}): it takes ranks when that has passed"
    if node.doubtful:
        doubt = node.liveness.silence.doubt
        return f"{node.name} is doubtful: {doubt}; it takes ranks when it answers"
    what = node.state.value if node.liveness.connected else "not connected"
    return f"{node.name} is {what}: {node.reason}; 'everstep why {node.name}' tells more"


def no_spare(node: NodeRecord) -> str:
    """Return why a node gets no ranks of a job that has none there, or as the last; else empty."""
    return failed_check(node) or why_last(node)


def why_last(node: NodeRecord) -> str:
    """Return why a node gets ranks only where no other can take them; empty where nothing is."""
    if not node.streams.flaps_since_ns:
        return ""
    return (
        f"{node.name} takes new ranks only where no other node can: the stream of its agent ends "
        "again and again"
    )


def failed_check(node: NodeRecord) -> str:
    """Return why a node is no spare though it may take ranks; empty when it may be one."""
    failed = node.spare_check.failed
    return failed and f"{node.name} is no spare: its check failed: {failed}"


def _what_ends(node: NodeRecord, claim: Claim) -> str:
    """Return what ends a claim, or whoever it was can tell."""
    if claim.owner == OPERATOR:
        return f"to give it back: everstep release {node.name}"
    if claim.owner == SCHEDULER:
        return "its scheduler keeps it out; it takes ranks when it is freed there"
    if claim.owner == AUTOMATION and claim.draining:
        return f"it does when that finding is over; to give it back: everstep release {node.name}"
    if claim.owner == AUTOMATION and node.state is NodeState.REPAIRING:
        return f"when it is repaired: everstep release {node.name}"
    return f"it does when it has passed a check; 'everstep why {node.name}' tells more"


def waiting_launchers(state: State, job: JobRecord) -> list[str]:
    """Return for each launcher that waits, by node, why its node takes no ranks of the job."""
    if job.state is JobState.ENDED:
        return []
    names = sorted(frozenset(job.launchers).difference(job.generation.members))
    return [kept for name in names if (kept := why_ineligible(state, state.nodes[name]))]


def ineligible_launchers(state: State, job: JobRecord) -> str:
    """Return which nodes of a job's launchers take no ranks, as the end of a sentence."""
    known, seats = (state.nodes[name] for name in job.launchers), frozenset(job.generation.members)
    kept = [n.name for n in known if not n.usable or (failed_check(n) and n.name not in seats)]
    if not kept:
        return ""
    more = f" and {len(kept) - _NAMED_MAX} more" if len(kept) > _NAMED_MAX else ""
    take = "takes" if len(kept) == 1 else "take"
    return f"; {', '.join(kept[:_NAMED_MAX])}{more} {take} none now ('everstep nodes' tells why)"
