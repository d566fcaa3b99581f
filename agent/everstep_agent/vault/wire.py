"""Vault message conversion: from the controller's messages to the values of a vault. Pure."""

from collections.abc import Iterable
from dataclasses import fields

from everstep_agent.vault.snapshots.cadence import CadenceRule, StepHold
from everstep_agent.vault.snapshots.copies import (
    Recoverable,
    ReplicaTarget,
)
from everstep_agent.vault.snapshots.restore_plan import PlannedSource, SpareRequest
from everstep_proto.generated import fleet_pb2

# Fields of a source that are the same value on the wire.
_SAME_OF_SOURCE = tuple(one.name for one in fields(PlannedSource))


def sources_from_wire(named: Iterable[fleet_pb2.ShardSource]) -> tuple[PlannedSource, ...]:
    """Return copies that hold some of the state to restore."""
    return tuple(
        PlannedSource(**{name: getattr(one, name) for name in _SAME_OF_SOURCE}) for one in named
    )


def sources_to_wire(sources: Iterable[PlannedSource]) -> list[fleet_pb2.ShardSource]:
    """Return copies that hold some of the state to restore, as the controller names them."""
    return [
        fleet_pb2.ShardSource(**{name: getattr(one, name) for name in _SAME_OF_SOURCE})
        for one in sources
    ]


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
