"""What a spare fetches before it has its place: the copies of the ranks that it would get. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.lineage import ShardSource
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.recovery import placement, planning, restore_point
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.choosing import Question, pick
from everstep_controller.core.vault.copies import Copy, Tier


@dataclass(frozen=True, slots=True)
class Ahead:
    """Copies of the ranks that a spare would get."""

    first_rank: int
    sources: tuple[ShardSource, ...]


def question(action: ChooseRecoveryStep, reachable: Mapping[str, str]) -> Question:
    """Return what the catalogue is asked on behalf of the core."""
    return Question(
        action.branch,
        reachable,
        action.expected,
        action.avoided,
        action.stored,
        action.foreign_generation,
    )


def reachable(state: State) -> dict[str, str]:
    """Return the nodes that answer, and the addresses of their bulk listeners."""
    return {
        name: node.bulk_address
        for name, node in state.nodes.items()
        if node.connected and node.bulk_address and not node.gone
    }


def suspects(record: JobRecord, state: State) -> list[str]:
    """Return the members that are silent; none when so many are that it is no fault of theirs."""
    # When a node dies, the collectives of the others fail: as a rule the job stops by then.
    if record.state not in (JobState.STOPPING, *ACTIVE) or record.done:
        return []
    silent = [name for name in record.members if _suspected(state.nodes[name], state)]
    return silent if len(silent) == 1 or 2 * len(silent) <= len(record.members) else []


def _suspected(node: NodeRecord, state: State) -> bool:
    # Of one that this controller has not heard yet, silence is no evidence.
    heard = node.welcomed_term == state.term
    expected = not node.gone and node.state is not NodeState.MAINTENANCE
    return heard and expected and node.missed


def look_ahead(record: JobRecord, state: State, catalogue: Catalogue) -> dict[str, Ahead]:
    """Return what spares fetch now, as the plan would have it if the silent members were lost.

    While a job stops, the members that it leaves are known, and the step is nearly: a node with a
    fatal finding, one that is drained, or in maintenance, gives its own copies to its successor.
    While a job trains, its steps go by faster than copies travel: then only silence is looked at.
    """
    silent = suspects(record, state)
    takers = _takers(record, state, silent)
    if not takers:
        return {}
    there = reachable(state)
    for name in silent:
        there.pop(name, None)
    chosen = pick(catalogue, question(restore_point.choose_step(state, record), there)).candidate
    # What older generations made is fetched by the plan: ranks may have been others then.
    if chosen is None or chosen.generation != record.generation or chosen.tier != "memory":
        return {}
    for spare in takers.values():
        there.pop(spare, None)  # what has come already is no reason for another order
    count = record.processes_per_node
    ranks = {name: record.members.index(name) * count for name in takers}
    copies = catalogue.steps(chosen.generation)[chosen.step].ordered()
    return {
        spare: Ahead(ranks[name], _sources(copies, range(ranks[name], ranks[name] + count), there))
        for name, spare in takers.items()
    }


def _takers(record: JobRecord, state: State, silent: Collection[str]) -> Mapping[str, str]:
    """Return the spares that would take places, by the members that they take them of."""
    leaving = {*silent, *_left(record, state)}
    if not leaving or not frozenset(record.launchers).difference(record.members):
        return {}
    able = [
        placement.Candidate(node.name, node.domain, planning.distrust(node))
        for node in planning.trusted(state, record)
        if node.name not in silent
    ]
    domains = {name: state.nodes[name].domain for name in record.members}
    seating = placement.seat(record.members, domains, able, record.nodes_max, record.replica_nodes)
    return {name: spare for name, spare in seating.replaced.items() if name in leaving}


def _left(record: JobRecord, state: State) -> list[str]:
    """Return the members that a job which stops will leave, if it finds others."""
    ends = record.done or record.ending or record.closing
    if record.state is not JobState.STOPPING or ends:
        return []
    known = (state.nodes[name] for name in record.members)
    # One that is only not heard may be a candidate again before the plan is made.
    return [node.name for node in known if node.claims or node.gone or not node.missed]


def _sources(
    copies: Sequence[Copy], ranks: range, there: Mapping[str, str]
) -> tuple[ShardSource, ...]:
    return tuple(
        ShardSource(
            copy.node,
            there[copy.node],
            copy.generation,
            copy.rank,
            copy.step,
            copy.root_hash,
            copy.size_bytes,
            copy.layout,
        )
        for copy in copies
        if copy.rank in ranks and copy.node in there and copy.tier is Tier.MEMORY
    )
