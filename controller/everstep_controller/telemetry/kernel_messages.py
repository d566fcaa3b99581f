"""Kernel messages: the newest of each node, in memory only; agents send them at each connect."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from everstep_common.clock import Stamp
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, from_wire

_LINES_MAX = 20
_TEXT_MAX = 500
# The last second that a calendar of four digits has.
_WALL_NS_MAX = 253_402_300_799_000_000_000
_LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")


@dataclass(frozen=True, slots=True)
class KernelMessage:
    """One line of a node's kernel log; the wall clock is the node's, for people only."""

    wall_ns: int
    level: int | None
    text: str
    injected: bool

    def __str__(self) -> str:
        """Return the line as it is shown."""
        at = datetime.fromtimestamp(self.wall_ns // 1_000_000_000, UTC)
        level = "" if self.level is None else f" {_LEVELS[self.level]}"
        injected = " (written by a process)" if self.injected else ""
        return f"{at:%Y-%m-%d %H:%M:%S}{level}{injected}: {self.text}"


def kernel_messages(wire: fleet_pb2.KernelMessages) -> tuple[KernelMessage, ...]:
    """Return the newest of an agent's messages. Raises WireError."""
    return tuple(_message(line) for line in wire.lines[-_LINES_MAX:])


def _message(wire: fleet_pb2.KernelLine) -> KernelMessage:
    stamp = from_wire(Stamp, wire.stamp)
    level = wire.level if wire.HasField("level") else None
    if level is not None and level >= len(_LEVELS):
        raise WireError(f"a kernel message of level {level}; there are {len(_LEVELS)}")
    if not 0 <= stamp.wall_ns <= _WALL_NS_MAX:
        raise WireError("a kernel message from outside of the calendar")
    # Any process of root writes what it likes; on a terminal it must be text and nothing else.
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in wire.text)
    return KernelMessage(stamp.wall_ns, level, text[:_TEXT_MAX], wire.injected)


class KernelMessages:
    """Newest messages of each node."""

    def __init__(self) -> None:
        self._by_node: dict[str, Sequence[KernelMessage]] = {}

    def replace(self, node: str, messages: Sequence[KernelMessage]) -> None:
        """Take a node's messages; those before are void."""
        self._by_node[node] = messages

    def of(self, node: str) -> Sequence[KernelMessage]:
        """Return a node's messages, oldest first."""
        return self._by_node.get(node, ())
