"""Retention: what jobs that have ended keep on this node, and what joining jobs were promised."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.vault.memory.capacity import MemoryUse
from everstep_agent.vault.memory.quota import Promise

_LOOK_AGAIN_S = 0.2


class EndedJobs:
    """The memory of jobs that have ended (EvictableMemory of the allocator)."""

    def __init__(
        self, jobs: Mapping[str, NodeJob], kept_s: float, forget_if_over: Callable[[NodeJob], None]
    ) -> None:
        self._jobs = jobs
        self._kept_s = kept_s
        self._forget_if_over = forget_if_over
        self.evictions = 0

    def reap_later(self, job: NodeJob) -> None:
        """Give back what the job holds: at once after success, else when its time is over."""
        kept_s = self._kept_s if job.facts.ending.leaves_state else 0.0
        asyncio.get_running_loop().call_later(kept_s, self._reap_due, job)

    def _reap_due(self, job: NodeJob) -> None:
        if job.facts.superseded:
            # The launcher of a next job of this name has joined, but that job has not started and
            # may never do so.
            self.reap_later(job)
        self.reap(job)

    def reap(self, job: NodeJob) -> bool:
        """Give back what the job holds, if it is over; False when there was nothing."""
        if not _reapable(job) or not job.vault.holdings.size_bytes:
            return False
        job.vault.close()
        self._forget_if_over(job)
        return True

    def keep(self, job: str) -> None:
        """Keep what there is of a job that has ended until the next one of its name ends."""
        known = self._jobs.get(job)
        if known is not None and known.facts.ended:
            known.record.keep_for_next(True)

    def forget(self, job: str) -> None:
        """Give back at once what a job keeps, as an operator wants; one that runs goes on."""
        known = self._jobs.get(job)
        if known is not None:
            known.record.keep_for_next(False)
            self._reap_when_stored(known)

    def _reap_when_stored(self, job: NodeJob) -> None:
        # The job's last step is being written from this memory to storage, which has a deadline.
        if job.storage.ending:
            asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._reap_when_stored, job)
        else:
            self.reap(job)

    def evict(self, spared: Collection[str] = ()) -> bool:
        """See EvictableMemory."""
        vaults = [job.vault for name, job in self._jobs.items() if name not in spared]
        if any(
            one.receive_buffers.release_idle() or one.preallocated_slots.release() for one in vaults
        ):
            return True
        freed = any(self.reap(job) for job in list(self._jobs.values()))
        self.evictions += freed
        return freed

    def evictable(self, uid: int, spared: Collection[str] = ()) -> MemoryUse:
        """See EvictableMemory."""
        vaults = [job.vault for name, job in self._jobs.items() if name not in spared]
        ended = [job.vault for job in self._jobs.values() if _reapable(job)]
        sizes = [(vault.uid == uid, vault.holdings.size_bytes) for vault in ended]
        sizes += [(vault.uid == uid, vault.receive_buffers.idle_bytes) for vault in vaults]
        sizes += [(vault.uid == uid, vault.preallocated_slots.idle_bytes) for vault in vaults]
        return MemoryUse(sum(size for _, size in sizes), sum(size for own, size in sizes if own))


def _reapable(job: NodeJob) -> bool:
    facts = job.facts
    return facts.ended and not facts.ending.wanted and not job.storage.ending


class JobPromises:
    """The promises of the jobs of a node (Promises of the allocator).

    A promise is one of a job's facts, so it outlives the agent, and goes with whatever ends it.
    """

    def __init__(self, jobs: Mapping[str, NodeJob]) -> None:
        self._jobs = jobs

    def standing(self) -> Sequence[Promise]:
        """See Promises."""
        found = (_standing(job) for job in self._jobs.values())
        return [one for one in found if one is not None]


def _standing(job: NodeJob) -> Promise | None:
    forecast = job.facts.promised
    if forecast is None:
        return None
    needed = forecast.total_bytes(job.vault.holdings.slot_bytes_by_rank())
    return Promise(job.facts.job, job.facts.place.uid, needed)
