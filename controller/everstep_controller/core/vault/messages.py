"""Vault reports and directives: the nodes' word on their copies, and their orders."""

from typing import NamedTuple

from everstep_common.orders import Publish, ShardSource
from everstep_common.preload import Preload
from everstep_common.reports import PassedStep, Standbys, StoredStep, Turnover
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.vault.catalogue import News
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.spares import Prefetch, SpareNeed


class NodeHoldings(NamedTuple):
    """Report of a node on one job: complete lists, in place of those before."""

    # By a name that no other copy has ever had; changed in place by the next report.
    copies: dict[bytes, Copy]
    settled_generation: int
    stored: tuple[StoredStep, ...] = ()
    # Steps that could not be brought to storage, and why.
    failures: tuple[tuple[StepKey, str], ...] = ()
    # Copies that turned out bad since the last report.
    bad_copies: int = 0
    # Copies that came and went since the report before; None where that is not known.
    news: News | None = None
    standbys: Standbys | None = None
    # What its ranks have loaded; None: nothing new.
    preload: Preload | None = None
    # The node's memory is too short for the replicas of more than one member.
    replicas_short: bool = False
    # Id of the storage folder to which the node has written files; "": not known.
    storage_id: str = ""
    # How long slots are taken there; None: not known, as of an agent that does not measure it.
    turnover: Turnover | None = None
    # Ranks that have left out a newer step than they have copies of.
    passed: tuple[PassedStep, ...] = ()


class Directive(NamedTuple):
    """Directive to the vault of one node for one job: what to keep, copy, persist and fetch.

    A named tuple, for each step has one for each node of its job.
    """

    job: str
    generation: int
    recoverable_step: int | None
    dead_steps: tuple[int, ...]
    replica_target: str
    # The member that hears the own steps while no controller is there; "": nobody.
    collector: str = ""
    persist_steps: tuple[int, ...] = ()
    publish: Publish | None = None
    snapshot_every: int = 1
    snapshot_from: int = 0
    # Ranks of other nodes whose replicas here are persisted.
    persist_replicas: tuple[int, ...] = ()
    # For a node that waits as a spare: the memory to make; only ``prefetch`` may come with it.
    spare: SpareNeed | None = None
    # For a spare that would take a silent member's place: the copies that it fetches meanwhile.
    prefetch: Prefetch | None = None
    # The last snapshot of the generation is the first one not before this step; None for no end.
    hold_after: int | None = None
    # For a spare that keeps replicas, which gets no plan: the copies that the generation began
    # from.
    sources: tuple[ShardSource, ...] = ()
    # A member is doubtful: no newer step becomes recoverable, so nobody waits for a slot.
    member_away: bool = False
    # Why snapshots are as frequent as they are, for the terminal; "" on all nodes but one.
    cadence_reason: str = ""
    # Ranks whose agents are away, and the step that they write, which this node reads in.
    absent_ranks: tuple[int, ...] = ()
    absent_step: int | None = None
    # The nodes whose replicas this one keeps.
    replica_sources: tuple[str, ...] = ()
