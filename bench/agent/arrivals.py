"""Arrivals: times at which the controller told of a condition; and a stream without an agent."""

import queue
import threading
import time
import uuid

import grpc

from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from everstep_proto.local.client import Metadata

_PATIENCE_S = 30.0


class Arrivals:
    """Times at which the controller told of a condition, by component and a word of its message."""

    def __init__(self, port: int, metadata: Metadata) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._stream = admin_pb2_grpc.AdminStub(self._channel).WatchEvents(
            admin_pb2.WatchEventsRequest(follow=True, limit=1), metadata=metadata
        )
        self._seen: queue.SimpleQueue[tuple[float, admin_pb2.Event]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for event in self._stream:
                self._seen.put((time.monotonic(), event))
        except grpc.RpcError:
            return

    def wait(self, reason: str, word: str) -> float:
        """Return when the event came. Raises SystemExit when it does not."""
        deadline = time.monotonic() + _PATIENCE_S
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                at, event = self._seen.get(timeout=left_s)
            except queue.Empty:
                break
            if event.reason == reason and word in event.message:
                return at
        raise SystemExit(f"the controller did not hear of {reason} with {word} in {_PATIENCE_S} s")

    def close(self) -> None:
        """End the stream."""
        self._stream.cancel()
        self._channel.close()


class BareStream:
    """A stream of a node that only sends what it is given."""

    def __init__(self, port: int, metadata: Metadata) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._outgoing: queue.SimpleQueue[fleet_pb2.AgentMessage | None] = queue.SimpleQueue()
        self._boot_id = str(uuid.uuid4())
        self._sequence = 0
        stub = fleet_pb2_grpc.FleetStub(self._channel)
        self._answers = stub.Connect(iter(self._outgoing.get, None), metadata=metadata)
        hello = fleet_pb2.Hello(
            node="bare", agent_version="0.1.0", outbox=str(uuid.uuid4()), stamp=self._stamp()
        )
        self._outgoing.put(fleet_pb2.AgentMessage(hello=hello))
        next(self._answers)
        threading.Thread(target=self._drain, daemon=True).start()

    def _stamp(self) -> fleet_pb2.Stamp:
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return fleet_pb2.Stamp(boot_id=self._boot_id, boot_ns=now_ns, wall_ns=time.time_ns())

    def _drain(self) -> None:
        try:
            for _ in self._answers:
                pass
        except grpc.RpcError:
            return

    def send(self, component: str) -> None:
        """Send a finding about a component."""
        self._sequence += 1
        finding = fleet_pb2.Finding(
            component=component,
            condition="XidFatal",
            severity=fleet_pb2.SEVERITY_DEGRADED,
            suggested_action=fleet_pb2.SUGGESTED_ACTION_WATCH,
            message=f"bare finding on {component}",
        )
        raised = fleet_pb2.FindingRaised(finding=finding, since=self._stamp())
        record = fleet_pb2.Record(
            sequence=self._sequence, stamp=self._stamp(), finding_raised=raised
        )
        self._outgoing.put(fleet_pb2.AgentMessage(record=record))

    def close(self) -> None:
        """End the stream."""
        self._outgoing.put(None)
        self._answers.cancel()
        self._channel.close()
