"""Orders to launchers to wait, each with the sentence for their terminals: why, and until when."""

from everstep_controller.core.actions import HoldLauncher
from everstep_controller.core.job_lifecycle import ACTIVE
from everstep_controller.core.kept_out import kept_out
from everstep_controller.core.state import JobRecord, JobState, State
from everstep_controller.core.turn import Turn

_WAITING = (JobState.FORMING, JobState.WAITING_CAPACITY)


def hold(state: State, job: JobRecord, node: str) -> HoldLauncher:
    """Return the order to let a launcher wait."""
    spare = (job.state in ACTIVE or job.state is JobState.STOPPING) and not job.done
    reason = job.reason
    if spare:
        reason = f"waiting as a spare of {job.name} (another job would need another --job name)"
    known = state.nodes.get(node)
    if known is not None and not job.done and not job.closing:
        kept = kept_out(state, known)
        without = f"; {job.name} goes on without it" if kept and spare else ""
        reason = f"{kept}{without}" or reason
    return HoldLauncher(
        id=f"{job.name}/hold/{node}/{job.state.value}",
        node=node,
        reason=reason,
        job=job.name,
        job_id=job.job_id,
    )


def hold_all(turn: Turn, job: JobRecord) -> None:
    """Let every launcher of a job wait."""
    for node, launcher in job.launchers.items():
        launcher.kept = kept_out(turn.state, turn.state.nodes[node])
        turn.actions.append(hold(turn.state, job, node))


def look(turn: Turn) -> None:
    """Tell the launchers that wait on a node when it ceases to take ranks, or takes some again."""
    for name in sorted(turn.nodes_changed):
        node = turn.state.nodes.get(name)
        if node is None or not node.connected:
            continue
        for job in turn.state.jobs.values():
            launcher = job.launchers.get(name)
            if launcher is None or not _waits(job, name):
                continue
            kept = kept_out(turn.state, node)
            if kept != launcher.kept:
                launcher.kept = kept
                turn.actions.append(hold(turn.state, job, name))


def _waits(job: JobRecord, node: str) -> bool:
    return job.state in _WAITING or (job.state is not JobState.ENDED and node not in job.members)
