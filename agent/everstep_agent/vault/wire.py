"""Vault message conversion: from the controller's messages to the values of a vault. Pure."""

from collections.abc import Iterable

from everstep_agent.vault.snapshots.cadence import CadenceRule, StepHold
from everstep_agent.vault.snapshots.copies import (
    Recoverable,
    ReplicaTarget,
)
from everstep_agent.vault.snapshots.restore_plan import SpareRequest
from everstep_common.orders import ShardSource
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire


def sources_from_wire(named: Iterable[fleet_pb2.ShardSource]) -> tuple[ShardSource, ...]:
    """Return copies that hold some of the state to restore. Raises WireError."""
    return tuple(from_wire(ShardSource, one) for one in named)


def spare_request_from_wire(wanted: fleet_pb2.SpareMemory) -> SpareRequest:
    """Return what a node makes ready while it waits as a spare."""
    ranks = range(wanted.first_rank, wanted.first_rank + wanted.processes)
    return SpareRequest(ranks, wanted.copy_bytes, sources_from_wire(wanted.ahead))


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
