"""View of isolation at schedulers, for people: what fails, what waits, what is so of a node."""

from collections.abc import Iterator

from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_controller.core.model.isolation import DriverRecord, NodeIsolation
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import isolation, isolation_differences


def driver_findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each driver that fails again and again."""
    for record in state.drivers.values():
        if isolation.is_failing(record):
            finding = Finding(
                component=f"controller/drivers/{record.name}",
                condition=isolation.DRIVER_FAILED.name,
                mode=isolation.DRIVER_FAILED.mode,
                severity=Severity.DEGRADED,
                message=isolation.trouble(record),
                evidence=f"{record.failures} calls have failed",
                suggested_action=SuggestedAction.WATCH,
                rule="cleared when all is done that was asked; it is tried at least every minute, "
                "and Everstep itself places nothing on a claimed node meanwhile",
            )
            yield OpenFinding(finding, record.failing_since_ns)


def waiting_of(state: State, record: DriverRecord) -> list[str]:
    """Return the nodes that are not as they are wanted at one scheduler, by name."""
    known = record.nodes.items()
    return sorted(name for name, one in known if one.differs_since_ns and name in state.nodes)


def waiting_nodes(state: State) -> set[str]:
    """Return the nodes that are not as they are wanted at some scheduler."""
    records = (
        record for record in state.drivers.values() if record.name != isolation_differences.BUILT_IN
    )
    return {name for record in records for name in waiting_of(state, record)}


def waiting_since_ns(state: State, record: DriverRecord) -> int:
    """Return since when the oldest of them waits; 0 where none does."""
    waiting = waiting_of(state, record)
    return min((record.nodes[name].differs_since_ns for name in waiting), default=0)


def isolation_sentences(state: State, node: str) -> Iterator[str]:
    """Yield what people should know of a node at the schedulers."""
    for record in state.drivers.values():
        known = record.nodes.get(node) or NodeIsolation()
        if isolation_differences.is_own(state, record.name, node):
            yield from _sentences(state, record, node, known)
        elif known.applied is not None:
            yield f"driver {record.name} is to free it there: it is not among its nodes now"


def _sentences(
    state: State, record: DriverRecord, node: str, known: NodeIsolation
) -> Iterator[str]:
    """Yield them for a driver of the node."""
    if known.failure:
        yield f"driver {record.name} has failed for it, and tries again: {known.failure}"
    elif record.failure and not record.read and isolation_differences.is_claimed(state, node):
        yield f"driver {record.name} has not been told of it: {record.failure}"
    if (
        state.drivers_paused
        and known.differs_since_ns
        and record.name != isolation_differences.BUILT_IN
    ):
        yield _untold(state, record, node)
    if known.overridden:
        yield isolation.overridden_sentence(record, node)
    if known.unmanaged:
        yield f"driver {record.name} does not manage it: its scheduler has no such node"


def _untold(state: State, record: DriverRecord, node: str) -> str:
    """Return what a paused driver is not told of a node."""
    what = (
        "it is isolated"
        if isolation_differences.wanted_of(state, record, node).withheld
        else "it is free"
    )
    return (
        f"driver {record.name} is not told that {what}, for drivers are paused "
        f"({state.drivers_paused}); to tell it: everstep resume --drivers"
    )
