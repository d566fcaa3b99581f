"""Guards: nodes that fetch what a job that waits for nodes has in the memory of one node only.

While a job trains, its next snapshot is on two nodes again. One that waits makes none, for hours if
no node comes: the loss of a second node would cost all that the first has left on one. Where the
job has storage, its newest step is brought there instead.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from everstep_common.orders import ShardSource
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.snapshots import StepKey
from everstep_controller.core.model.state import State
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import pick_step, question_of, reachable_nodes
from everstep_controller.core.vault.spares import Prefetch, sources_of


def find_guards(
    before: Mapping[str, Prefetch], job: JobRecord, state: State, catalogue: Catalogue
) -> Mapping[str, Prefetch]:
    """Return what nodes fetch while the job waits, by their names; each for one other node.

    An order stays while it can be followed: what has come of it is no reason for another one.
    """
    waits = job.state is JobState.WAITING_CAPACITY and not job.ending.wanted
    if not waits or job.spec.storage is not None:
        return {}
    there = reachable_nodes(state, catalogue)
    question = question_of(restore_point.choose_step(state, job), there)
    chosen = pick_step(catalogue, question).candidate
    if chosen is None or chosen.tier != "memory" or chosen.stored is not None:
        return {}
    held = catalogue.steps(chosen.generation)[chosen.step].memory
    if held.safe and held.nodes <= there.keys():
        return {}
    able = _able(job, state)
    found = {
        guard: order
        for guard, order in before.items()
        if guard in able and all(_is_there(one, chosen.key, there) for one in order.sources)
    }
    guarded = {source.rank for order in found.values() for source in order.sources}
    for holder, only_there in sorted(_exposed(held, there, guarded).items()):
        free = sorted(able.keys() - found.keys() - {holder})
        # One that is not in the holder's failure domain, where there is any.
        best = min(free, key=lambda one: able[one] == state.nodes[holder].domain, default="")
        if best:
            found[best] = Prefetch(only_there[0].rank, sources_of(only_there, there))
    return found


def _able(job: JobRecord, state: State) -> dict[str, str]:
    """Return the nodes whose launchers wait and whose agents can fetch, to their domains."""
    nodes = (state.nodes[name] for name in job.launchers if name in state.nodes)
    return {
        node.name: node.domain
        for node in nodes
        if node.connected and node.bulk_address and not (node.unreachable or node.doubtful)
    }


def _is_there(source: ShardSource, step: StepKey, there: Mapping[str, str]) -> bool:
    return source.node in there and (source.generation, source.step) == step


def _exposed(
    copies: Iterable[Copy], there: Mapping[str, str], guarded: Collection[int]
) -> dict[str, list[Copy]]:
    """Return by node, in the order of their ranks, copies of the parts that only it can give."""
    of_part: defaultdict[str, dict[str, Copy]] = defaultdict(dict)
    for copy in copies:
        if copy.node in there:
            of_part[copy.part].setdefault(copy.node, copy)
    only: defaultdict[str, list[Copy]] = defaultdict(list)
    for held in of_part.values():
        ((holder, copy), *others) = held.items()
        if not others and copy.rank not in guarded:
            only[holder].append(copy)
    return {holder: sorted(found, key=lambda one: one.rank) for holder, found in only.items()}
