"""Isolation drivers: the controller keeps ranks off a node by itself; others must be told."""

from typing import Protocol


class Isolator(Protocol):
    """Something that places work on nodes and can be told to leave one alone.

    Both calls are idempotent, and each owner's word is undone only by that owner. A driver for a
    scheduler runs a configured program or client with an argument list, within a deadline.
    """

    name: str

    def isolate(self, node: str, owner: str, reason: str) -> None:
        """Place no work on a node from now on."""
        ...

    def release(self, node: str, owner: str, reason: str) -> None:
        """Forget one owner's isolation of a node."""
        ...


class BuiltInIsolator:
    """Everstep's own placement: the core gives no ranks to a claimed node, so this only records."""

    name = "built-in"

    def __init__(self) -> None:
        self.isolated: dict[str, dict[str, str]] = {}

    def isolate(self, node: str, owner: str, reason: str) -> None:
        """See Isolator."""
        self.isolated.setdefault(node, {})[owner] = reason

    def release(self, node: str, owner: str, reason: str) -> None:
        """See Isolator."""
        del reason
        owners = self.isolated.get(node, {})
        owners.pop(owner, None)
        if not owners:
            self.isolated.pop(node, None)
