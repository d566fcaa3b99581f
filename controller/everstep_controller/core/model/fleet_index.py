"""Fleet index: nodes by what their records say of them, so that an event looks at no others.

No fact is here: each node is filed by its record and by what holds for all nodes (`FilingBasis`),
and a job by its name. So nothing of it is in a snapshot of the journal, and whoever makes a state
of one has all of it computed.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from everstep_controller.core.model.groups import GroupTable, paths_of
from everstep_controller.core.model.isolation import DriverRecord
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.model.node_findings import precursor_of
from everstep_controller.core.model.policy import NodePolicy
from everstep_controller.core.model.settings import Settings

# What automation takes nothing away from by its claim: it is dead, or somebody works on it.
NOT_WORKING = (NodeState.LOST, NodeState.RETIRED, NodeState.MAINTENANCE)


def keep_listed(names: list[str], name: str, *, listed: bool) -> None:
    """Have a name in an ordered list, or not."""
    at = bisect_left(names, name)
    known = at < len(names) and names[at] == name
    if listed and not known:
        insort(names, name)
    elif known and not listed:
        del names[at]


def domain_scope(domain: str) -> str:
    """Return the key of a failure domain among what has budgets of its own."""
    return f"domain {domain}"


def group_scope(group: str) -> str:
    """Return the same of a group."""
    return f"group {group}"


@dataclass(slots=True)
class NodeGroups:
    """Nodes that have something in common, by what that is: names and keys in order."""

    keys: list[str] = field(default_factory=list)
    # How many nodes are in all groups together.
    total: int = 0
    _nodes: dict[str, list[str]] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        """Return whether there is any node of a key."""
        return key in self._nodes

    def __iter__(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield each key and the nodes of it, in order."""
        return ((key, self._nodes[key]) for key in self.keys)

    def of(self, key: str) -> Sequence[str]:
        """Return the nodes of a key."""
        return self._nodes.get(key, ())

    def move(self, name: str, before: str | None, now: str | None) -> None:
        """Have a node in the group of another key than it was; None: in no group."""
        if before is not None:
            self._take_out(name, before)
        if now is not None:
            self._put(name, now)

    def _put(self, name: str, key: str) -> None:
        names = self._nodes.get(key)
        if names is None:
            keep_listed(self.keys, key, listed=True)
            names = self._nodes[key] = []
        insort(names, name)
        self.total += 1

    def _take_out(self, name: str, key: str) -> None:
        names = self._nodes[key]
        keep_listed(names, name, listed=False)
        self.total -= 1
        if not names:
            del self._nodes[key]
            keep_listed(self.keys, key, listed=False)


class NodeKeys(NamedTuple):
    """In which group of each kind a node is; None: in none."""

    heard: str | None = None
    expected: str | None = None
    present: str | None = None
    machines: str | None = None


class NodeFlags(NamedTuple):
    """In which lists a node is."""

    silent: bool = False
    held: bool = False
    presumed_lost: bool = False
    on_its_machine: bool = False
    flapping: bool = False
    draining: bool = False
    deferred: bool = False
    isolated: bool = False
    returned: bool = False
    doubtful: bool = False
    precursors: bool = False


class NodeEntry(NamedTuple):
    """Where a node is filed."""

    keys: NodeKeys = NodeKeys()
    flags: NodeFlags = NodeFlags()
    # Names of its groups, in order.
    groups: tuple[str, ...] = ()
    # What has budgets of isolations of its own that the node is in: domains, and groups.
    scopes: tuple[str, ...] = ()


class FilingBasis(NamedTuple):
    """What nodes are filed by besides their own records."""

    settings: Settings = Settings()
    # The controller's machine, and its cluster.
    machine: str = ""
    cluster: str = ""
    groups: GroupTable = GroupTable()
    drivers: Mapping[str, DriverRecord] = {}

    def groups_of(self, node: str, domain: str) -> tuple[str, ...]:
        """Return the names of a node's groups, in order."""
        told = (record.labels.get(node, {}).items() for record in self.drivers.values())
        return self.groups.names_of(node, domain, (label for labels in told for label in labels))

    def policy_of(self, node: str, groups: Iterable[str]) -> NodePolicy:
        """Return what operators have set for a node of these groups."""
        named = tuple((name, self.groups.groups[name]) for name in groups)
        return NodePolicy(node, self.settings, self.cluster, named)


_NOWHERE = NodeEntry()


@dataclass(slots=True)
class FleetIndex:
    """Index of a state: each list and group in the order of names."""

    # By domain: nodes whose streams are open and that all peers hear; those from which something is
    # expected; and those that can be watched. And by the machine that their agents name.
    heard: NodeGroups = field(default_factory=NodeGroups)
    expected: NodeGroups = field(default_factory=NodeGroups)
    present: NodeGroups = field(default_factory=NodeGroups)
    machines: NodeGroups = field(default_factory=NodeGroups)
    # Nodes from which something is expected and that are silent; those of them that this controller
    # does not take for lost by its own word; and lost ones of which nobody else has said so.
    silent: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    presumed_lost: list[str] = field(default_factory=list)
    # Nodes whose agents run on the controller's machine.
    on_its_machine: list[str] = field(default_factory=list)
    # Nodes whose streams end again and again.
    flapping: list[str] = field(default_factory=list)
    # Nodes that are drained; that automation was not allowed to isolate; that are alive and claimed
    # by it; and those of the latter that got this claim when they were dead.
    draining: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    isolated: list[str] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    # Nodes whose agents are away or hang, so that nothing new is given to them.
    doubtful: list[str] = field(default_factory=list)
    # Nodes with a finding that foretells a failure.
    precursors: list[str] = field(default_factory=list)
    # By what has budgets of its own: how many nodes it has, and how many of the isolated and of the
    # returned; none that has none.
    members_in: dict[str, int] = field(default_factory=dict)
    isolated_in: dict[str, int] = field(default_factory=dict)
    returned_in: dict[str, int] = field(default_factory=dict)
    # Ids of all jobs that are kept of each name, in the order in which they came.
    ids_of_name: dict[str, list[str]] = field(default_factory=dict)
    # Where each node is filed now.
    _filed: dict[str, NodeEntry] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        nodes: Iterable[NodeRecord],
        jobs: Iterable[JobRecord],
        basis: FilingBasis,
    ) -> Self:
        """Return the index of all nodes and jobs."""
        made = cls()
        for node in nodes:
            made.refresh(node, basis)
        for job in jobs:
            made.add_job(job)
        return made

    def is_isolated(self, name: str) -> bool:
        """Return whether a node counts as isolated by automation."""
        return self._filed.get(name, _NOWHERE).flags.isolated

    def is_away(self, name: str) -> bool:
        """Return whether a node is silent, and not held."""
        flags = self._filed.get(name, _NOWHERE).flags
        return flags.silent and not flags.held

    def is_expected(self, name: str) -> bool:
        """Return whether something is expected from a node."""
        return self._filed.get(name, _NOWHERE).keys.expected is not None

    def groups_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the groups that a node is in, in order."""
        return self._filed.get(name, _NOWHERE).groups

    def scopes_of(self, name: str) -> tuple[str, ...]:
        """Return what has budgets of its own that a node is in."""
        return self._filed.get(name, _NOWHERE).scopes

    def refresh(self, node: NodeRecord, basis: FilingBasis) -> None:
        """File a node as its record is now."""
        self._file(node.name, _entry_of(node, basis))

    def forget(self, name: str) -> None:
        """Have a node nowhere: it was removed."""
        self._file(name, _NOWHERE)
        self._filed.pop(name, None)

    def add_job(self, job: JobRecord) -> None:
        """List a new job under its name."""
        self.ids_of_name.setdefault(job.name, []).append(job.id)

    def remove_job(self, job: JobRecord) -> None:
        """List a job under its name no more."""
        ids = self.ids_of_name[job.name]
        ids.remove(job.id)
        if not ids:
            del self.ids_of_name[job.name]

    def _file(self, name: str, entry: NodeEntry) -> None:
        before = self._filed.get(name, _NOWHERE)
        self._filed[name] = entry
        if entry == before:
            return
        for kind, old_key, key in zip(NodeKeys._fields, before.keys, entry.keys, strict=True):
            if old_key != key:
                groups: NodeGroups = getattr(self, kind)
                groups.move(name, old_key, key)
        self._count(before, -1)
        self._count(entry, 1)
        if entry.flags == before.flags:
            return  # so it is with nearly all nodes when a state is loaded
        for kind, was, listed in zip(NodeFlags._fields, before.flags, entry.flags, strict=True):
            if was != listed:
                keep_listed(getattr(self, kind), name, listed=listed)

    def _count(self, entry: NodeEntry, by: int) -> None:
        """Count a node in what it is in that has budgets of its own, or count it no more."""
        for scope in entry.scopes:
            _add(self.members_in, scope, by)
            if entry.flags.isolated:
                _add(self.isolated_in, scope, by)
            if entry.flags.returned:
                _add(self.returned_in, scope, by)


def _add(counts: dict[str, int], key: str, by: int) -> None:
    counts[key] = counts.get(key, 0) + by
    if not counts[key]:
        del counts[key]


def _entry_of(node: NodeRecord, basis: FilingBasis) -> NodeEntry:
    """Return where a node belongs, by its record."""
    machine, groups = basis.machine, basis.groups_of(node.name, node.spec.domain)
    gone, domain, silence = node.gone, node.spec.domain, node.liveness.silence
    heard = node.liveness.connected and not node.liveness.silent_to and not node.doubtful
    expected = not gone and node.state is not NodeState.MAINTENANCE
    claim = node.claim_of(AUTOMATION) if node.isolation.claims else None  # most nodes have none
    isolated = claim is not None and node.state not in NOT_WORKING
    return NodeEntry(
        NodeKeys(
            heard=domain if heard else None,
            expected=domain if expected else None,
            present=domain if not gone and node.spec.liveness_address else None,
            machines=node.spec.machine or None,
        ),
        NodeFlags(
            silent=expected and bool(node.liveness.silent_since_ns),
            held=expected and bool(silence.held),
            presumed_lost=node.state is NodeState.LOST and not node.liveness.lost_by,
            on_its_machine=bool(machine) and node.spec.machine == machine,
            flapping=bool(node.streams.flaps_since_ns),
            draining=node.draining,
            deferred=bool(node.isolation.deferred),
            isolated=isolated,
            returned=isolated and claim is not None and claim.dead,
            doubtful=node.doubtful,
            precursors=bool(node.health.findings)
            and precursor_of(basis.policy_of(node.name, groups), node) is not None,
        ),
        groups,
        (*map(domain_scope, paths_of(domain)), *map(group_scope, groups)),
    )
