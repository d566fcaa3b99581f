"""Outbox: what must be journaled goes out at once, and stays here until it is acknowledged.

The promise. A record is sent from memory at once, whether or not it reached the disk. It is kept in
memory until the controller says that it is journaled, and on disk from a few milliseconds after
``record`` returned. So it reaches the controller at least once, in order of its sequence, unless
the agent is killed both before the thread wrote it and before the controller received it; or unless
the outbox overflowed, which drops progress first and a restart of the agent's own never, is
counted, and is a finding. A record that the controller acknowledged is not sent again, except when
the agent dies within a second of the acknowledgement; the controller knows it by outbox and
sequence.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from everstep_agent.persistence.agent_database import RESERVATION, Remembered
from everstep_common import reports
from everstep_common.clock import StampClock
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from everstep_proto.reports import BODIES

# Without the word that a generation was begun here the controller takes a running one for none of
# its own; there are as few of these as restarts that a plan allows.
_NEVER = 3
# A job's end is reported once, and in order; findings again when they change.
_WORTH: Mapping[type, int] = MappingProxyType(
    {
        reports.FindingRaised: 1,
        **dict.fromkeys(reports.JOB_REPORTS, 2),
        reports.StepsCompleted: 0,
        reports.RestartedHere: _NEVER,
    }
)


class RecordStore(Protocol):
    """Store in which records and notes outlive the agent. No call blocks."""

    def put_record(self, sequence: int, payload: bytes) -> None:
        """Keep a record until it is acknowledged."""
        ...

    def acknowledge(self, sequence: int, lasting: int) -> None:
        """Forget the records up to this one; ``lasting``: the newest of them but for progress."""
        ...

    def note(self, key: str, value: str) -> None:
        """Keep a value under a key."""
        ...


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """Counts of the outbox about itself."""

    waiting: int
    recorded: int
    dropped: int


class Outbox:
    """The agent's records in order: sent ones that are not acknowledged, then unsent ones."""

    def __init__(
        self, store: RecordStore, remembered: Remembered, stamp: StampClock, records_max: int
    ) -> None:
        self.name = remembered.outbox
        self._store = store
        self._stamp = stamp
        self._records_max = records_max
        self._sent: deque[fleet_pb2.Record] = deque()
        self._unsent = deque(fleet_pb2.Record.FromString(data) for data in remembered.records)
        self._reserved_through = remembered.reserved_through
        self._next = self._reserved_through - RESERVATION + 1
        # The newest record but for progress that was acknowledged: the controller's word on how far
        # it has this outbox may be a minute old, and is never behind such a record.
        self._acknowledged = remembered.acknowledged
        self._recorded = 0
        self._dropped = 0
        self._wake: Callable[[], None] = lambda: None

    def on_record(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` whenever there is something to send."""
        self._wake = wake

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet."""
        record.sequence = self._next
        record.stamp.CopyFrom(to_wire(self._stamp(), fleet_pb2.Stamp))
        self._next += 1
        self._recorded += 1
        self._reserve()
        self._unsent.append(record)
        self._store.put_record(record.sequence, record.SerializeToString())
        if len(self._sent) + len(self._unsent) > self._records_max:
            self._shed()
        self._wake()

    @property
    def first_unacknowledged(self) -> int:
        """Return the sequence of the oldest record that waits; 0 when none does."""
        oldest = next((queue[0] for queue in (self._sent, self._unsent) if queue), None)
        return oldest.sequence if oldest else 0

    @property
    def counts(self) -> OutboxCounts:
        """Return how much waits, was recorded and was dropped by this process."""
        return OutboxCounts(len(self._sent) + len(self._unsent), self._recorded, self._dropped)

    def rewind(self) -> None:
        """Begin a new stream: everything that is not acknowledged is to be sent again."""
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()

    def pop_unsent(self) -> fleet_pb2.Record | None:
        """Return the next record to send."""
        if not self._unsent:
            return None
        record = self._unsent.popleft()
        self._sent.append(record)
        return record

    def acknowledge(self, sequence: int) -> None:
        """The controller has journaled everything up to ``sequence``."""
        for queue in (self._sent, self._unsent):
            while queue and queue[0].sequence <= sequence:
                done = queue.popleft()
                if _worth(done):
                    self._acknowledged = max(self._acknowledged, done.sequence)
        self._store.acknowledge(sequence, self._acknowledged)

    def welcome(self, acknowledged: int) -> bool:
        """Take the controller's word on what it has of this outbox.

        Return whether it has less than it had acknowledged, progress aside: its journal was
        restored from a backup, and what is gone from here cannot be sent again.

        It can have more than was ever written here: after a data folder was restored from a backup,
        or a disk that took no reservation. Then what waits gets new numbers above, because under
        the old ones it would be taken for a repetition.
        """
        forgotten = acknowledged < self._acknowledged
        # From now on its word counts: it hears once what it has forgotten.
        self._acknowledged = min(self._acknowledged, acknowledged)
        if acknowledged < self._next:
            self.acknowledge(acknowledged)
            return forgotten
        self.rewind()
        self._store.acknowledge(acknowledged, self._acknowledged)
        self._next = acknowledged + 1
        for record in self._unsent:
            record.sequence = self._next
            self._next += 1
            self._store.put_record(record.sequence, record.SerializeToString())
        self._reserve()
        return False

    def _reserve(self) -> None:
        if self._next + RESERVATION // 2 > self._reserved_through:
            self._reserved_through = self._next + RESERVATION
            self._store.note("reserved", str(self._reserved_through))

    def _shed(self) -> None:
        """Drop a quarter of what was not sent, so that it is done seldom: the least worth first."""
        unsent = [record for record in self._unsent if _worth(record) != _NEVER]
        least = sorted(unsent, key=_worth)[: max(1, len(self._unsent) // 4)]
        dropped = {record.sequence for record in least}
        self._dropped += len(dropped)
        kept = [record for record in self._unsent if record.sequence not in dropped]
        self._unsent = deque(kept)


def _worth(record: fleet_pb2.Record) -> int:
    """Return how dear a record is: a later one of its kind makes up for progress, say."""
    kind = BODIES.get(record.WhichOneof("body") or "", reports.FindingRaised)
    return _WORTH.get(kind, _WORTH[reports.FindingRaised])
