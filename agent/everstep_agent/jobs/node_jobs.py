"""Node jobs: all jobs of a node, as the one interface of this package to the rest of the agent."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import ExitStack
from typing import Any

from everstep_agent.detectors.agent import judge_runtime_folder
from everstep_agent.detectors.host.unkillable_ranks import HELD, judge_held
from everstep_agent.detectors.persistence import FAILING, judge_storage
from everstep_agent.detectors.snapshot_skips import SKIPPED, job_key
from everstep_agent.ipc.listeners import listen_tcp, listening_unix
from everstep_agent.jobs.job.context import (
    ContextParts,
    Environment,
    JobContext,
    Outlet,
    open_context,
)
from everstep_agent.jobs.job.inspection import Wanted
from everstep_agent.jobs.job.job_table import JobTable
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.job.output import PastOutput
from everstep_agent.jobs.metrics import JobsMetrics, ServerCounts, jobs_metrics, no_metrics
from everstep_agent.jobs.retention import EndedJobs, JobPromises
from everstep_agent.jobs.sessions.launcher import report_joining_again
from everstep_agent.jobs.sessions.server import JobServer
from everstep_agent.jobs.state.facts import NOBODY, JobFacts
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_agent.jobs.state.store import RuntimeFolder, open_database
from everstep_agent.vault.adoption import adopt_regions, recover_regions
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.replication.connection_limits import ConnectionLimits
from everstep_agent.vault.replication.server import BulkServer
from everstep_common import launcher_messages, rank_messages, systemd
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Healthy, Judgement
from everstep_common.orders import (
    EndJob,
    ForgetJob,
    HoldLauncher,
    InspectRanks,
    JobOrder,
    KeepJob,
    ReadOutput,
    RefuseLauncher,
    SpareMemory,
    SparePreload,
    StartGeneration,
    StopGeneration,
    TellLauncher,
    VaultDirective,
)
from everstep_common.reports import (
    EndedJob,
    JobOnNode,
    LauncherLeft,
    OutputRead,
    RankColumns,
    RanksInspected,
)
from everstep_proto.generated import fleet_pb2
from everstep_proto.reports import record_of

# As many of a node's jobs are told in one message of samples.
_JOBS_TOLD_MAX = 16
_BULK_KEYS = "jobs.bulk_host and bulk_port"


class NodeJobs:
    """All jobs of a node: serves launchers and trainers. Event loop only."""

    def __init__(
        self,
        settings: JobsSettings,
        outlet: Outlet,
        node: str,
        environment: Environment | None = None,
    ) -> None:
        self.ready = asyncio.Event()
        self.bulk_address = ""
        self._settings = settings
        self._outlet = outlet
        self._node = node
        self._world = environment or Environment()
        self.table = JobTable(self._make, self._watch_again)
        self._ended = EndedJobs(self.table, settings.memory_kept_s, self.forget_if_over)
        self._past_output = PastOutput()
        self._group = asyncio.TaskGroup()
        self._context: JobContext | None = None
        self._server: JobServer | None = None
        self._bulk: BulkServer | None = None

    async def run(self) -> None:
        """Serve until cancelled; ``ready`` is set once launchers can connect. Raises OSError."""
        with ExitStack() as stack:
            folder = RuntimeFolder.open(self._settings.runtime_folder)
            stack.callback(folder.close)
            database = open_database(folder.database())
            stack.callback(database.close)
            parts = ContextParts(
                self._settings,
                self,
                self._node,
                self._world,
                self._spawn,
                self._ended,
                JobPromises(self.table),
                stack,
            )
            context = self._context = open_context(parts, database)
            async with self._group:
                self._adopt(context)
                await self._serve(context, stack)

    # --- Outlet of the jobs -----------------------------------------------------------------------

    def record(self, record: fleet_pb2.Record) -> None:
        """See Outlet; the controller is told whose job it is."""
        user = self.table.user_of(record.job)
        if user != NOBODY:
            record.uid = user
        self._outlet.record(record)

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        """See Outlet."""
        self._outlet.vault_report(report)

    # --- what the controller says; only after ``ready`` ------------------------------------------

    def on_order(self, order: JobOrder) -> None:
        """Do what the controller orders; its term has been checked."""
        if isinstance(order, StartGeneration | HoldLauncher):
            self._world.ends.forget(order.job_id)
        match order:
            case StartGeneration():
                job = self.table.answer(order)
                job.tell_identity()
                job.start(order, order.reason)
            case StopGeneration():
                stopper = self.table.bind(order).stopper
                stopper.order(order.generation, order.grace_ns / 1e9, order.reason, look=order.look)
            case EndJob():
                self._end(order)
            case RefuseLauncher():
                self._refuse(order.job, order.reason)
            case HoldLauncher():
                self._hold(order)
            case ForgetJob() | KeepJob():
                self._keep_or_forget(order)

    def read_output(self, question: ReadOutput) -> OutputRead:
        """Return what ranks of a job have written lately here."""
        job = next((one for one in self.table if one.facts.key == question.job_id), None)
        output = job.output if job is not None else self._past_output.of(question.job_id)
        if output is None:
            return OutputRead(question.read_id, known=False)
        return output.read(question.read_id, question.rank, question.after)

    def inspect(self, question: InspectRanks, answer: Callable[[RanksInspected], None]) -> None:
        """Answer, when its launcher has looked, what the ranks of a job do here."""
        job = next((one for one in self.table if one.facts.key == question.job_id), None)
        if job is None or not (job.facts.active or question.generation):
            missing = "no rank of it runs here"
            answer(RanksInspected(question.inspection_id, missing=missing))
        else:
            wanted = Wanted(question.generation, question.recent, question.patient)
            job.inspections.begin(question.inspection_id, answer, wanted)

    def tell_launcher(self, told: TellLauncher) -> None:
        """Have the user of a job read a sentence, where its launcher runs."""
        for job in self.table:
            if job.facts.key == told.job_id:
                job.link.send(launcher_messages.Notice(told.text))

    def on_directive(self, directive: VaultDirective) -> None:
        """Free and replicate as the controller says."""
        self.table.bind(directive).direct(directive)
        if self._bulk is not None:
            self._bulk.note_peers((directive.replica_bulk_address, *directive.replica_sources))

    def on_spare_memory(self, wanted: SpareMemory) -> None:
        """Have memory ready for a job whose launcher waits here."""
        job = self.table.answer_if_here(wanted)
        if job is not None:
            job.spare.order(wanted)

    def on_spare_preload(self, told: SparePreload) -> None:
        """Have the launcher that waits here know what ranks of its job load."""
        job = self.table.answer_if_here(told)
        if job is not None:
            job.preloads.receive(told.preload)

    def on_connected(self, forgotten: bool) -> None:
        """Tell a controller that just connected what is held here, and who is here if it forgot."""
        for job in self.table:
            if forgotten:
                report_joining_again(job)
            job.report()

    def on_halted(self) -> None:
        """The controller acts on nothing: everybody who waits for it here reads so."""
        self.tell_launchers(self._world.controller_away())

    def on_away(self) -> None:
        """The controller is away: who waits for its word looks again."""
        for job in self.table:
            job.vault.notify_change()

    def tell_launchers(self, sentence: str) -> None:
        """Have everybody who has started or waits for a job here read a sentence."""
        for job in self.table:
            job.link.send(launcher_messages.Notice(sentence))

    # --- what the agent shows --------------------------------------------------------------------

    def jobs(self) -> list[JobOnNode]:
        """Return what Hello tells of each job."""
        return [job.on_node() for job in self.table]

    def ended_jobs(self) -> tuple[EndedJob, ...]:
        """Return what Hello tells of jobs that have ended lately."""
        return self._world.ends.told()

    def training_pids(self) -> list[int]:
        """Return the training processes that are attached now."""
        return [pid for job in self.table for pid in job.ranks.pids]

    def rank_pids(self) -> list[int]:
        """Return all ranks that may run here, those too that do without the library."""
        alive = (one.pid for job in self.table for one in job.processes.alive())
        return sorted({*self.training_pids(), *alive})

    def rank_columns(self) -> tuple[RankColumns, ...]:
        """Return how far the ranks of each job are that runs here."""
        found = (job.standing.columns() for job in self.table)
        return tuple(one for one in found if one is not None)[:_JOBS_TOLD_MAX]

    def metrics(self) -> JobsMetrics:
        """Return the numbers of this moment."""
        if self._context is None:
            return no_metrics()
        connections = self._server.connections if self._server else 0
        bulk = self._bulk.limits if self._bulk else ConnectionLimits[object]()
        counts = ServerCounts(
            connections, self._ended.evictions, bulk.unproven, bulk.evicted, bulk.refused
        )
        return jobs_metrics(list(self.table), self._context, counts)

    def judgements(self, open_keys: Collection[FindingKey]) -> list[Judgement]:
        """Judge what goes wrong around the snapshots; what is open of jobs that are gone ends."""
        return judge_jobs(self.table, self._context, open_keys) if self._context else []

    def known(self, job: str) -> NodeJob | None:
        """Return the job of an id, or the one that has a name."""
        return self.table.by_key(job)

    # --- launchers that are away (server.LauncherWatch) ------------------------------------------

    def watch_absent(self, job: NodeJob, *, told: bool) -> None:
        """See LauncherWatch."""
        job.link.absence = self._spawn(self._watch(job, told=told), f"absence {job.facts.job}")

    def forget_if_over(self, job: NodeJob) -> None:
        """See LauncherWatch."""
        empty = not job.vault.holdings.manifests()
        here = job.link.connected or job.facts.place.process is not None
        if job.facts.idle and empty and not here:
            job.close()
            self.table.remove(job)
            self._past_output.keep(job.facts.key, job.output)
            job.context.skips.forget(job.facts.job)

    def controller_away(self) -> str:
        """See LauncherWatch."""
        return self._world.controller_away()

    # --- inside ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        return self._group.create_task(work, name=name)

    def _adopt(self, context: JobContext) -> None:
        fds = self._world.stored_fds
        found = recover_regions(
            systemd.stored_fds() if fds is None else fds, context.vault_context.region_store
        )
        for facts in context.store.load():
            job = self.table.add(facts)
            if facts.place.process is not None:
                self.watch_absent(job, told=False)
            if facts.ended:
                self._ended.reap_later(job)
            job.stopper.enforce(facts.stop_due, 0.0)
        adopt_regions(found, self._vault_of, context.vault_context.region_store)
        for job in self.table:
            settled = job.stopper.settle(job.facts.stops.completed)
            context.spawn(settled, f"settle {job.facts.job}")

    async def _serve(self, context: JobContext, stack: ExitStack) -> None:
        settings = self._settings
        bulk = stack.enter_context(listen_tcp(settings.bulk_host, settings.bulk_port, _BULK_KEYS))
        host = settings.bulk_advertise_host or settings.bulk_host
        self.bulk_address = f"{host}:{bulk.getsockname()[1]}"
        listener = stack.enter_context(listening_unix(settings.socket_path))
        self._server = JobServer(context, self.table, self)
        self._bulk = BulkServer(
            context.vault_context, self._vault_of, context.spawn, context.refusals
        )
        context.spawn(self._bulk.serve(bulk), "bulk listener")
        context.spawn(self._server.serve(listener), "job socket")
        self.ready.set()

    def _make(self, facts: JobFacts) -> NodeJob:
        assert self._context is not None, "the jobs of a node are served by run()"
        return NodeJob(facts, self._context)

    def _vault_of(self, lineage: str) -> JobVault | None:
        known = self.table.of_lineage(lineage)
        return known.vault if known else None

    def _end(self, end: EndJob) -> None:
        job = self.table.to_end(end)
        generation = 0 if job is None else job.on_node().generation
        self._world.ends.note(end, generation, self._world.term())
        if job is None:
            return
        job.end(end)
        self._ended.reap_later(job)
        self.forget_if_over(job)

    async def _watch(self, job: NodeJob, *, told: bool) -> None:
        launcher = job.link.job or job.facts.reported_as
        reason = await job.stopper.await_departure(self._settings.reconnect_grace_s)
        job.vacate_place()
        if not told:
            self.record(record_of(LauncherLeft(reason, by_user=False), launcher))
        self.forget_if_over(job)

    def _watch_again(self, job: NodeJob) -> None:
        self.watch_absent(job, told=False)

    def _refuse(self, name: str, reason: str) -> None:
        for job in self.table.named(name):
            job.link.send(rank_messages.Refused(reason))

    def _hold(self, hold: HoldLauncher) -> None:
        job = self.table.answer_if_here(hold)
        if job is not None:
            job.tell_identity()
            job.hold(hold.reason, spare=hold.spare)

    def _keep_or_forget(self, order: KeepJob | ForgetJob) -> None:
        job = self.table.known(order)
        if job is None:
            return
        if isinstance(order, ForgetJob):
            self._ended.forget(job)
        else:
            self.table.bind(order)


def judge_jobs(
    jobs: Iterable[NodeJob], context: JobContext, open_keys: Collection[FindingKey]
) -> list[Judgement]:
    """Judge what goes wrong around the snapshots; what is open of jobs that are gone ends.

    So does that snapshots are skipped of a job that has ended: its memory is only kept.
    """
    # People know them by name: of two that have one, it is the newer that they ask about.
    named = {job.facts.job: job for job in sorted(jobs, key=lambda job: not job.facts.ended)}
    gone: list[Judgement] = [
        Healthy(key, "the job is not on this node any more")
        for key in open_keys
        if key.condition in (SKIPPED, FAILING, HELD) and key.job not in named
    ]
    over = {job_key(name) for name, job in named.items() if job.facts.ended}
    gone += [Healthy(key, "the job has ended") for key in over.intersection(open_keys)]
    held = {name: job.processes.held() for name, job in named.items()}
    storing = {name for name, job in named.items() if job.storage.files.configured}
    # Of a job that has storage no more nobody else would say that it is well.
    storing |= {key.job for key in open_keys if key.condition == FAILING} & named.keys()
    return [
        *gone,
        *judge_runtime_folder(
            str(context.settings.runtime_folder), context.store.trouble, open_keys
        ),
        *judge_held(held, open_keys),
        *context.devices.judgements(open_keys),
        *(judge_storage(name, named[name].storage.trouble) for name in sorted(storing)),
        *context.vault_context.refusals.judge(open_keys),
        *(one for one in context.skips.judge(context.boot_ns()) if one.key not in over),
    ]
