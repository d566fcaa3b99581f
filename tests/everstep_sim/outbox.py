"""Simulated outbox: an agent's records, told in order and at least once, until acknowledged."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from everstep_controller.core import events
from everstep_controller.core.model.node import Origin

# So many acknowledged records an agent may have again whose disk was behind when it ended.
_KEPT = 200
# How many numbers an agent has reserved at most when it ends.
_RESERVED = 1000


class OutboxRecord(NamedTuple):
    """A record and its number; progress has one, too, which its event does not say."""

    sequence: int
    event: events.Event


@dataclass(slots=True)
class Outbox:
    """Records of one agent, oldest first: those on their way on this stream, then the others."""

    node: str
    # Sequences are scoped by it.
    number: int = 1
    sequence: int = 0
    # Newest record but for progress that was acknowledged.
    acknowledged: int = 0
    waiting: deque[OutboxRecord] = field(default_factory=deque)
    _sent: int = 0
    _done: deque[OutboxRecord] = field(default_factory=lambda: deque(maxlen=_KEPT))

    @property
    def id(self) -> str:
        """Return the scope of the sequence numbers."""
        return f"{self.node}/outbox-{self.number}"

    def add(self, node: str, make: Callable[[Origin], events.Event]) -> None:
        """Put a record in, under the name that its node has now."""
        self.sequence += 1
        event = make(Origin(node, self.id, self.sequence))
        self.waiting.append(OutboxRecord(self.sequence, event))

    def next_unsent(self) -> OutboxRecord | None:
        """Return the next record to send; from then on it is on its way."""
        if self._sent >= len(self.waiting):
            return None
        self._sent += 1
        return self.waiting[self._sent - 1]

    def acknowledge(self, sequence: int) -> None:
        """All records up to a sequence are journaled."""
        while self.waiting and self.waiting[0].sequence <= sequence:
            record = self.waiting.popleft()
            self._sent = max(0, self._sent - 1)
            self._done.append(record)
            if isinstance(record.event, events.Reported):
                self.acknowledged = max(self.acknowledged, record.sequence)

    def rewind(self) -> None:
        """Begin a stream: whatever is not acknowledged is sent again."""
        self._sent = 0

    def forget_acknowledgements(self, count: int) -> None:
        """Have the newest acknowledged records again, as if nobody had acknowledged them."""
        for _ in range(min(count, len(self._done))):
            self.waiting.appendleft(self._done.pop())
        self.rewind()

    def lose_tail(self) -> None:
        """Lose what was not written down: no number is given a second time."""
        self.waiting.clear()
        self._done.clear()
        self._sent = 0
        self.sequence += _RESERVED

    def begin_anew(self) -> None:
        """Lose everything: the next records are of another scope."""
        self.lose_tail()
        self.number, self.sequence, self.acknowledged = self.number + 1, 0, 0
