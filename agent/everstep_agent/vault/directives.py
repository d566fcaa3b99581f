"""Vault directives: what the controller wants, as the values that a vault takes. Pure."""

from everstep_agent.vault.snapshots.cadence import CadenceRule, StepHold
from everstep_agent.vault.snapshots.copies import Recoverable, ReplicaTarget
from everstep_agent.vault.snapshots.restore_plan import SpareRequest
from everstep_common.orders import SpareMemory, VaultDirective


def spare_request_of(wanted: SpareMemory) -> SpareRequest:
    """Return what a node makes ready while it waits as a spare, or as a guard: copies alone."""
    ranks = range(wanted.first_rank, wanted.first_rank + wanted.processes)
    if wanted.guards:
        known = [source.rank for source in wanted.ahead]
        ranks = range(min(known), max(known) + 1)
    return SpareRequest(ranks, wanted.copy_bytes, wanted.ahead)


def recoverable_of(directive: VaultDirective) -> Recoverable:
    """Return what may be freed."""
    dead = frozenset(directive.dead_steps)
    return Recoverable(directive.generation, directive.recoverable_step, dead)


def target_of(directive: VaultDirective) -> ReplicaTarget | None:
    """Return who keeps the replicas."""
    if not directive.replica_bulk_address:
        return None
    return ReplicaTarget(directive.replica_target, directive.replica_bulk_address)


def collector_of(directive: VaultDirective) -> ReplicaTarget | None:
    """Return the member that hears the own steps while no controller is there."""
    if not directive.collector_bulk_address:
        return None
    return ReplicaTarget(directive.collector, directive.collector_bulk_address)


def hold_of(directive: VaultDirective) -> StepHold | None:
    """Return after which step a restart is planned, if one is."""
    after = directive.hold_after
    return None if after is None else StepHold(directive.generation, after)


def cadence_of(directive: VaultDirective) -> CadenceRule:
    """Return which steps are to be snapshotted."""
    return CadenceRule(directive.snapshot_from, max(1, directive.snapshot_every))
