"""Events of nodes: their agents connect, disconnect, and report on silent peers."""

from dataclasses import dataclass, field

from everstep_common.judging.findings import Finding
from everstep_controller.core.model.node import Inventory, JobOnNode


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConnected:
    """An agent opened its stream and said Hello."""

    node: str
    boot_id: str
    agent_version: str
    outbox: str
    highest_term: int
    host: str
    domain: str = ""
    bulk_address: str = ""
    liveness_address: str = ""
    inventory: Inventory = field(default_factory=Inventory)
    jobs: tuple[JobOnNode, ...] = ()
    open_findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDisconnected:
    """An agent's stream ended."""

    node: str


@dataclass(frozen=True, slots=True)
class PeerReported:
    """A node says that a peer went silent, or is heard again."""

    node: str
    peer: str
    silent: bool


@dataclass(frozen=True, slots=True)
class PeerJudged:
    """A node answers whether a peer is alive."""

    node: str
    peer: str
    confirm_id: str
    alive: bool


AgentEvent = NodeConnected | NodeDisconnected | PeerReported | PeerJudged
