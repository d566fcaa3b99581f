"""What joining jobs were promised: from the word to their launcher until their ranks have it."""

from collections.abc import Mapping, Sequence

from everstep_agent.jobs.job import NodeJob
from everstep_agent.vault.memory.quota import Promise


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
    return Promise(job.facts.job, job.facts.uid, needed)
