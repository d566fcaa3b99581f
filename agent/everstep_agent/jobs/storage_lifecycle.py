"""Storage lifecycle: a job's storage is opened when its launcher joins, awaited at its end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import umask_of
from everstep_agent.jobs.context import JobContext
from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.records import joined_record
from everstep_agent.storage.job_storage import JobStorage, StorageDeadlines
from everstep_agent.storage.worker_process import JobUser
from everstep_agent.vault.job_vault import JobVault
from everstep_common.trainer_messages import Join, Storage

# A user's credentials for a bucket are many short variables; a hostile list of them ends here.
_ENVIRONMENT_MAX = 64
_LOOK_AGAIN_S = 2.0


class StorageLifecycle:
    """The storage of one job, in the life of the job. Event loop only."""

    def __init__(self, facts: JobFacts, vault: JobVault, context: JobContext) -> None:
        settings = context.settings
        patience = StorageDeadlines(
            settings.storage_stall_timeout_s,
            settings.storage_list_timeout_s,
            settings.storage_workers,
        )
        self.files = JobStorage(vault, context.spawn, context.jitter, patience)
        # It has ended, and its newest step is still on its way.
        self.ending = False
        self._facts = facts
        self._context = context
        if facts.storage is not None:
            self._open(facts.storage)
        self._task = context.spawn(self.files.run(), f"storage {facts.job}")
        self._looking: asyncio.Task[None] | None = None

    def join(
        self, request: Join, peer: Peer, still: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        """A launcher joined: say so, and what its storage has, unless it is gone by then."""
        facts, storage = self._facts, request.storage
        facts.gid, facts.groups, facts.umask = peer.gid, peer.groups, umask_of(peer.pid)
        # Whoever can read the agent's files need not learn a user's credentials.
        facts.storage = replace(storage, environment={}) if storage else None
        if storage is None:
            self._context.outlet.record(joined_record(request, facts))
            return
        self._open(storage)
        if request.running_generation:  # it runs: nobody waits to hear where it could go on from
            self._context.outlet.record(joined_record(request, facts))
        tells = None if request.running_generation else request
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self._context.spawn(self._look(tells, still, tell), f"look {facts.job}")

    def when_done(self, then: Callable[[], None], tell: Callable[[str], None]) -> None:
        """Go on when everything has reached storage, or has had its time."""
        if not self.files.pending:
            self._context.spawn(self.files.release_workers(), f"end storage of {self._facts.job}")
            then()
        elif not self.ending:
            self.ending = True
            self._context.spawn(self._finish(then, tell), f"store the end of {self._facts.job}")

    def busy_for_another(self, uid: int) -> str | None:
        """Return why a user has to wait for what is still done for the one before, or None."""
        if not self.ending or self._facts.owner in (-1, uid):
            return None
        return (
            f"job {self._facts.job} of another user is being brought to storage here; "
            "choose another name with --job"
        )

    def forget(self) -> None:
        """Another user's job has the same name."""
        if self._looking is not None:
            self._looking.cancel()
        self._facts.storage = None
        self.files.close()

    def close(self) -> None:
        """Forget it."""
        for task in (self._task, self._looking):
            if task is not None:
                task.cancel()

    async def _finish(self, then: Callable[[], None], tell: Callable[[str], None]) -> None:
        await self.files.drain(self._context.settings.storage_drain_timeout_s, tell)
        self.ending = False
        await self.files.release_workers()
        then()

    async def _look(
        self, joined: Join | None, still: Callable[[], bool], tell: Callable[[str], None]
    ) -> None:
        await self.files.refresh_steps()
        # A job that began without knowing what it has stored would begin from the beginning.
        while joined is not None and self.files.unseen_reason and still():
            tell(f"waiting for storage to say what this job has there: {self.files.unseen_reason}")
            await asyncio.sleep(_LOOK_AGAIN_S)
            await self.files.refresh_steps()
        if joined is not None and still():
            self._context.outlet.record(joined_record(joined, self._facts, self.files.listing))
        await self.files.poll_steps(lambda: still() and not self._runs())

    def _runs(self) -> bool:
        return self._facts.plan.generation > self._facts.stopped

    def _open(self, storage: Storage) -> None:
        facts = self._facts
        known = dict(list(storage.environment.items())[:_ENVIRONMENT_MAX])
        user = JobUser(facts.owner, facts.gid, facts.groups, facts.umask, known)
        self.files.open(storage, user)
