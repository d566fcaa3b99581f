"""Sessions: the open stream of each node, its queue of outgoing messages, and its end."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

import grpc

from everstep_controller.core.vault.copies import Copy
from everstep_controller.runtime.clock import WITNESSES_MAX, Witness
from everstep_controller.telemetry.clock_map import ClockMap
from everstep_proto.generated import fleet_pb2
from everstep_proto.message_sizes import TO_AGENT_BYTES_MAX

logger = logging.getLogger(__name__)


class StreamEnd(Exception):  # noqa: N818 - the end of a stream, whoever is to blame
    """A stream has to end, with this word to its agent."""

    def __init__(self, code: grpc.StatusCode, sentence: str, successor: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        # The address of the controller that takes over, where one does.
        self.successor = successor


class Session:
    """One node's stream. Messages are sent in order, after Welcome; acknowledgements are merged."""

    def __init__(self, node: str, outbox: str, clock: ClockMap) -> None:
        self.node = node
        self.outbox = outbox
        self.clock = clock
        self.peers: tuple[str, ...] | None = None
        # On the controller's timeline.
        self.opened_ns = 0
        self._messages: deque[fleet_pb2.ControllerMessage] = deque()
        self._acknowledge = 0
        self._acknowledged = 0
        # Questions for the node's time that are not answered yet.
        self.asked_ns: set[int] = set()
        # Copies of each job that this stream has reported; later reports refer to them as changes.
        self.copies: dict[str, dict[bytes, Copy]] = {}
        # Jobs whose list of copies could not be used: changes to it cannot be used either.
        self.unusable_copies: set[str] = set()
        # What the controller could not go on with: the message, its user, and what is wrong.
        self.fault = ""
        # What gRPC tells of the other end, and when its certificate ends (Unix time); without TLS
        # it has none.
        self.shown: Callable[[], Mapping[str, Iterable[bytes]]] = dict
        self.until_s = math.inf
        # Serial number of that certificate, and when it begins (Unix time).
        self.serial, self.since_s = "", 0.0
        # Its agent takes lists of revoked certificates.
        self.takes_revoked = False
        # Its agent is to connect anew at once, which is no silence of the node.
        self.renews = False
        self._welcomed = False
        self._wake = asyncio.Event()
        self._end: StreamEnd | None = None

    def welcome(self, message: fleet_pb2.ControllerMessage) -> None:
        """Send Welcome, and after it everything that was sent before."""
        self._messages.appendleft(message)
        self._welcomed = True
        self._wake.set()

    def send(self, message: fleet_pb2.ControllerMessage) -> None:
        """Send a message when its turn comes; one that no agent takes is left out and logged."""
        if (size_bytes := message.ByteSize()) > TO_AGENT_BYTES_MAX:
            kind = message.WhichOneof("body")
            logger.error("%s: a %s of %d bytes is too long to send", self.node, kind, size_bytes)
            return
        self._messages.append(message)
        self._wake.set()

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge all records up to a sequence; the newest acknowledgement stands for all."""
        if sequence > self._acknowledge:
            self._acknowledge = sequence
            self._wake.set()

    def end(self, code: grpc.StatusCode, sentence: str, successor: str = "") -> None:
        """End the stream; the first reason is the one that the agent hears."""
        if self._end is None:
            self._end = StreamEnd(code, sentence, successor)
        self._wake.set()

    def renew(self, sentence: str) -> None:
        """End the stream and have its agent open another one, with what it has and says by now."""
        self.renews = True
        self.end(grpc.StatusCode.ABORTED, sentence)

    @property
    def ending(self) -> bool:
        """Return whether nothing more may be taken from this stream."""
        return self._end is not None

    async def next_messages(self) -> list[fleet_pb2.ControllerMessage]:
        """Wait for messages and return them. Raises StreamEnd when the stream has to end."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._end is not None:
                raise self._end
            if not self._welcomed:
                continue
            messages = list(self._messages)
            self._messages.clear()
            if self._acknowledge > self._acknowledged:
                self._acknowledged = self._acknowledge
                ack = fleet_pb2.Ack(sequence=self._acknowledged)
                messages.append(fleet_pb2.ControllerMessage(ack=ack))
            if messages:
                return messages


class Sessions:
    """The newest stream of every node."""

    def __init__(self) -> None:
        self._by_node: dict[str, Session] = {}
        self._clocks: dict[str, ClockMap] = {}

    def __iter__(self) -> Iterator[Session]:
        """Yield the open sessions."""
        return iter(list(self._by_node.values()))

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._by_node)

    def open(self, node: str, outbox: str) -> Session:
        """Register a stream; one that the node had before ends."""
        before = self._by_node.get(node)
        if before is not None:
            before.end(
                grpc.StatusCode.ABORTED,
                f"{node} opened a newer stream; if no agent was restarted there, two agents have "
                "this name: give one of them another 'node' in its agent.toml",
            )
        session = Session(node, outbox, self.clock(node))
        self._by_node[node] = session
        return session

    def close(self, session: Session) -> bool:
        """Forget a stream; return whether it was the newest of its node."""
        if self._by_node.get(session.node) is not session:
            return False
        del self._by_node[session.node]
        return True

    def of(self, node: str) -> Session | None:
        """Return a node's stream."""
        return self._by_node.get(node)

    def clock(self, node: str) -> ClockMap:
        """Return what is known of a node's clock; it outlives its streams."""
        return self._clocks.setdefault(node, ClockMap())

    def shift_clocks(self, forward_ns: int) -> None:
        """Have the clocks of all nodes stand where they stood, when the timeline goes forward."""
        if forward_ns:
            for clock in self._clocks.values():
                clock.shift(forward_ns)
            for session in self:
                session.asked_ns.clear()

    def witnesses(self, now_ns: int) -> dict[str, Witness]:
        """Return the boot clocks of some nodes on the timeline; of connected ones, if any is."""
        found: dict[str, Witness] = {}
        for node in islice(self._by_node or self._clocks, WITNESSES_MAX):
            clock = self._clocks[node]
            estimate = clock.estimate(now_ns)
            if estimate is not None:
                found[node] = Witness(clock.boot_id, estimate.offset_ns)
        return found

    def send(self, node: str, message: fleet_pb2.ControllerMessage) -> bool:
        """Send to a node; return whether it has a stream."""
        session = self._by_node.get(node)
        if session is not None:
            session.send(message)
        return session is not None

    def end_all(
        self,
        code: grpc.StatusCode,
        sentence: str,
        only: Callable[[str], bool],
        successor: str = "",
    ) -> None:
        """End the streams of some nodes."""
        for session in self:
            if only(session.node):
                session.end(code, sentence, successor)
