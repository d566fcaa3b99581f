"""Conversion of what the controller sends to the values of a vault. Pure."""

from collections.abc import Iterable

from everstep_agent.vault.snapshots.cadence import CadenceRule, StepHold
from everstep_agent.vault.snapshots.copies import (
    CopyKey,
    InitialCopies,
    Recoverable,
    ReplicaTarget,
    initial_copies,
)
from everstep_proto.generated import fleet_pb2


def carried_from_wire(sources: Iterable[fleet_pb2.ShardSource], node: str) -> InitialCopies:
    """Return what a generation begins from, as the node sees it."""
    named = ((CopyKey(one.generation, one.rank, one.step), one.node) for one in sources)
    return initial_copies(named, node)


def recoverable_from_wire(directive: fleet_pb2.VaultDirective) -> Recoverable:
    """Return what may be freed."""
    step = directive.recoverable_step if directive.has_recoverable else None
    return Recoverable(directive.generation, step, frozenset(directive.dead_steps))


def target_from_wire(directive: fleet_pb2.VaultDirective) -> ReplicaTarget | None:
    """Return who keeps the replicas."""
    if not directive.replica_bulk_address:
        return None
    return ReplicaTarget(directive.replica_target.node, directive.replica_bulk_address)


def hold_from_wire(directive: fleet_pb2.VaultDirective) -> StepHold | None:
    """Return after which step a restart is planned, if one is."""
    return StepHold(directive.generation, directive.hold_after) if directive.holds else None


def cadence_from_wire(directive: fleet_pb2.VaultDirective) -> CadenceRule:
    """Return which steps are to be snapshotted."""
    return CadenceRule(directive.snapshot_from, max(1, directive.snapshot_every))
