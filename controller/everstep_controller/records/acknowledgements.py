"""Acknowledgements of an outbox: how far its records are journaled, and which came twice."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class OutboxAcks:
    """The records of one outbox between their arrival and the journal. Sequences only grow."""

    # All records up to here are journaled.
    journaled: int = 0
    _accepted: int = 0
    _held: set[int] = field(default_factory=set)
    _in_flight: int = 0

    def __post_init__(self) -> None:
        self._accepted = self.journaled

    def accept(self, sequence: int) -> bool:
        """Return whether a record is new; it is held until it is submitted."""
        if sequence <= self._accepted:
            return False
        self._accepted = sequence
        self._held.add(sequence)
        return True

    @property
    def in_flight(self) -> int:
        """Return how many events of this outbox the journal has been handed and not answered."""
        return self._in_flight

    def submit(self, sequences: Iterable[int]) -> int:
        """Hand records to the journal; return how far the outbox is journaled once these are."""
        self._held.difference_update(sequences)
        self._in_flight += 1
        return self._mark()

    def done(self, mark: int) -> int:
        """Records up to ``mark`` are journaled; return what may be acknowledged now."""
        self._in_flight -= 1
        self.journaled = max(self.journaled, mark)
        return self.journaled

    def failed(self) -> None:
        """Some record could not be journaled: the agent has to send again from there on."""
        self._in_flight -= 1
        self._held.clear()
        self._accepted = self.journaled

    def _mark(self) -> int:
        return min(self._held) - 1 if self._held else self._accepted
