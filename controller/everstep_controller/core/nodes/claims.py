"""Claims on nodes: who keeps a node from taking ranks, within which budget."""

from bisect import insort

from everstep_common.judging.findings import Mode
from everstep_controller.core.model.node import (
    AUTOMATION,
    MAINTENANCE,
    Claim,
    NodeRecord,
    NodeState,
)
from everstep_controller.core.model.state import State
from everstep_controller.core.model.windows import WindowState, holding
from everstep_controller.core.turn import Turn

_ORDER = tuple(Mode)


def mode_of(state: State, condition: str, most: Mode = Mode.ENFORCE) -> Mode:
    """Return how far automation may go for one condition.

    What an operator set for the condition holds; else the fleet's mode, but no further than
    ``most``, which the detector was shipped with.
    """
    chosen = dict(state.settings.condition_modes).get(condition)
    return chosen or min(state.settings.mode, most, key=_ORDER.index)


def budget(state: State) -> int:
    """Return how many working nodes automation may keep isolated at once."""
    known = sum(node.state is not NodeState.RETIRED for node in state.nodes.values())
    by_ratio = int(known * state.settings.isolation_budget_ratio)
    return max(state.settings.isolation_budget_nodes, by_ratio)


def spent(state: State) -> int:
    """Return how many working nodes automation has isolated."""
    claims = (node.claim_of(AUTOMATION) for node in state.nodes.values())
    return sum(claim is not None and not claim.dead for claim in claims)


def forbidden(turn: Turn, node: NodeRecord, condition: str, most: Mode = Mode.ENFORCE) -> str:
    """Return why automation may not isolate this working node; empty when it may."""
    mode = mode_of(turn.state, condition, most)
    if mode is not Mode.ENFORCE:
        return f"the mode of {condition} is {mode.value}"
    if reason := turn.paused(node.name):
        return f"automation is paused: {reason}"
    if node.claim_of(AUTOMATION) is None and spent(turn.state) >= budget(turn.state):
        return f"the budget of {budget(turn.state)} isolated nodes is spent"
    return ""


def claim(turn: Turn, node: NodeRecord, owner: str, reason: str, *, dead: bool = False) -> None:
    """Put a claim on a node; a second claim of the same owner only changes its reason."""
    node.deferred = ""
    held = node.claim_of(owner)
    if held is not None:
        held.reason, held.dead, held.draining, held.vacate = reason, dead, False, False
        turn.mark_node(node.name)
        return
    _put(turn, node, Claim(owner, reason, turn.now_ns, dead))


def drain(turn: Turn, node: NodeRecord, owner: str, reason: str) -> None:
    """Put a claim on a node that lets its ranks stay; one that does not is left as it is."""
    held = node.claim_of(owner)
    if held is None:
        _put(turn, node, Claim(owner, reason, turn.now_ns, draining=True))
        _note_draining(turn, node)
    elif held.draining:
        held.reason = reason
        turn.mark_node(node.name)


def end_maintenance(turn: Turn, node: NodeRecord, reason: str, *, window: str = "") -> bool:
    """Remove the claim of maintenance; return whether it is gone, and not another window's now."""
    held = node.claim_of(MAINTENANCE)
    following = holding(turn.state.windows.values(), node.name, besides=window)
    if held is None or following is None:
        return unclaim(turn, node, MAINTENANCE, reason)
    held.reason, held.vacate = following.sentence(), following.vacated
    held.draining = following.state is WindowState.DRAINING
    if held.draining:
        _note_draining(turn, node)
    turn.mark_node(node.name)
    return False


def _note_draining(turn: Turn, node: NodeRecord) -> None:
    known = turn.state.draining
    if node.name not in known:
        insort(known, node.name)


def _put(turn: Turn, node: NodeRecord, made: Claim) -> None:
    owner, reason = made.owner, made.reason
    node.claims.append(made)
    turn.mark_node(node.name)
    word, ranks = ("NodeDraining", "new ranks") if made.draining else ("NodeIsolated", "ranks")
    turn.announce(node.name, word, f"{node.name} takes no {ranks} ({owner}): {reason}")


def unclaim(turn: Turn, node: NodeRecord, owner: str, reason: str) -> bool:
    """Remove the claim of one owner, and of no other; return whether there was one."""
    held = node.claim_of(owner)
    if held is None:
        return False
    node.claims.remove(held)
    turn.mark_node(node.name)
    turn.announce(node.name, "NodeReleased", f"{owner} released {node.name}: {reason}")
    return True
