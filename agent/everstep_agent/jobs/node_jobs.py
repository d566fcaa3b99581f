"""The jobs of a node: everything that the rest of the agent needs to know of this package."""

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import ExitStack
from typing import Any

from everstep_agent.jobs.desk import Desk, Household, open_desk
from everstep_agent.jobs.ending import overrule, settle, stop, watch_absence
from everstep_agent.jobs.facts import JobFacts, open_database
from everstep_agent.jobs.hello import job_on_node
from everstep_agent.jobs.identity import is_meant, learn
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.joining import join_again
from everstep_agent.jobs.judging import judge_jobs
from everstep_agent.jobs.kept import EndedJobs
from everstep_agent.jobs.metrics import Counts, JobsMetrics, jobs_metrics, no_metrics
from everstep_agent.jobs.promises import JobPromises
from everstep_agent.jobs.runtime_folder import RuntimeFolder, listen_tcp, listening_unix
from everstep_agent.jobs.server import JobServer
from everstep_agent.jobs.settings import JobsSettings
from everstep_agent.jobs.surroundings import Surroundings
from everstep_agent.outlet import Outlet
from everstep_agent.vault.adoption import adopt, take_over
from everstep_agent.vault.bulk.server import BulkServer
from everstep_agent.vault.job_vault import JobVault
from everstep_common import systemd
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement
from everstep_proto.generated import fleet_pb2


class NodeJobs:
    """Serves launchers and trainers, and keeps their snapshots. Event loop only."""

    def __init__(
        self,
        settings: JobsSettings,
        outlet: Outlet,
        node: str,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self.bulk_address = ""
        self._settings = settings
        self._outlet = outlet
        self._node = node
        self._world = surroundings or Surroundings()
        self._jobs: dict[str, NodeJob] = {}
        self._ended = EndedJobs(self._jobs, settings.memory_kept_s, self.forget_if_over)
        self._group = asyncio.TaskGroup()
        self._desk: Desk | None = None
        self._server: JobServer | None = None

    async def run(self) -> None:
        """Serve until cancelled; ``ready`` is set once launchers can connect. Raises OSError."""
        with ExitStack() as stack:
            folder = RuntimeFolder.open(self._settings.runtime_folder)
            stack.callback(folder.close)
            database = open_database(folder.database())
            stack.callback(database.close)
            household = Household(
                self._settings,
                self._outlet,
                self._node,
                self._world,
                self._spawn,
                self._ended,
                JobPromises(self._jobs),
                stack,
            )
            desk = self._desk = open_desk(household, database)
            async with self._group:
                self._adopt(desk)
                await self._serve(desk, stack)

    # --- what the controller says; only after ``ready`` ------------------------------------------

    def on_order(self, order: fleet_pb2.Order) -> None:
        """Do what the controller orders; its term has been checked."""
        body = order.WhichOneof("body")
        if body == "start_generation":
            start = order.start_generation
            job = self.known_or_new(start.job)
            learn(job, start.job_id)
            job.start(start, order.reason)
        elif body == "stop_generation":
            self._stop(order.stop_generation, order.reason)
        elif body == "end_job":
            self._end(order.end_job, order.reason)
        elif body == "refuse_launcher":
            self._refuse(order.refuse_launcher.job, order.reason)
        elif body == "hold_launcher":
            self._hold(order.hold_launcher, order.reason)
        elif body == "forget_job":
            self._ended.forget(order.forget_job.job)
        elif body == "keep_job":
            self._ended.keep(order.keep_job.job)

    def on_directive(self, directive: fleet_pb2.VaultDirective) -> None:
        """Free and replicate as the controller says."""
        self.known_or_new(directive.job).direct(directive)

    def on_spare_memory(self, wanted: fleet_pb2.SpareMemory) -> None:
        """Have memory ready for a job whose launcher waits here."""
        job = self._jobs.get(wanted.job)
        if job is not None:
            job.waiting.wait(wanted)

    def on_spare_lesson(self, told: fleet_pb2.SpareLesson) -> None:
        """Have the launcher that waits here know what ranks of its job load."""
        job = self._jobs.get(told.job)
        if job is not None:
            job.lessons.heard(told.lesson, job.launcher, job.request)

    def on_connected(self, forgotten: bool) -> None:
        """Tell a controller that just connected what is held here, and who is here if it forgot."""
        for job in self._jobs.values():
            if forgotten:
                join_again(job)
            job.report()

    def on_away(self) -> None:
        """The controller is away: who waits for its word looks again."""
        for job in self._jobs.values():
            job.vault.changed()

    # --- what the agent shows --------------------------------------------------------------------

    def jobs(self) -> list[fleet_pb2.JobOnNode]:
        """Return what Hello tells of each job."""
        return [job_on_node(job) for job in self._jobs.values()]

    def training_pids(self) -> list[int]:
        """Return the training processes that are attached now."""
        return [pid for job in self._jobs.values() for pid in job.attached.values()]

    def metrics(self) -> JobsMetrics:
        """Return the numbers of this moment."""
        if self._desk is None:
            return no_metrics()
        connections = self._server.connections.total() if self._server else 0
        counts = Counts(connections, self._ended.evictions)
        return jobs_metrics(self._jobs.values(), self._desk, counts)

    def judgements(self, open_keys: Collection[FindingKey]) -> list[Judgement]:
        """Judge what goes wrong around the snapshots; what is open of jobs that are gone ends."""
        return judge_jobs(self._jobs, self._desk, open_keys) if self._desk else []

    # --- the jobs by name (server.Jobs) ----------------------------------------------------------

    def known(self, job: str) -> NodeJob | None:
        """See Jobs."""
        return self._jobs.get(job)

    def known_or_new(self, job: str) -> NodeJob:
        """See Jobs."""
        return self._jobs.get(job) or self._add(JobFacts(job))

    def watch_absent(self, job: NodeJob, *, told: bool) -> None:
        """See Jobs."""
        job.absence = self._spawn(self._watch(job, told=told), f"absence {job.facts.job}")

    def forget_if_over(self, job: NodeJob) -> None:
        """See Jobs."""
        empty = not job.vault.holdings.facts()
        if job.launcher is None and job.facts.launcher is None and job.over and empty:
            job.close()
            self._jobs.pop(job.facts.job, None)
            job.desk.skips.forget(job.facts.job)

    def controller_away(self) -> str:
        """See Jobs."""
        return self._world.controller_away()

    # --- inside ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return self._group.create_task(work, name=name)

    def _adopt(self, desk: Desk) -> None:
        fds = self._world.stored_fds
        found = take_over(systemd.stored_fds() if fds is None else fds, desk.site.shelf)
        for facts in desk.store.load():
            job = self._add(facts)
            if facts.launcher is not None:
                self.watch_absent(job, told=False)
            if facts.ended:
                self._ended.reap_later(job)
            self._insist(job, max(facts.stop_ordered, facts.own.stopping), 0.0)
        adopt(found, self._vault, desk.site.shelf)
        for job in self._jobs.values():
            desk.spawn(settle(job, job.facts.stopped), f"settle {job.facts.job}")

    async def _serve(self, desk: Desk, stack: ExitStack) -> None:
        settings = self._settings
        bulk = stack.enter_context(listen_tcp(settings.bulk_host, settings.bulk_port))
        host = settings.bulk_advertise_host or settings.bulk_host
        self.bulk_address = f"{host}:{bulk.getsockname()[1]}"
        listener = stack.enter_context(listening_unix(settings.socket_path))
        self._server = JobServer(desk, self)
        desk.spawn(BulkServer(desk.site, self._vault, desk.spawn).serve(bulk), "bulk listener")
        desk.spawn(self._server.serve(listener), "job socket")
        self.ready.set()

    def _add(self, facts: JobFacts) -> NodeJob:
        assert self._desk is not None, "the jobs of a node are served by run()"
        job = self._jobs[facts.job] = NodeJob(facts, self._desk)
        job.insist = lambda generation: self._insist(job, generation, 0.0)
        return job

    def _vault(self, job: str) -> JobVault | None:
        known = self._jobs.get(job)
        return known.vault if known else None

    def _end(self, end: fleet_pb2.EndJob, reason: str) -> None:
        job = self._jobs.get(end.job)
        if job is None or not is_meant(job.facts, end):
            return
        job.end(end, reason)
        self._ended.reap_later(job)
        self.forget_if_over(job)

    def _stop(self, order: fleet_pb2.StopGeneration, reason: str) -> None:
        job = self.known_or_new(order.job)
        stop(job, order, reason)
        self._insist(job, order.generation, order.grace_ns / 1e9)

    def _insist(self, job: NodeJob, generation: int, grace_s: float) -> None:
        if job.facts.stopped < generation:
            patience_s = grace_s + self._settings.stop_patience_s
            self._spawn(overrule(job, generation, patience_s), f"stop {job.facts.job}")

    async def _watch(self, job: NodeJob, *, told: bool) -> None:
        await watch_absence(job, self._settings.reconnect_grace_s, told=told)
        self.forget_if_over(job)

    def _refuse(self, job: str, reason: str) -> None:
        if refused := self._jobs.get(job):
            refused.refuse(reason)

    def _hold(self, hold: fleet_pb2.HoldLauncher, reason: str) -> None:
        if job := self._jobs.get(hold.job):
            learn(job, hold.job_id)
            job.notice(reason)
