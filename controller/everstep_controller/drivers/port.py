"""Isolation driver port: what the controller asks of whatever places work on nodes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from everstep_controller.core.model.isolation import Hold, WantedIsolation


class DriverError(Exception):
    """A call of a driver came to nothing; one sentence why."""


@dataclass(frozen=True, slots=True)
class DriverView:
    """Every node that the scheduler places no work on, whoever asked for it.

    ``down`` are those that it has itself lost sight of, with what it says of each.
    """

    holds: Mapping[str, Hold]
    down: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of an apply: each node's hold now (None: free), or why it is not known.

    ``unmanaged`` are nodes that the scheduler does not have: nothing has failed there, and nothing
    is asked again for the same claims.
    """

    now: Mapping[str, Hold | None]
    failures: Mapping[str, str] = field(default_factory=dict)
    unmanaged: Collection[str] = frozenset()


class IsolationDriver(Protocol):
    """One scheduler. Calls never overlap, and each is cancelled at its deadline.

    Whatever a call raises is told to people as a failure; it is tried again, so both calls are
    idempotent. A hold of somebody else is neither changed nor removed, also when it was made since
    the last reading: the answer shows it instead.
    """

    async def read(self) -> DriverView:
        """Return all holds, with what tells ours from those of others."""
        ...

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """Withhold or free each node as wanted."""
        ...
