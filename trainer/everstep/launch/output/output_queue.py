"""Output queue of one reader: written at once, buffered while nobody reads, never blocking."""

from collections import deque

from everstep.launch.output.overflow import Overflow
from everstep.launch.output.sink import Sink

# As much as a person who stopped the terminal wants to see when it goes on; more goes to a file.
KEPT_BYTES_MAX = 8 * 1024 * 1024


class OutputQueue:
    """Output that one reader is to get, in order."""

    def __init__(self, sink: Sink, overflow: Overflow) -> None:
        self.sink = sink
        self.overflow = overflow
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        # What went to the file since the reader stopped reading.
        self.unseen_bytes = 0
        # Its reader went away: everything goes to the file.
        self.gone = False

    @property
    def waiting(self) -> bool:
        """Return whether there is something that its reader has not taken."""
        return bool(self._waiting)

    @property
    def overflowing(self) -> bool:
        """Return whether what comes now goes to the file."""
        return self.gone or self.unseen_bytes > 0

    def put(self, data: bytes) -> None:
        """Take output; what the reader does not take at once waits."""
        if self.overflowing or self._waiting_bytes + len(data) > KEPT_BYTES_MAX:
            self.overflow.write(data)
            self.unseen_bytes += len(data)
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if len(self._waiting) == 1:
            self.advance()

    def advance(self) -> int:
        """Write what the reader takes now.

        Returns how many bytes went to the file before, once when all that waited is written.
        """
        try:
            while self._waiting:
                data = self._waiting[0]
                count = self.sink.write(data)
                self._waiting_bytes -= count
                if count == len(data):
                    self._waiting.popleft()
                else:
                    self._waiting[0] = data[count:]
        except BlockingIOError:
            return 0
        except (OSError, ValueError):
            self.give_up()
            return 0
        unseen, self.unseen_bytes = self.unseen_bytes, 0
        return unseen

    def give_up(self) -> None:
        """Nobody will read this any more: keep all of it in the file."""
        self.gone = True
        for data in self._waiting:
            self.overflow.write(data)
            self.unseen_bytes += len(data)
        self._waiting.clear()
        self._waiting_bytes = 0
