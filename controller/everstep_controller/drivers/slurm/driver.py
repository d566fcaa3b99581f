"""Slurm driver: drains claimed nodes with a reason of ours, and takes drains of others as holds.

Nodes are read right before they are changed and right after it; no exit code decides what is so.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.port import Applied, DriverContext, DriverError, DriverView
from everstep_controller.drivers.program import FinishedProgram
from everstep_controller.drivers.slurm.changes import (
    Change,
    ChangeRules,
    change_of,
    grouped,
    is_as_wanted,
    update_line,
    update_words,
)
from everstep_controller.drivers.slurm.commands import SlurmCommands, failure_sentence
from everstep_controller.drivers.slurm.jobs import SlurmJobs
from everstep_controller.drivers.slurm.names import (
    ARGUMENT_BYTES_MAX,
    NodeNames,
    NoteField,
    by_our_names,
    is_one_name,
    node_lists,
)
from everstep_controller.drivers.slurm.nodes import (
    ADDRESSED_FIELDS,
    SINFO_FIELDS,
    SlurmNode,
    decode_shown,
    decode_sinfo,
)
from everstep_controller.drivers.turns import in_turns

_SHARED = "several nodes of Slurm have its name; choose another with drivers.slurm.node_names"
_NO_NODES = "sinfo lists no node at all; type 'sinfo' where the controller runs"
_UNCHANGED = (
    "scontrol named no error, and it is {state} at Slurm with another reason; type 'sinfo -R'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmPolicy:
    """How the driver names, marks and clears nodes, and at which clusters."""

    # Their names; "" is that of slurm.conf.
    clusters: Sequence[str]
    node_names: NodeNames
    note_field: NoteField
    requeue: bool


@dataclass(frozen=True, slots=True)
class _Found:
    """Nodes of one cluster by their names in Everstep, and the names that several have."""

    nodes: Mapping[str, SlurmNode]
    shared: frozenset[str] = frozenset()


class SlurmDriver:
    """Driver of one or several Slurm clusters, through their own programs."""

    def __init__(
        self, commands: SlurmCommands, policy: SlurmPolicy, context: DriverContext
    ) -> None:
        self._commands = commands
        self._policy = policy
        self._context = context
        self._jobs = SlurmJobs(commands)
        # Clusters that let us change nodes, as they said since the start.
        self._permitted: set[str] = set()

    async def read(self) -> DriverView:
        """See IsolationDriver. Raises DriverError, OSError."""
        self._commands.begin_call()
        views = [await self._read(cluster) for cluster in self._policy.clusters]
        return _joined(views)

    async def apply(self, wanted: Sequence[WantedIsolation]) -> Applied:
        """See IsolationDriver. Raises DriverError, OSError."""
        self._commands.begin_call()
        outcomes = [await self._apply(cluster, wanted) for cluster in self._policy.clusters]
        return merged(outcomes, [one.node for one in wanted])

    async def _read(self, cluster: str) -> DriverView:
        if cluster not in self._permitted:
            if refused := await self._commands.refused_rights(cluster):
                raise DriverError(refused)
            self._permitted.add(cluster)
        found = await self._all(cluster)
        view = await _view(found, self._context.cluster_id())
        ours = [found.nodes[name] for name, hold in view.holds.items() if hold.ours]
        work = await self._jobs.on_nodes(cluster, [node.name for node in ours if node.is_busy])
        if self._policy.requeue:
            launching = self._context.launching()
            busy = {node.name for name, node in found.nodes.items() if name in launching}
            await self._jobs.requeue(cluster, work, busy)
        nodes = dict(view.nodes)
        for node in ours:
            here = [job.number for job in work if node.name in job.nodes]
            nodes[self._policy.node_names.of(node)] = node.told(here)
        return DriverView(view.holds, view.down, nodes)

    async def _apply(self, cluster: str, wanted: Sequence[WantedIsolation]) -> Applied:
        names = [one.node for one in wanted]
        before = await self._nodes(cluster, names)
        rules = ChangeRules(self._context.cluster_id(), self._policy.note_field)
        changes = {
            before.nodes[one.node].name: change
            for one in wanted
            if one.node in before.nodes
            and (change := change_of(one, before.nodes[one.node], rules)) is not None
        }
        if not changes:
            return _applied(wanted, before, rules, "")
        said = await self._change(cluster, changes)
        return _applied(wanted, await self._nodes(cluster, names), rules, said)

    async def _change(self, cluster: str, changes: Mapping[str, Change]) -> str:
        """Make changes; return what scontrol said of any that failed."""
        updates = list(update_words(grouped(changes), self._policy.note_field))
        if len(updates) == 1:
            done = [await self._commands.scontrol(cluster, *updates[0])]
        else:
            done = await self._commands.scontrol_lines(cluster, list(map(update_line, updates)))
        return next(filter(None, map(_said, done)), "")

    async def _nodes(self, cluster: str, names: Sequence[str]) -> _Found:
        """Return those nodes of a cluster that have these names in Everstep, as they are now."""
        possible = [name for name in names if is_one_name(name)]
        if self._policy.node_names is not NodeNames.NAME:
            return await self._sinfo(cluster)
        lists = list(node_lists(possible, ARGUMENT_BYTES_MAX))
        found = await self._sinfo(cluster, lists[0] if len(lists) == 1 else ()) if lists else None
        nodes = found.nodes if found is not None else {}
        return _Found({**nodes, **await self._unlisted(cluster, possible, nodes)})

    async def _all(self, cluster: str) -> _Found:
        """Return all nodes of a cluster. One that was held is free only where Slurm says so."""
        found = await self._sinfo(cluster)
        if not (found.nodes or found.shared):
            raise DriverError(_NO_NODES)
        if self._policy.node_names is not NodeNames.NAME:
            return found
        held = [name for name in sorted(self._context.remembered()) if is_one_name(name)]
        unlisted = await self._unlisted(cluster, held, found.nodes)
        return _Found({**found.nodes, **unlisted}, found.shared)

    async def _unlisted(
        self, cluster: str, names: Sequence[str], listed: Collection[str]
    ) -> dict[str, SlurmNode]:
        """Return the nodes that sinfo does not list and scontrol knows: they have no partition."""
        missing = [name for name in names if name not in listed]
        found: dict[str, SlurmNode] = {}
        for part in node_lists(missing, ARGUMENT_BYTES_MAX):
            shown = await self._commands.show(cluster, "nodes", ",".join(part))
            found |= decode_shown(shown, frozenset(part))
        return found

    async def _sinfo(self, cluster: str, names: Sequence[str] = ()) -> _Found:
        """Return the nodes of these names at Slurm; all of a cluster where there are none."""
        separator = f"|{secrets.token_hex(8)}|"
        naming = self._policy.node_names
        grouped = naming is NodeNames.NAME
        fields = SINFO_FIELDS if grouped else ADDRESSED_FIELDS
        # Only nodes of partitions that are hidden need --all.
        words = ["--all", "-h", "-O", ",".join(f"{one}:0{separator}" for one in fields)]
        if names:
            words += ["-n", ",".join(names)]
        text = await self._commands.sinfo(cluster, *words)
        told = in_turns(decode_sinfo(text, separator, fields))
        nodes = {node.name: node async for node in told}
        return _Found(nodes) if grouped else _Found(*by_our_names(nodes.values(), naming))


async def _view(found: _Found, cluster_id: str) -> DriverView:
    view = DriverView(holds := {}, down := {}, nodes := {})
    async for name, node in in_turns(found.nodes.items()):
        nodes[name] = node.told()
        if (hold := node.hold(cluster_id)) is not None:
            holds[name] = hold
        if said := node.lost():
            down[name] = said
    return view


def _joined(views: Iterable[DriverView]) -> DriverView:
    """Return what several clusters say; a node of two of them is withheld where either does."""
    holds: dict[str, Hold] = {}
    joined = DriverView(holds, {}, {})
    for view in views:
        for name, hold in view.holds.items():
            if name not in holds or holds[name].ours:
                holds[name] = hold
        joined = DriverView(holds, {**joined.down, **view.down}, {**joined.nodes, **view.nodes})
    return joined


def _applied(
    wanted: Sequence[WantedIsolation], found: _Found, rules: ChangeRules, said: str
) -> Applied:
    """Return what is so now of each node; ``said``: what scontrol said of changes that failed."""
    now: dict[str, Hold | None] = {}
    failures: dict[str, str] = {}
    for one in wanted:
        node = found.nodes.get(one.node)
        if one.node in found.shared:
            failures[one.node] = _SHARED
        elif node is not None and is_as_wanted(one, node, rules):
            now[one.node] = node.hold(rules.cluster_id)
        elif node is not None:
            failures[one.node] = said or _UNCHANGED.format(state=node.shown_state)
    absent = {one.node for one in wanted if one.node not in now and one.node not in failures}
    return Applied(now, failures, absent)


def _said(done: FinishedProgram) -> str:
    """Return what a scontrol said of changes that failed; of many, the last."""
    return failure_sentence("scontrol", done) if done.code or done.errors.strip() else ""


def merged(outcomes: Sequence[Applied], names: Collection[str]) -> Applied:
    """Return the outcome at all clusters: a node is none of ours where no cluster has it."""
    if len(outcomes) == 1:
        return outcomes[0]
    now: dict[str, Hold | None] = {}
    failures: dict[str, str] = {}
    for outcome in outcomes:
        failures |= outcome.failures
        for name, hold in outcome.now.items():
            before = now.get(name)
            now[name] = hold if before is None or (before.ours and hold is not None) else before
    now = {name: hold for name, hold in now.items() if name not in failures}
    return Applied(now, failures, {name for name in names if name not in now | failures})
