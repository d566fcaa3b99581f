"""Actions of the core as messages to agents: orders, peer lists and vault directives."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from everstep_common.orders import (
    ConfirmPeer,
    Halted,
    PeerList,
    Ping,
    SpareMemory,
    SparePreload,
    VaultDirective,
    WatchedPeer,
)
from everstep_common.preload import Preload
from everstep_controller.core import actions
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.vault.messages import Directive
from everstep_controller.core.vault.spares import SpareNeed
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_to_wire
from everstep_proto.record_codec import to_wire

_LOOKED_UP = frozenset({"job", "replica_target", "replica_sources", "collector"})
# What a vault is told just as the core wants it; the rest is for spares, or is looked up.
_SAME_OF_DIRECTIVE = tuple(
    name
    for name in Directive._fields
    if name in {known.name for known in fields(VaultDirective)} - _LOOKED_UP
)


def order(action: actions.Order, term: int) -> fleet_pb2.ControllerMessage:
    """Return the message that orders a node."""
    return fleet_pb2.ControllerMessage(order=order_to_wire(action, term))


def confirm(action: actions.ConfirmSilence) -> fleet_pb2.ControllerMessage:
    """Return the question what of a peer answers."""
    peer = WatchedPeer(action.peer, action.peer_address)
    question = ConfirmPeer(action.id, peer, action.peer_bulk_address)
    return fleet_pb2.ControllerMessage(confirm=to_wire(question, fleet_pb2.ConfirmPeer))


def ping(action: actions.PingAgent) -> fleet_pb2.ControllerMessage:
    """Return the question whether an agent's event loop turns."""
    return fleet_pb2.ControllerMessage(ping=to_wire(Ping(action.id), fleet_pb2.Ping))


def halted(reason: str) -> fleet_pb2.ControllerMessage:
    """Return the word that the controller acts on nothing."""
    return fleet_pb2.ControllerMessage(halted=to_wire(Halted(reason), fleet_pb2.Halted))


def peer_list(
    peers: tuple[str, ...], nodes: Mapping[str, NodeRecord]
) -> fleet_pb2.ControllerMessage:
    """Return the list of peers to watch; those without a responder cannot be watched."""
    known = [nodes[peer] for peer in peers if peer in nodes]
    watched = PeerList(
        tuple(
            WatchedPeer(node.name, node.spec.liveness_address)
            for node in known
            if node.spec.liveness_address
        )
    )
    return fleet_pb2.ControllerMessage(peers=to_wire(watched, fleet_pb2.PeerList))


@dataclass(frozen=True, slots=True)
class DirectedJob:
    """Job that a directive is about, and the key for its transfers."""

    name: str
    id: str
    lineage_id: str
    transfer_key: bytes


def directive(
    what: Directive, job: DirectedJob, nodes: Mapping[str, NodeRecord], term: int
) -> fleet_pb2.ControllerMessage:
    """Return what a vault shall do."""
    if what.spare is not None:
        memory = _spare_memory(what, what.spare, job, term)
        told = to_wire(memory, fleet_pb2.SpareMemory)
        return fleet_pb2.ControllerMessage(spare_memory=told)
    same: dict[str, Any] = {name: getattr(what, name) for name in _SAME_OF_DIRECTIVE}
    target, address = _bulk_of(what.replica_target, nodes)
    collector, collector_address = _bulk_of(what.collector, nodes)
    sources = (nodes[name].spec.bulk_address for name in what.replica_sources if name in nodes)
    wanted = VaultDirective(
        **same,
        job=job.name,
        job_id=job.id,
        lineage_id=job.lineage_id,
        term=term,
        transfer_key=job.transfer_key,
        replica_target=target,
        replica_bulk_address=address,
        collector=collector,
        collector_bulk_address=collector_address,
        replica_sources=tuple(filter(None, sources)),
    )
    return fleet_pb2.ControllerMessage(vault=to_wire(wanted, fleet_pb2.VaultDirective))


def _bulk_of(name: str, nodes: Mapping[str, NodeRecord]) -> tuple[str, str]:
    """Return a node and the address of its bulk listener; nothing where it has none."""
    node = nodes.get(name)
    return (
        (name, node.spec.bulk_address) if node is not None and node.spec.bulk_address else ("", "")
    )


def _spare_memory(what: Directive, need: SpareNeed, job: DirectedJob, term: int) -> SpareMemory:
    memory = SpareMemory(
        job=job.name,
        job_id=job.id,
        lineage_id=job.lineage_id,
        term=term,
        copy_bytes=need.copy_bytes,
        processes=need.processes,
    )
    if what.prefetch is None:
        return memory
    ahead, first = what.prefetch.sources, what.prefetch.first_rank
    return replace(memory, ahead=ahead, first_rank=first, transfer_key=job.transfer_key)


def spare_preload(job: DirectedJob, preload: Preload, term: int) -> fleet_pb2.ControllerMessage:
    """Return what standbys of a spare shall import."""
    preload_order = SparePreload(
        job=job.name, job_id=job.id, lineage_id=job.lineage_id, term=term, preload=preload
    )
    return fleet_pb2.ControllerMessage(spare_preload=to_wire(preload_order, fleet_pb2.SparePreload))
