"""Stopping of generations on a node, also where a launcher is gone or does not answer."""

import asyncio
import logging

from everstep_agent.ipc.processes import ProcessIdentity, alive, kill, wait_dead
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.records import left_record, stopped_record
from everstep_common import trainer_messages as messages
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)
# A dead process has sent its last; only one that waits for a slot is not heard at once.
_HEAR_OUT_S = 0.1


def stop(job: NodeJob, order: fleet_pb2.StopGeneration, reason: str) -> None:
    """Stop a generation; what is stopped already is said again."""
    generation = order.generation
    job.alone.overruled(generation)
    if generation <= job.facts.stopped:
        job.context.outlet.record(stopped_record(job.facts, generation, job.context.boot_ns()))
        return
    job.facts.stop_ordered = max(job.facts.stop_ordered, generation)
    job.save()
    if job.launcher:
        job.launcher.tell(messages.Stop(generation, order.grace_ns / 1e9, reason))
    elif not job.processes.running():
        job.context.spawn(stopped(job, generation, job.context.boot_ns()), "stopped")


async def stopped(job: NodeJob, generation: int, at_boot_ns: int) -> None:
    """No process of the generation is left: verify what it committed, then say so."""
    await settle(job, generation)
    if job.launcher is not None and not job.reproach and job.alone.go_on(generation):
        return
    job.alone.overruled(generation)
    at_boot_ns = min(at_boot_ns, job.context.boot_ns())
    job.context.outlet.record(stopped_record(job.facts, generation, at_boot_ns))


async def settle(job: NodeJob, generation: int) -> None:
    """Take nothing more of the generation, and report its copies as final."""
    await hear_out(job, generation)
    await job.vault.settle(generation, job.context.settings.settle_timeout_s)
    job.facts.stopped = max(job.facts.stopped, generation)
    if job.facts.plan.generation <= job.facts.stopped:
        job.facts.processes = ()
    job.save()
    job.report()


async def hear_out(job: NodeJob, generation: int, rank: int | None = None) -> None:
    """Take what a rank (None: all of them) had sent before it died, and tell its steps."""
    try:
        async with asyncio.timeout(_HEAR_OUT_S):
            while any(g == generation and rank in (None, r) for g, r in job.attached):
                await job.detached.wait()
    except TimeoutError:
        logger.info("job %s: a rank is gone, its connection is not", job.facts.job)
    job.progress.close()


async def watch_absence(job: NodeJob, grace_s: float, *, told: bool) -> None:
    """Wait until a launcher that is away is gone with all its processes, then say so.

    Cancelled when it comes back. ``told``: the controller knows that it leaves.
    """
    launcher = job.facts.launcher
    reason = await _away_for_good(job, launcher, grace_s) if launcher else "its process ended"
    for process in job.facts.processes:
        await wait_dead(process)
    generation = max(job.facts.plan.generation, job.facts.stop_ordered)
    owes_stop = job.facts.stop_ordered > job.facts.stopped
    if owes_stop:
        await stopped(job, generation, job.context.boot_ns())
    else:
        await settle(job, generation)
    vacate(job)
    if not told:
        job.context.outlet.record(left_record(job.facts, reason, by_user=False))


async def _away_for_good(job: NodeJob, launcher: ProcessIdentity, grace_s: float) -> str:
    while True:
        try:
            async with asyncio.timeout(grace_s):
                await wait_dead(launcher)
            return "its process ended"
        except TimeoutError:
            if not any(alive(process) for process in job.facts.processes):
                return job.reproach or "it closed its connection and did not come back"


async def overrule(job: NodeJob, generation: int, patience_s: float) -> None:
    """Give a launcher time to stop a generation, then kill its ranks in its place.

    It may be stopped itself, or hang on a dead file system: the others must not wait for it.
    """
    await asyncio.sleep(patience_s)
    if job.facts.stopped >= generation or job.facts.launcher is None:
        return
    job.reproach = f"it did not stop generation {generation} within {patience_s:g} s"
    ranks = [process for process in job.facts.processes if alive(process)]
    logger.warning(
        "job %s: the launcher is not counted on: %s; killing its ranks: processes %s",
        job.facts.job,
        job.reproach,
        ", ".join(str(rank.pid) for rank in ranks) or "none",
    )
    job.context.stop_counts.launchers_overruled += 1
    for rank in ranks:
        try:
            kill(rank)
        except PermissionError:
            logger.warning("process %d cannot be killed: the agent needs CAP_KILL", rank.pid)
    for rank in ranks:
        await wait_dead(rank)
    if job.facts.stopped < generation:
        await stopped(job, generation, job.context.boot_ns())
    if job.launcher is not None and job.reproach:
        # If it goes on one day, it has to join anew.
        job.launcher.hang_up()


def release_launcher(job: NodeJob) -> None:
    """The launcher went as it was told: whoever comes next may be another user."""
    facts = job.facts
    job.launcher = None
    facts.launcher = facts.promised = None
    job.stand_by(None)
    if facts.past:  # nothing has come of its job: what is kept is of the one before
        facts.ended, facts.past = True, False
    if job.over:
        vacate(job)
    job.save()


def vacate(job: NodeJob) -> None:
    """Launcher and ranks are gone: the next launcher is checked by the controller alone."""
    facts = job.facts
    facts.launcher, facts.processes, facts.promised = None, (), None
    job.waiting.over()
    job.stand_by(None)
    job.vault.release_idle_memory()
    facts.uid, facts.token_sha256 = -1, ""
    job.save()
