"""How many bulk connections there may be, so that nobody takes the place of others. Pure."""

from collections import Counter

# Connections that have proven the key of a job; each costs a descriptor and a task, and a thread
# while it moves bytes.
CONNECTIONS_MAX = 64
# Before that anybody may have opened them, any process of this node too: those of one host keep out
# no other host. A peer begins at most two streams for each of its ranks at once.
UNPROVEN_MAX = 512
UNPROVEN_OF_HOST_MAX = 32


class Door:
    """Counts the connections."""

    def __init__(self) -> None:
        self._unproven: Counter[str] = Counter()
        self._proven = 0

    def enter(self, host: str) -> bool:
        """Count a connection that has proven nothing yet; False for one too many."""
        if self._unproven.total() >= UNPROVEN_MAX or self._unproven[host] >= UNPROVEN_OF_HOST_MAX:
            return False
        self._unproven[host] += 1
        return True

    def leave(self, host: str) -> None:
        """A connection that had entered has ended, or has proven itself."""
        self._unproven[host] -= 1
        if not self._unproven[host]:
            del self._unproven[host]

    def admit(self) -> bool:
        """Count a connection that has proven itself; False for one too many."""
        if self._proven >= CONNECTIONS_MAX:
            return False
        self._proven += 1
        return True

    def dismiss(self) -> None:
        """A connection that was admitted has ended."""
        self._proven -= 1
