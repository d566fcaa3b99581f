"""Actions of the core as messages to agents: orders, peer lists and vault directives."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from everstep_common.lessons import Lesson
from everstep_common.orders import ShardSource
from everstep_common.reports import DataRange
from everstep_controller.core import actions
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.vault.messages import Directive
from everstep_controller.core.vault.persistence import Publish, StoredFile
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_to_wire
from everstep_proto.record_codec import to_wire


def order(
    action: actions.Order, term: int, transfer_key: bytes, sources: Iterable[ShardSource] = ()
) -> fleet_pb2.ControllerMessage:
    """Return the message that orders a node; ``sources`` are for a generation that restores."""
    if isinstance(action, actions.StartGeneration):
        action = replace(action, transfer_key=transfer_key, sources=tuple(sources))
    return fleet_pb2.ControllerMessage(order=order_to_wire(action, term))


def _ranges(ranges: Iterable[DataRange]) -> list[fleet_pb2.DataRange]:
    return [to_wire(one, fleet_pb2.DataRange) for one in ranges]


def _source(source: ShardSource) -> fleet_pb2.ShardSource:
    return to_wire(source, fleet_pb2.ShardSource)


def confirm(action: actions.ConfirmSilence) -> fleet_pb2.ControllerMessage:
    """Return the question whether a peer is alive."""
    peer = fleet_pb2.Peer(node=action.peer, liveness_address=action.peer_address)
    return fleet_pb2.ControllerMessage(
        confirm=fleet_pb2.ConfirmPeer(confirm_id=action.id, peer=peer)
    )


def peer_list(
    peers: tuple[str, ...], nodes: Mapping[str, NodeRecord]
) -> fleet_pb2.ControllerMessage:
    """Return the list of peers to watch; those without a responder cannot be watched."""
    known = [nodes[peer] for peer in peers if peer in nodes]
    return fleet_pb2.ControllerMessage(
        peers=fleet_pb2.PeerList(peers=[_peer(node) for node in known if node.liveness_address])
    )


def _peer(node: NodeRecord) -> fleet_pb2.Peer:
    return fleet_pb2.Peer(node=node.name, liveness_address=node.liveness_address)


def directive(
    what: Directive, target: NodeRecord | None, term: int, transfer_key: bytes
) -> fleet_pb2.ControllerMessage:
    """Return what a vault shall do."""
    if what.spare is not None:
        spare = fleet_pb2.SpareMemory(
            job=what.job,
            copy_bytes=what.spare.copy_bytes,
            processes=what.spare.processes,
            term=term,
        )
        if what.prefetch is not None:
            spare.ahead.extend(map(_source, what.prefetch.sources))
            spare.first_rank, spare.transfer_key = what.prefetch.first_rank, transfer_key
        return fleet_pb2.ControllerMessage(spare_memory=spare)
    wire = fleet_pb2.VaultDirective(
        job=what.job,
        generation=what.generation,
        recoverable_step=what.recoverable_step or 0,
        has_recoverable=what.recoverable_step is not None,
        dead_steps=what.dead_steps,
        transfer_key=transfer_key,
        term=term,
        persist_steps=what.persist_steps,
        publish=None if what.publish is None else _publish(what.publish),
        snapshot_every=what.snapshot_every,
        snapshot_from=what.snapshot_from,
        persist_replicas=what.persist_replicas,
        holds=what.hold_after is not None,
        hold_after=what.hold_after or 0,
        sources=[_source(source) for source in what.sources],
    )
    if target is not None and target.bulk_address:
        wire.replica_target.CopyFrom(_peer(target))
        wire.replica_bulk_address = target.bulk_address
    return fleet_pb2.ControllerMessage(vault=wire)


def spare_lesson(job: str, lesson: Lesson, term: int) -> fleet_pb2.ControllerMessage:
    """Return what standbys of a spare shall import."""
    told = fleet_pb2.Lesson(modules=lesson.modules, variables=lesson.variables)
    return fleet_pb2.ControllerMessage(
        spare_lesson=fleet_pb2.SpareLesson(job=job, term=term, lesson=told)
    )


def _publish(what: Publish) -> fleet_pb2.Publish:
    return fleet_pb2.Publish(
        generation=what.generation,
        target=None if what.target is None else to_wire(what.target, fleet_pb2.StoredStep),
        files=[_file(file) for file in what.files],
        keep=[to_wire(step, fleet_pb2.StoredStep) for step in what.keep],
        skipped=_ranges(what.skipped),
    )


def _file(file: StoredFile) -> fleet_pb2.StoredFile:
    return fleet_pb2.StoredFile(
        rank=file.rank,
        root_hash=bytes.fromhex(file.root_hash),
        size_bytes=file.size_bytes,
        layout=bytes.fromhex(file.layout),
    )
