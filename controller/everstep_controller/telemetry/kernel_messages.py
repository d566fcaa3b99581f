"""Kernel messages: the newest of each node, in memory only; agents send them at each connect."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from everstep_common.printable import printable
from everstep_common.reports import KernelMessage, KernelMessages

# Written out, a character may be ten.
_TEXT_MAX = 500
_LEVELS = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")


def kernel_line(message: KernelMessage) -> str:
    """Return a message as it is shown; the wall clock is the node's."""
    at = datetime.fromtimestamp(message.stamp.wall_ns // 1_000_000_000, UTC)
    level = "" if message.level is None else f" {_LEVELS[message.level]}"
    injected = " (written by a process)" if message.injected else ""
    return f"{at:%Y-%m-%d %H:%M:%S}{level}{injected}: {message.text}"


class NewestKernelMessages:
    """Newest messages of each node."""

    def __init__(self) -> None:
        self._by_node: dict[str, Sequence[KernelMessage]] = {}

    def replace(self, node: str, messages: KernelMessages) -> None:
        """Take a node's messages; those before are void."""
        self._by_node[node] = tuple(map(_printable, messages.lines))

    def of(self, node: str) -> Sequence[KernelMessage]:
        """Return a node's messages, oldest first."""
        return self._by_node.get(node, ())


def _printable(message: KernelMessage) -> KernelMessage:
    # Any process of root writes what it likes; on a terminal it must be text and nothing else.
    return replace(message, text=printable(message.text)[:_TEXT_MAX])
