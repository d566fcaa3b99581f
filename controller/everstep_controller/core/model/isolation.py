"""Isolation at schedulers, as values: holds that were seen, holds that are wanted, and results.

An isolation driver tells a scheduler (Slurm, Kubernetes, a program of the site) to place no work on
a node. Everstep's own placement needs none of this: a node with a claim takes no ranks.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Hold:
    """A scheduler places no work on a node; ``ours``: because Everstep asked it to."""

    reason: str
    ours: bool


@dataclass(frozen=True, slots=True)
class WantedIsolation:
    """Wanted isolation of one node: withheld for its owners, or free of Everstep's hold."""

    node: str
    owners: tuple[str, ...] = ()
    # One sentence of all owners' claims; empty when there are none.
    reason: str = ""
    # The condition for which it is withheld, where a finding is the cause; else "".
    condition: str = ""
    # It was found dead: what runs there will confirm nothing any more.
    dead: bool = False
    # Whether its groups have it cordoned besides, where a driver can do both; None: they say
    # nothing, and the driver's own table does.
    cordon: bool | None = None

    @property
    def withheld(self) -> bool:
        """Whether the scheduler is to place no work there."""
        return bool(self.owners)


@dataclass(frozen=True, slots=True)
class SeenHold:
    """Hold on a node as read at its scheduler; None where the scheduler places work there."""

    node: str
    hold: Hold | None


@dataclass(frozen=True, slots=True)
class IsolationResult:
    """Result of one wanted isolation: the hold as it is now, or why nobody can say.

    ``unmanaged``: the scheduler does not have this node.
    """

    wanted: WantedIsolation
    hold: Hold | None = None
    failure: str = ""
    unmanaged: bool = False


@dataclass(slots=True)
class NodeIsolation:
    """Isolation of one node at one driver; nodes about which nothing is known have none."""

    # What the scheduler does, as it was read or answered last.
    hold: Hold | None = None
    # The sentence with which it was withheld for us; None: it is not.
    applied: str | None = None
    # All that was wanted when that was answered; None where only the scheduler's word is known.
    answered: WantedIsolation | None = None
    # What was asked for and has not been done yet; ``waiting``: it failed and is tried again later.
    asked: WantedIsolation | None = None
    waiting: bool = False
    # Why the newest call did nothing here; empty once it is as it is wanted.
    failure: str = ""
    # Since when it is not as it is wanted, whatever keeps it from being so; 0 while it is.
    differs_since_ns: int = 0
    # The claims in spite of which somebody freed it there: it is not asked for again for these.
    overridden: tuple[str, ...] = ()
    # The claims for which the scheduler was asked, and does not have the node: as above.
    unmanaged: tuple[str, ...] = ()

    @property
    def foreign(self) -> bool:
        """Whether somebody else has the scheduler keep it out."""
        return self.hold is not None and not self.hold.ours


@dataclass(slots=True)
class DriverRecord:
    """Record of one isolation driver: what it was asked, and what it told of its scheduler."""

    name: str
    # Its scheduler was read since this controller started: nothing is applied before that.
    read: bool = False
    # A reading was asked for that has not come yet.
    reading: bool = False
    # Nodes that do not answer the scheduler either, with what it says of each.
    down: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, NodeIsolation] = field(default_factory=dict)
    # What it says of nodes, by the keys that groups select by.
    labels: dict[str, dict[str, str]] = field(default_factory=dict)
    # How often it was asked to apply something.
    calls: int = 0
    # How many calls failed since nothing was left undone, why the newest did, and since when.
    failure: str = ""
    failures: int = 0
    failing_since_ns: int = 0
