"""Guards: nodes that fetch what a job that waits has in the memory of one node only.

While a job trains, its next snapshot is on two nodes again. One that waits makes none, for hours if
no node comes, or if its ranks die of the same again and again: the loss of a second node would cost
all that the first has left on one. Where the job has storage, its newest step is brought there.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import pick_step, question_of, reachable_nodes
from everstep_controller.core.vault.spares import Prefetch, sources_of

_WAITING = (JobState.WAITING_CAPACITY, JobState.BACKING_OFF)
# A node that has not brought what it was to fetch after this time, and this many bytes a second, is
# taken for one that cannot: another one is asked, and after all of them the first one again.
_PATIENCE_NS, _RATE = 60 * 1_000_000_000, 50 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Guards:
    """Nodes that fetch copies for a job that waits."""

    # By node, what it fetches; and since when.
    orders: Mapping[str, Prefetch] = field(default_factory=dict)
    since_ns: Mapping[str, int] = field(default_factory=dict)
    # Nodes that have not brought what they were to.
    tried: frozenset[str] = frozenset()


def find_guards(
    before: Guards, job: JobRecord, state: State, catalogue: Catalogue, now_ns: int
) -> Guards:
    """Return who fetches what while the job waits.

    An order stays as it is while some of it has still to come: what has come is no reason for
    another one.
    """
    waits = job.state in _WAITING and not job.ending.wanted
    if not waits or job.spec.storage is not None:
        return Guards()
    there = reachable_nodes(state, catalogue)
    question = question_of(restore_point.choose_step(state, job), there)
    chosen = pick_step(catalogue, question).candidate
    if chosen is None or chosen.tier != "memory" or chosen.stored is not None:
        return Guards()
    held = catalogue.steps(chosen.generation)[chosen.step].memory
    if held.safe and held.nodes <= there.keys():
        return Guards()
    exposed, able = _exposed(held, there), _able(job, state)
    waiting = {
        guard: order
        for guard, order in before.orders.items()
        if guard in able and _has_still_to_come(order, exposed, chosen.key)
    }
    late = {one for one, order in waiting.items() if _is_late(order, before.since_ns[one], now_ns)}
    tried = before.tried | late
    found = {guard: order for guard, order in waiting.items() if guard not in late}
    guarded = {source.rank for order in found.values() for source in order.sources}
    for holder, copies in sorted(exposed.items()):
        alone = [one for one in copies if one.rank not in guarded]
        others = sorted(able.keys() - {holder})
        if not alone or not others:
            continue
        if tried.issuperset(others):
            tried = tried.difference(others)
            continue  # once more, from the first one on, when this is looked at again
        # Best one that fetches nothing yet, in another failure domain than the holder's.
        best = min(
            (one for one in others if one not in tried),
            key=lambda one: (one in found, able[one] == state.nodes[holder].spec.domain),
        )
        sources = (*(found[best].sources if best in found else ()), *sources_of(alone, there))
        found[best] = Prefetch(min(one.rank for one in sources), sources)
    since_ns = {
        guard: before.since_ns[guard] if order is before.orders.get(guard) else now_ns
        for guard, order in found.items()
    }
    return Guards(found, since_ns, tried)


def _has_still_to_come(
    order: Prefetch, exposed: Mapping[str, Sequence[Copy]], step: StepKey
) -> bool:
    """Return whether some of it is on its one node yet, and all of it where it was."""
    left = {(holder, copy.rank) for holder, copies in exposed.items() for copy in copies}
    same = all((one.generation, one.step) == step for one in order.sources)
    return same and any((one.node, one.rank) in left for one in order.sources)


def _is_late(order: Prefetch, since_ns: int, now_ns: int) -> bool:
    size_bytes = sum(source.size_bytes for source in order.sources)
    return now_ns - since_ns > _PATIENCE_NS + size_bytes * 1_000_000_000 // _RATE


def _able(job: JobRecord, state: State) -> dict[str, str]:
    """Return the nodes whose launchers wait and whose agents can fetch, to their domains."""
    nodes = (state.nodes[name] for name in job.launchers if name in state.nodes)
    return {
        node.name: node.spec.domain
        for node in nodes
        if node.liveness.connected
        and node.spec.bulk_address
        and not (node.unreachable or node.doubtful)
    }


def _exposed(copies: Iterable[Copy], there: Mapping[str, str]) -> dict[str, list[Copy]]:
    """Return by node, in the order of their ranks, copies of the parts that only it can give."""
    of_part: defaultdict[str, dict[str, Copy]] = defaultdict(dict)
    for copy in copies:
        if copy.node in there:
            of_part[copy.part].setdefault(copy.node, copy)
    only: defaultdict[str, list[Copy]] = defaultdict(list)
    for held in of_part.values():
        ((holder, copy), *others) = held.items()
        if not others:
            only[holder].append(copy)
    return {holder: sorted(found, key=lambda one: one.rank) for holder, found in only.items()}
