"""Prefetching: the memory and the copies that a spare gets ready before it takes a place.

Memory of the size that they would need, and, as soon as a member is silent or left, the copies of
its ranks.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from everstep_common.orders import ShardSource
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.recovery import placement, planning
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_controller.core.vault.recovery_step import pick_step, question_of, reachable_nodes

# The size of a state changes a little from step to step; spares hear of the first one only.
_UNIT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpareNeed:
    """Sizes of the memory that a spare makes: for copies to fetch, and for its ranks' slots."""

    copy_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Copies that a spare fetches, of the ranks whose place it would take."""

    first_rank: int
    sources: tuple[ShardSource, ...]


@dataclass(frozen=True, slots=True)
class SpareOrders:
    """Orders to the spares of one generation; none before the size of its copies is known."""

    memory: SpareNeed | None = None
    # Nodes that wait as spares and hold nothing yet.
    waiting: frozenset[str] = frozenset()
    # What spares fetch already, by their names.
    prefetches: Mapping[str, Prefetch] = field(default_factory=dict)


def spares_of(job: JobRecord) -> frozenset[str]:
    """Return the nodes whose launchers wait while the job runs."""
    if job.state not in ACTIVE:
        return frozenset()
    return frozenset(job.launchers).difference(job.generation.members)


def spare_memory(copies: Iterable[Copy], processes: int) -> SpareNeed:
    """Return the memory that a spare needs for copies like these; it reads all of them."""
    return SpareNeed(copy_bytes_max(copies), processes)


def copy_bytes_max(copies: Iterable[Copy]) -> int:
    """Return the size that no copy exceeds, and a little more; 0 without any."""
    largest = max((copy.size_bytes for copy in copies), default=0)
    return -(-largest // _UNIT_BYTES) * _UNIT_BYTES


def suspects(job: JobRecord, state: State) -> list[str]:
    """Return the members that are silent; none when so many are that it is no fault of theirs."""
    # When a node dies, the collectives of the others fail: as a rule the job stops by then.
    if job.state not in (JobState.STOPPING, *ACTIVE):
        return []
    silent = [name for name in job.generation.members if _suspected(state.nodes[name], state)]
    return silent if len(silent) == 1 or 2 * len(silent) <= len(job.generation.members) else []


def _suspected(node: NodeRecord, state: State) -> bool:
    # Before this controller has heard a node for the first time, its silence is no evidence.
    heard = node.identity.welcomed_term == state.term
    expected = not node.gone and node.state is not NodeState.MAINTENANCE
    return heard and expected and node.missed


def plan_prefetches(
    before: Mapping[str, Prefetch], job: JobRecord, state: State, catalogue: Catalogue
) -> Mapping[str, Prefetch]:
    """Return what spares fetch now, by their names."""
    found = find_prefetches(job, state, catalogue)
    if found or job.state in ACTIVE:
        return found
    # What spares fetch already may be what the plan will want, unless they have left the job.
    return {name: one for name, one in before.items() if name in job.launchers}


def find_prefetches(job: JobRecord, state: State, catalogue: Catalogue) -> dict[str, Prefetch]:
    """Return what spares fetch now, as the plan would have it if the silent members were lost.

    While a job stops, the members that it leaves are known, and the step is nearly: a node with a
    fatal finding, one that is drained, or in maintenance, gives its own copies to its successor.
    While a job trains, its steps go by faster than copies travel: then only silence is looked at.
    """
    silent = suspects(job, state)
    takers = _takers(job, state, silent)
    if not takers:
        return {}
    there = reachable_nodes(state, catalogue)
    for name in silent:
        there.pop(name, None)
    chosen = pick_step(
        catalogue, question_of(restore_point.choose_step(state, job), there)
    ).candidate
    # Copies of older generations are fetched when the plan is made: ranks may have been others
    # then.
    if chosen is None or chosen.generation != job.generation.number or chosen.tier != "memory":
        return {}
    for spare in takers.values():
        there.pop(spare, None)  # what has come already is no reason for another order
    count = job.spec.processes_per_node
    ranks = {name: job.generation.members.place(name) * count for name in takers}
    copies = catalogue.steps(chosen.generation)[chosen.step].ordered()
    held = [one for one in copies if one.node in there and one.tier is Tier.MEMORY]
    return {
        spare: Prefetch(
            ranks[name],
            sources_of((c for c in held if 0 <= c.rank - ranks[name] < count), there),
        )
        for name, spare in takers.items()
    }


def _takers(job: JobRecord, state: State, silent: Collection[str]) -> Mapping[str, str]:
    """Return the spares that would take places, by the members that they take them of."""
    leaving = {*silent, *_left(job, state)}
    if not leaving or not frozenset(job.launchers).difference(job.generation.members):
        return {}
    able = [
        placement.Candidate(node.name, node.spec.domain, planning.distrust(node))
        for node in planning.trusted(state, job)
        if node.name not in silent
    ]
    domains = {name: state.nodes[name].spec.domain for name in job.generation.members}
    placed = placement.place_nodes(
        job.generation.members, domains, able, job.spec.nodes_max, job.spec.replica_nodes
    )
    return {name: spare for name, spare in placed.replaced.items() if name in leaving}


def _left(job: JobRecord, state: State) -> list[str]:
    """Return the members that a job which stops will leave, if it finds others."""
    if job.state is not JobState.STOPPING or job.ending.wanted:
        return []
    known = (state.nodes[name] for name in job.generation.members)
    # A node that is only silent may be a candidate again before the plan is made.
    return [node.name for node in known if node.isolation.claims or node.gone or not node.missed]


def sources_of(copies: Iterable[Copy], there: Mapping[str, str]) -> tuple[ShardSource, ...]:
    """Return copies for an agent, with the addresses of their nodes."""
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
    )
