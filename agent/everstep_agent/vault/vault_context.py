"""Vault context: the parts of the agent that the vaults of all jobs on a node share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.detectors.transfer_refusals import RefusalWatch
from everstep_agent.ipc.message_memory import MessageMemories
from everstep_agent.vault.memory.allocator import Allocator
from everstep_agent.vault.snapshots.descriptor_store import RegionStore
from everstep_agent.vault.transfer.certificates import TlsCertificates
from everstep_agent.vault.transfer.engine import TransferEngine
from everstep_agent.vault.transfer.remote_agent import RemoteAgent


@dataclass(slots=True)
class VaultCounters:
    """Counters since the agent started."""

    committed: int = 0
    skipped: int = 0
    bad_copies: int = 0
    torn: int = 0
    replicated: int = 0
    replicated_bytes: int = 0
    received_bytes: int = 0
    replication_failures: int = 0
    # Copies fetched while a member was only silent, and how often that was for nothing.
    early_copies: int = 0
    early_bytes: int = 0
    early_discarded: int = 0
    stored: int = 0
    stored_bytes: int = 0
    stored_s: float = 0.0
    store_failures: int = 0


@dataclass(frozen=True, slots=True)
class VaultContext:
    """The node's side of every vault.

    ``outgoing`` and ``incoming`` have threads of their own, so that two nodes that send to each
    other cannot wait for each other.
    """

    node: str
    slots_per_rank: int
    threads: ThreadPool
    outgoing: TransferEngine
    incoming: TransferEngine
    allocator: Allocator
    region_store: RegionStore
    next_epoch: Callable[[], int]
    # Limits the memory that long messages of all jobs take, in each direction.
    message_memories: MessageMemories
    # How long the part of a copy that a broken transfer brought, and memory that waits for the next
    # replica, are kept unused.
    partial_kept_s: float = 30.0
    counters: VaultCounters = field(default_factory=VaultCounters)
    # Certificates for transfers inside TLS, None for transfers without; nodes that refused them.
    certificates: TlsCertificates | None = None
    refusals: RefusalWatch = field(default_factory=RefusalWatch)

    def remote_agent(
        self, node: str, address: str, lineage: str, transfer_key: bytes
    ) -> RemoteAgent:
        """Return another node, as this one speaks with it."""
        return RemoteAgent(address, lineage, transfer_key, node, self.certificates, self.refusals)
