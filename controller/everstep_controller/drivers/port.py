"""Isolation driver port: what the controller asks of whatever places work on nodes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from everstep_controller.core.model.isolation import Hold, WantedIsolation


class DriverError(Exception):
    """A call of a driver came to nothing; one sentence why."""


@dataclass(frozen=True, slots=True)
class DriverContext:
    """What a driver is given when it is made.

    Each of its calls is cancelled after ``call_timeout_s``: what it waits for itself is less.
    ``nodes`` returns the nodes that are its own, by their groups, and those that it still withholds
    for Everstep and that are others' by now: they are freed once. It is asked about no others.
    ``cluster_id`` returns what tells this cluster's marks at a scheduler from those of another.
    ``launching`` returns the nodes on which jobs of Everstep have launchers. ``remembered`` returns
    the holds that its scheduler was last known to have.
    """

    call_timeout_s: float
    nodes: Callable[[], Collection[str]] = frozenset
    cluster_id: Callable[[], str] = str
    launching: Callable[[], Collection[str]] = frozenset
    remembered: Callable[[], Mapping[str, Hold]] = dict


@dataclass(frozen=True, slots=True)
class SchedulerNode:
    """What a scheduler says of one node: its state in the scheduler's words, and what runs there.

    ``labels`` are what its people sort nodes by there: features and partitions, or labels. One that
    has several words, as a node of two partitions, has them with commas between: ``gpu,debug``.
    """

    state: str
    work: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DriverView:
    """Every node that the scheduler places no work on, whoever asked for it.

    ``down`` are those that it has itself lost sight of, with what it says of each. ``nodes`` is
    what it says of each node that it has, for people and for groups (a node may become one of the
    driver's own by its labels); empty from a driver that does not tell.
    """

    holds: Mapping[str, Hold]
    down: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, SchedulerNode] = field(default_factory=dict)


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


@runtime_checkable
class ClosableDriver(Protocol):
    """A driver that does something beside its calls, such as to watch its scheduler."""

    async def close(self) -> None:
        """End that; nothing is asked of the driver afterwards."""
        ...
