"""Partners of a pair test: which nodes are a measure for another one, and where no ranks are."""

import heapq
from collections.abc import Iterable, Iterator

from everstep_controller.core.jobs import devices
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.pair_test import PairOutcome
from everstep_controller.core.model.state import State

# With two partners it shows which of the three is another one.
PARTNERS = 2
# Ranks of a job may be there.
_OCCUPYING = frozenset({*devices.OCCUPYING, JobState.CLOSING})


def choose_partners(
    state: State, node: NodeRecord, offered: Iterable[NodeRecord], job: JobRecord | None
) -> Iterator[NodeRecord]:
    """Yield the best partners: behind the same leaf, then members of the same job, then any."""
    members = frozenset(job.generation.members) if job is not None else frozenset()
    good = {one.name: one for one in offered if _is_good(state, node, one, job)}
    names = heapq.nsmallest(
        PARTNERS,
        good,
        key=lambda name: (good[name].spec.domain != node.spec.domain, name not in members, name),
    )
    return (good[name] for name in names)


def _is_good(state: State, node: NodeRecord, other: NodeRecord, job: JobRecord | None) -> bool:
    """Return whether nothing speaks against another node as a measure for one."""
    return (
        other.name != node.name
        and other.state is NodeState.HEALTHY
        and other.usable
        and not other.missed
        and not (other.pair.nominated_ns or takes_part(state, other))
        and (other.pair.result is None or other.pair.result.outcome is not PairOutcome.SLOW)
        and hardware(other) == hardware(node)
        and not why_occupied(state, other, job)
    )


def takes_part(state: State, node: NodeRecord) -> bool:
    """Return whether a node is being tested, or does work beside one that is."""
    subject = state.nodes.get(node.pair.partner_of)
    running = subject.pair.running if subject is not None else None
    beside = running is not None and node.name in running.partners
    return beside or node.pair.running is not None


def hardware(node: NodeRecord) -> tuple[object, ...]:
    """Return what must be equal for work to take as long."""
    had = node.spec.inventory
    return had.cpu_model, had.cpu_count, sorted(one.name for one in had.accelerators)


def why_absent(node: NodeRecord) -> str:
    """Return that a node's agent cannot be asked; "" where it can."""
    return (
        "" if node.liveness.connected and not node.unreachable else f"{node.name} is not connected"
    )


def why_occupied(state: State, node: NodeRecord, between: JobRecord | None) -> str:
    """Return whose ranks are on a node, or may be; those of a job between generations are not."""
    for job in (state.jobs[job_id] for job_id in node.jobs.ids if job_id in state.jobs):
        launcher = job.launchers.get(node.name)
        if launcher is not None and launcher.stale_generation:
            return f"{node.name} has still to stop an older generation of {job.name}"
        has_ranks = job.state in _OCCUPYING and node.name in job.generation.members
        if has_ranks and (job is not between or node.name not in job.generation.stopped):
            drain = f"'everstep drain {node.name} --reason TEXT' moves them at a step boundary"
            return f"ranks of {job.name} run on {node.name}, and no job is stopped for it; {drain}"
    return ""


def no_partner(state: State, node: NodeRecord) -> str:
    """Return why a node has no partner, and what makes one."""
    alike = [one for one in state.nodes.values() if one is not node]
    alike = [one for one in alike if hardware(one) == hardware(node)]
    none = f"{node.name} has no partner"
    if not alike:
        return f"{none}: no other node has its accelerators and processors"
    free = [one for one in alike if not (why_occupied(state, one, None) or why_absent(one))]
    if free:
        # Named by an operator, it need not be healthy.
        name = free[0].name
        how = f"'everstep check {node.name} --pair {name}'"
        return f"{none} that is healthy and free; to take one all the same: {how}"
    name = alike[0].name
    return (
        f"{none}: ranks run on all {len(alike)} nodes like it, or they are not connected; "
        f"'everstep drain {name} --reason TEXT' frees one at a step boundary"
    )
