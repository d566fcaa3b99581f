"""Retention: what jobs that have ended keep on this node, and what joining jobs were promised."""

import asyncio
from collections.abc import Callable, Collection, Sequence

from everstep_agent.jobs.job.job_table import JobTable
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.vault.memory.capacity import MemoryUse
from everstep_agent.vault.memory.quota import Promise

_LOOK_AGAIN_S = 0.2


class EndedJobs:
    """The memory of jobs that have ended (EvictableMemory of the allocator)."""

    def __init__(
        self, jobs: JobTable, kept_s: float, forget_if_over: Callable[[NodeJob], None]
    ) -> None:
        self._jobs = jobs
        self._kept_s = kept_s
        self._forget_if_over = forget_if_over
        self.evictions = 0

    def reap_later(self, job: NodeJob) -> None:
        """Give back what the job holds: at once after success, else when its time is over."""
        kept_s = self._kept_s if job.facts.ending.leaves_state else 0.0
        asyncio.get_running_loop().call_later(kept_s, self._reap_due, job, job.facts.job_id)

    def _reap_due(self, job: NodeJob, job_id: str) -> None:
        if job.facts.job_id != job_id:
            return  # another job has gone on from it, and its end counts
        if job.facts.ended and self._jobs.is_awaited(job):
            self.reap_later(job)  # the controller has not said yet that this launcher goes on
        self.reap(job)

    def reap(self, job: NodeJob) -> bool:
        """Give back what the job holds, if it is over; False when there was nothing."""
        if not self._reapable(job) or not job.vault.holdings.size_bytes:
            return False
        job.vault.close()
        self._forget_if_over(job)
        return True

    def _reapable(self, job: NodeJob) -> bool:
        return job.facts.ended and not job.storage.ending and not self._jobs.is_awaited(job)

    def forget(self, job: NodeJob) -> None:
        """Give back at once what is kept for a job, as its user or an operator wants.

        One that runs goes on; one that has not begun goes on from nothing.
        """
        if job.facts.ended:
            self._reap_when_stored(job)
        elif not job.facts.plan.generation:
            job.leave_state()
            self._forget_if_over(job)

    def _reap_when_stored(self, job: NodeJob) -> None:
        # The job's last step is being written from this memory to storage, which has a deadline.
        if job.storage.ending:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._reap_when_stored, job)
        elif job.facts.ended:
            job.vault.close()
            self._forget_if_over(job)

    def evict(self, spared: Collection[str] = ()) -> bool:
        """See EvictableMemory."""
        vaults = [job.vault for job in self._jobs if job.facts.job not in spared]
        if any(
            one.receive_buffers.release_idle() or one.preallocated_slots.release() for one in vaults
        ):
            return True
        freed = any(self.reap(job) for job in self._jobs)
        self.evictions += freed
        return freed

    def evictable(self, uid: int, spared: Collection[str] = ()) -> MemoryUse:
        """See EvictableMemory."""
        vaults = [job.vault for job in self._jobs if job.facts.job not in spared]
        ended = [job.vault for job in self._jobs if self._reapable(job)]
        sizes = [(vault.uid == uid, vault.holdings.size_bytes) for vault in ended]
        sizes += [(vault.uid == uid, vault.receive_buffers.idle_bytes) for vault in vaults]
        sizes += [(vault.uid == uid, vault.preallocated_slots.idle_bytes) for vault in vaults]
        return MemoryUse(sum(size for _, size in sizes), sum(size for own, size in sizes if own))


class JobPromises:
    """The promises of the jobs of a node (Promises of the allocator).

    A promise is one of a job's facts, so it outlives the agent, and goes with whatever ends it.
    """

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs

    def standing(self) -> Sequence[Promise]:
        """See Promises."""
        found = (_standing(job) for job in self._jobs)
        return [one for one in found if one is not None]


def _standing(job: NodeJob) -> Promise | None:
    forecast = job.facts.promised
    if forecast is None:
        return None
    needed = forecast.total_bytes(job.vault.holdings.slot_bytes_by_rank())
    return Promise(job.facts.job, job.facts.place.uid, needed)
