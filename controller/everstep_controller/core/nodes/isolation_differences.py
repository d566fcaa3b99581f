"""Isolation differences: what is wanted at schedulers, what is known to be so, what is left to do.

What is wanted follows from the claims and groups of a node alone.
"""

from collections.abc import Mapping

from everstep_controller.core.model.isolation import (
    DriverRecord,
    Hold,
    NodeIsolation,
    SeenHold,
    WantedIsolation,
)
from everstep_controller.core.model.node import SCHEDULER, NodeRecord, NodeState
from everstep_controller.core.model.state import State

# Driver without a scheduler, which is always there and has every node.
BUILT_IN = "built-in"


def wanted_isolation(node: NodeRecord, cordon: bool | None = None) -> WantedIsolation:
    """Return what schedulers should do with a node; their own claims count for nothing here.

    ``cordon``: whether its groups have it cordoned as well.
    """
    ours = [claim for claim in node.isolation.claims if claim.owner != SCHEDULER]
    return WantedIsolation(
        node.name,
        owners=tuple(claim.owner for claim in ours),
        reason="; ".join(f"{claim.owner}: {claim.reason}" for claim in ours),
        condition=next((claim.condition for claim in ours if claim.condition), ""),
        dead=bool(ours) and node.state is NodeState.LOST,
        cordon=cordon if ours else None,
    )


def wanted_of(state: State, record: DriverRecord, name: str) -> WantedIsolation:
    """Return what one driver's scheduler should do with a node: free it where it is another's."""
    if not is_own(state, record.name, name):
        return WantedIsolation(name)
    return wanted_isolation(state.nodes[name], state.policy_of(name).cordon)


def is_own(state: State, driver: str, node: str) -> bool:
    """Return whether a driver is told of a node, by the node's groups; all share the built-in."""
    drivers = state.group_table.drivers_of(state.index.groups_of(node))
    return drivers is None or driver in drivers or driver == BUILT_IN


def own_nodes(state: State, driver: str) -> set[str]:
    """Return the nodes of a driver, and those that it still withholds and that are others' now."""
    own = {name for name in state.nodes if is_own(state, driver, name)}
    record = state.drivers.get(driver)
    known = record.nodes.items() if record is not None else ()
    return own | {name for name, one in known if one.applied is not None}


def is_claimed(state: State, name: str) -> bool:
    """Return whether a node is to be withheld, by whoever but schedulers themselves."""
    return name in state.nodes and wanted_isolation(state.nodes[name]).withheld


def claims_on(node: NodeRecord) -> tuple[str, ...]:
    """Return the claims of a node by what tells one from the next, whatever its reason becomes."""
    ours = (claim for claim in node.isolation.claims if claim.owner != SCHEDULER)
    return tuple(f"{claim.owner}@{claim.since_ns}" for claim in ours)


def is_so(wanted: WantedIsolation, known: NodeIsolation) -> bool:
    """Return whether a scheduler does what is wanted; of what it was told before that, by reason.

    A hold that is only known by its sentence is not asked for again: a start and an upgrade change
    nothing at a scheduler.
    """
    if known.applied != (wanted.reason if wanted.withheld else None):
        return False
    return known.answered is None or known.answered == wanted


def is_due(wanted: WantedIsolation, known: NodeIsolation) -> bool:
    """Return whether something is neither so nor asked for; what failed may be half done."""
    if known.asked is not None:
        return known.asked != wanted
    if known.failure:
        return True
    return not is_so(wanted, known)


def is_undone(wanted: WantedIsolation, known: NodeIsolation) -> bool:
    """Return whether something is not so that is not left alone for others' sake."""
    if known.foreign or known.overridden or known.unmanaged:
        return False
    return bool(known.failure) or not is_so(wanted, known)


def changed_holds(record: DriverRecord, holds: Mapping[str, Hold]) -> tuple[SeenHold, ...]:
    """Return how a reading of the whole scheduler differs from what is known of it."""
    known = {name: node.hold for name, node in record.nodes.items() if node.hold is not None}
    names = known.keys() | holds.keys()
    changed = sorted(name for name in names if known.get(name) != holds.get(name))
    return tuple(SeenHold(name, holds.get(name)) for name in changed)


def changed_labels(
    record: DriverRecord, told: Mapping[str, Mapping[str, str]]
) -> dict[str, Mapping[str, str]]:
    """Return of which nodes a scheduler says something else now, with all that it says of each."""
    before, none = record.labels, dict[str, str]()
    names = before.keys() | told.keys()
    changed = sorted(name for name in names if before.get(name, none) != told.get(name, none))
    return {name: told.get(name, none) for name in changed}


def is_awaited(record: DriverRecord) -> bool:
    """Return whether a reading is news even if it shows what is known."""
    return record.reading or not record.read or bool(record.failures)
