"""Bare server, the limit of the controller: grpc.aio that receives, parses and answers.

It keeps nothing of what it hears but who said it, and sends as many messages as the controller
does, each at once: Welcome, orders, an acknowledgement for each record, a directive for each report
of replicas, questions for the time. Argument: port.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator

import grpc
from transport_agent import JOB, RANKS_PER_NODE
from transport_relay import pack, unpack

from everstep_controller.api.server import SERVER_OPTIONS
from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc

_PATH = "everstep.bench.Relay"
_QUICK_QUESTIONS = 5
# Of a batch every 5 s each second one is answered with a question, as one comes every 10 s.
_BATCHES_A_QUESTION = 2


class Peer:
    """What has to be known of an agent to answer it."""

    def __init__(self) -> None:
        self._index = 0
        self._generation = 0
        self._stopped = 0
        self._batches = 0

    def answers(self, message: fleet_pb2.AgentMessage) -> Iterator[fleet_pb2.ControllerMessage]:
        """Yield what the controller would answer, as many messages of the same kinds."""
        kind = message.WhichOneof("body")
        if kind == "record":
            yield from self._record(message.record)
        elif kind == "vault" and any(copy.replica for copy in message.vault.copies):
            yield self._directive(message.vault.copies[0].step)
        elif kind == "samples":
            self._batches += 1
            if not self._batches % _BATCHES_A_QUESTION:
                yield _question()
        elif kind == "hello":
            yield from self._hello(message.hello)

    def _hello(self, hello: fleet_pb2.Hello) -> Iterator[fleet_pb2.ControllerMessage]:
        self._index = int(hello.node[1:])
        yield fleet_pb2.ControllerMessage(welcome=fleet_pb2.Welcome(term=1, cluster_id="bare"))
        for _ in range(_QUICK_QUESTIONS):
            yield _question()
        if not hello.jobs:
            yield _order(fleet_pb2.Order(order_id="check", run_check=fleet_pb2.RunCheck()))
        names = [self._name(distance) for distance in (1, 2, 32, 64)]
        peers = [fleet_pb2.WatchedPeer(node=n, liveness_address="127.0.0.1:1") for n in names]
        yield fleet_pb2.ControllerMessage(peers=fleet_pb2.PeerList(peers=peers))

    def _record(self, record: fleet_pb2.Record) -> Iterator[fleet_pb2.ControllerMessage]:
        kind = record.WhichOneof("body")
        yield fleet_pb2.ControllerMessage(ack=fleet_pb2.Ack(sequence=record.sequence))
        if kind == "launcher_joined":
            yield self._start(record.launcher_joined.nodes_max)
            yield self._directive(None)
        elif kind == "generation_stopped":
            yield self._start(0)
            yield self._directive(None)
        elif kind == "rank_exited" and self._stopped < record.rank_exited.generation:
            self._stopped = record.rank_exited.generation
            stop = fleet_pb2.StopGeneration(job=JOB, job_id=JOB, generation=self._stopped)
            yield _order(fleet_pb2.Order(order_id="stop", term=1, stop_generation=stop))

    def _start(self, nodes: int) -> fleet_pb2.ControllerMessage:
        self._generation += 1
        start = fleet_pb2.StartGeneration(
            job=JOB,
            job_id=JOB,
            lineage_id=JOB,
            generation=self._generation,
            node_rank=self._index,
            node_count=nodes,
            first_rank=self._index * RANKS_PER_NODE,
            processes=RANKS_PER_NODE,
            world_size=nodes * RANKS_PER_NODE,
            master_address="127.0.0.1",
            master_port=29500,
        )
        return _order(fleet_pb2.Order(order_id="start", term=1, start_generation=start))

    def _directive(self, step: int | None) -> fleet_pb2.ControllerMessage:
        directive = fleet_pb2.VaultDirective(
            job=JOB,
            job_id=JOB,
            lineage_id=JOB,
            generation=self._generation,
            recoverable_step=step,
            replica_target=self._name(-1 if self._index % 2 else 1),
            replica_bulk_address="127.0.0.1:1",
            transfer_key=bytes(32),
            term=1,
            snapshot_every=1,
        )
        return fleet_pb2.ControllerMessage(vault=directive)

    def _name(self, distance: int) -> str:
        return f"n{max(0, self._index + distance):05}"


def _order(order: fleet_pb2.Order) -> fleet_pb2.ControllerMessage:
    return fleet_pb2.ControllerMessage(order=order)


def _question() -> fleet_pb2.ControllerMessage:
    return fleet_pb2.ControllerMessage(time_request=fleet_pb2.TimeRequest(sent_ns=1))


class _Fleet(fleet_pb2_grpc.FleetServicer):
    async def Connect(  # noqa: N802 - the name is in fleet.proto
        self,
        request_iterator: AsyncIterator[fleet_pb2.AgentMessage],
        context: grpc.aio.ServicerContext[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage],
    ) -> AsyncIterator[fleet_pb2.ControllerMessage]:
        del context
        peer = Peer()
        async for message in request_iterator:
            for answer in peer.answers(message):
                yield answer


async def _relayed(batches: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
    """Answer each batch with one."""
    del context
    peers: dict[int, Peer] = {}
    async for batch in batches:
        said = [
            (place, answer.SerializeToString())
            for place, message in unpack(batch)
            for answer in peers.setdefault(place, Peer()).answers(
                fleet_pb2.AgentMessage.FromString(message)
            )
        ]
        if said:
            yield pack(said)


async def serve(port: int) -> None:
    """Serve until killed."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    fleet_pb2_grpc.add_FleetServicer_to_server(_Fleet(), server)
    relay: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(_relayed)
    handlers = grpc.method_handlers_generic_handler(_PATH, {"Connect": relay})
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
