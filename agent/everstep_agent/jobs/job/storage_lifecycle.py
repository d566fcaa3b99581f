"""Storage lifecycle: a job's storage is opened when its launcher joins, awaited at its end."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import umask_of
from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.peers import LauncherLink
from everstep_agent.jobs.state.facts import StorageAccess
from everstep_agent.jobs.state.job_record import JobRecord
from everstep_agent.jobs.state.plan import Plan, beginning_of
from everstep_agent.jobs.state.records import joined_record
from everstep_agent.storage.job_storage import JobStorage, StorageDeadlines
from everstep_agent.storage.worker_process import JobUser
from everstep_agent.vault.job_vault import JobVault
from everstep_common.launcher_messages import Join, Notice
from everstep_common.reports import Storage

_LOOK_AGAIN_S = 2.0


class StorageLifecycle:
    """The storage of one job, in the life of the job. Event loop only."""

    def __init__(
        self, record: JobRecord, link: LauncherLink, vault: JobVault, context: JobContext
    ) -> None:
        settings = context.settings
        patience = StorageDeadlines(
            settings.storage_stall_timeout_s,
            settings.storage_list_timeout_s,
            settings.storage_unseen_timeout_s,
            settings.storage_workers,
        )
        self.files = JobStorage(vault, context.spawn, context.jitter, patience)
        self.files.persister.notify = self.files.publisher.notify = self._notify
        self.files.on_folder = self._keep_folder
        # Whether the job has ended while its newest step is still being written to storage.
        self.ending = False
        # Whether the controller has not heard yet of the launcher that is here.
        self.unreported = False
        self._record = record
        self._link = link
        self._context = context
        self._job = record.facts.job
        if storage := record.facts.storage.storage:
            self._open(storage, {})
        self._task = context.spawn(self.files.run(), f"storage {self._job}")
        self._looking: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str:
        """Return why what this node has of the job does not reach its storage; "" where it does.

        A node that has nothing to bring there, such as a spare, only looks what is there.
        """
        facts = self._record.facts
        if not self.files.configured:
            return ""
        if facts.ended:
            return self.files.trouble if self.ending else ""
        if facts.active or self.files.pending:
            return self.files.trouble
        return self.files.unseen_reason if self._link.connected else ""

    def join(self, request: Join, peer: Peer) -> None:
        """The launcher joined: report it, and what its storage has, unless it is gone by then."""
        storage = request.storage
        # The credentials are not saved: whoever can read the agent's files must not learn them.
        before = self._record.facts.storage
        # A folder is another one only for a job that begins: while it runs, it was unmounted.
        runs = bool(request.running_generation) and storage == before.storage
        access = StorageAccess(storage, peer.gid, peer.groups, umask_of(peer.pid))
        self._record.use_storage(replace(access, folder_id=before.folder_id if runs else ""))
        if storage is None:
            self._report(request)
            return
        self._open(storage, request.environment)
        if request.running_generation:  # it runs: nobody waits to hear where it could go on from
            self._report(request)
        self._look_anew(None if request.running_generation else request)

    def begin_generation(self, plan: Plan) -> None:
        """Take how a generation begins: whoever looks in storage later learns it from there."""
        self.files.world_size = plan.world_size
        if plan.generation:
            uid = self._record.facts.place.uid
            self.files.begin_generation(beginning_of(plan, self._context.cluster_id(), uid))

    def when_done(self, then: Callable[[], None]) -> None:
        """Go on when everything has reached storage, or has had its time."""
        if not self.files.pending:
            self._context.spawn(self.files.release_workers(), f"end storage of {self._job}")
            then()
        elif not self.ending:
            self.ending = True
            self._context.spawn(self._finish(then), f"store the end of {self._job}")

    def follow_launcher(self, *, unreported: bool) -> None:
        """Use the storage of a launcher that has joined beside the job, and is its own by now."""
        request, storage = self._link.request, self._record.facts.storage.storage
        if storage is None:
            self.unreported = False  # it was told of at once
            if self.files.configured:
                self.files.close()
            return
        self._open(storage, {} if request is None else request.environment)
        self._look_anew(request if unreported else None)

    def close(self) -> None:
        """Forget it."""
        for task in (self._task, self._looking):
            if task is not None:
                task.cancel()

    def _look_anew(self, waits: Join | None) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self.unreported = waits is not None
        self._looking = self._context.spawn(self._look(waits), f"look {self._job}")

    async def _finish(self, then: Callable[[], None]) -> None:
        await self.files.drain(self._context.settings.storage_drain_timeout_s, self._notify)
        self.ending = False
        await self.files.release_workers()
        then()

    async def _look(self, waits: Join | None) -> None:
        """Look what is there; ``waits``: the join that is reported only once that is known."""
        launcher = self._link.peer

        def still() -> bool:
            return self._link.peer is launcher

        await self.files.refresh_steps()
        # A job that began without knowing what it has stored would begin from the beginning.
        while waits is not None and self._must_wait(waits) and still():
            self._notify(
                f"waiting for storage to say what this job has there: {self.files.unseen_reason}"
            )
            await asyncio.sleep(_LOOK_AGAIN_S)
            await self.files.refresh_steps()
        if waits is not None and still():
            self._tell_found(waits)
            self._report(waits, seen=True)
        await self.files.poll_steps(lambda: still() and not self._record.facts.active)

    def _must_wait(self, request: Join) -> bool:
        """Return whether the job must not begin before its storage can be looked at.

        An agent that has no right to look never can: then it begins where nothing is left behind.
        """
        if not self.files.unseen_reason:
            return False
        return not self.files.closed or (request.storage_begun and not request.fresh)

    def _tell_found(self, request: Join) -> None:
        listing = self.files.listing
        if self.files.closed:
            self._notify(
                f"{self.files.unseen_reason}. The job trains without it: its steps are in memory"
                " only, and what is stored is not looked at"
            )
        elif listing is not None and listing.note and not request.fresh:
            self._notify(f"storage: {listing.note}")

    def _keep_folder(self, folder_id: str) -> None:
        access = self._record.facts.storage
        self._record.use_storage(replace(access, folder_id=folder_id))

    def _report(self, request: Join, *, seen: bool = False) -> None:
        self.unreported = False
        what = self.files.listing if seen else None
        self._context.outlet.record(joined_record(request, self._record.facts, what))

    def _notify(self, sentence: str) -> None:
        self._link.send(Notice(sentence))

    def _open(self, storage: Storage, environment: Mapping[str, str]) -> None:
        facts = self._record.facts
        access = facts.storage
        user = JobUser(facts.owner.uid, access.gid, access.groups, access.umask, dict(environment))
        self.files.open(storage, user, access.folder_id)
