"""Devices of nodes: which jobs have ranks there, and whether those of one more job have room.

A rank takes a device. Where a node's devices are known, ranks of several jobs never exceed them.
Where none is known, as on nodes without accelerators, several jobs may be started on one node, but
as a spare it is offered to one job alone. A job may have as many ranks on a node as it likes while
it is alone there.
"""

from collections.abc import Iterable

from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.turn import Turn

# Ranks of its newest generation run, are to start, or may not be gone yet.
OCCUPYING = frozenset({*ACTIVE, JobState.STOPPING, JobState.BACKING_OFF, JobState.REPLANNING})
# Number of nodes that a sentence names.
_NAMED_MAX = 3


def occupants(state: State, node: NodeRecord, job: JobRecord) -> list[JobRecord]:
    """Return the other jobs that have ranks on a node, or a plan with some."""
    if node.jobs.ids == [job.id]:
        return []
    known = (state.jobs.get(job_id) for job_id in node.jobs.ids if job_id != job.id)
    return [
        one
        for one in known
        if one is not None and one.state in OCCUPYING and node.name in one.generation.members
    ]


def has_room(state: State, node: NodeRecord, job: JobRecord) -> bool:
    """Return whether a job may have ranks on a node besides those that others have there."""
    others = occupants(state, node, job)
    if not others:
        return True
    devices = len(node.spec.inventory.accelerators)
    if devices:
        taken = sum(one.spec.processes_per_node for one in others)
        return taken + job.spec.processes_per_node <= devices
    members = job.generation.members
    return not members or node.name in members


def occupied_launchers(state: State, job: JobRecord) -> str:
    """Return on which nodes of a job's launchers others leave no room, as the end of a sentence."""
    nodes = (state.nodes[name] for name in job.launchers)
    full = [node for node in nodes if node.usable and not has_room(state, node, job)]
    if not full:
        return ""
    named = ", ".join(_occupied(state, node, job) for node in full[:_NAMED_MAX])
    more = f" and {len(full) - _NAMED_MAX} more" if len(full) > _NAMED_MAX else ""
    return f"; no room on {named}{more}"


def _occupied(state: State, node: NodeRecord, job: JobRecord) -> str:
    others = occupants(state, node, job)
    names = " and ".join(one.name for one in others)
    taken = sum(one.spec.processes_per_node for one in others)
    devices = len(node.spec.inventory.accelerators)
    share = f"{taken} of {devices} devices are " if devices else ""
    return f"{node.name} ({share}taken by {names})"


def mark_sharing_jobs(turn: Turn, job: JobRecord, names: Iterable[str]) -> None:
    """Have the other jobs of these nodes looked at: there may be more room for them, or less."""
    for name in names:
        node = turn.state.nodes.get(name)
        for job_id in node.jobs.ids if node is not None else ():
            if job_id != job.id:
                turn.mark_job(job_id, moved=True)
