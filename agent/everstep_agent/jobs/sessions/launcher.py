"""Launcher session: one launcher from its Join to the end of its connection."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.message_memory import SMALL_BYTES_MAX
from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import identify
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.job.peers import LauncherPeer
from everstep_agent.jobs.state.records import (
    joined_again_record,
    start_message,
)
from everstep_common import launcher_messages, preload, rank_messages, reports
from everstep_common.launcher_messages import StepSeen
from everstep_common.rank_messages import Progress
from everstep_common.reports import LauncherLeft
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)

# Messages that a launcher has not read yet: more than the controller says in an hour.
_UNREAD_MAX = 1000


class LauncherSession:
    """One launcher, from its Join to the end of its connection."""

    def __init__(
        self,
        connection: Connection,
        job: NodeJob,
        job_of: Callable[[LauncherPeer], NodeJob | None],
    ) -> None:
        """``job_of`` tells whose launcher it is: the controller may say so after it has joined."""
        self._connection = connection
        self._last_job = job
        self._job_of = job_of
        self._outgoing: asyncio.Queue[object] = asyncio.Queue()
        # Whether the launcher was told to exit, so that another one may take its place.
        self.dismissed = False
        self.leaving = False
        # The newest generation that it said had finished: each record is a row of the journal.
        self._finished_generation = 0
        self._end_asked = False
        self.ended = asyncio.Event()

    @property
    def job(self) -> NodeJob:
        """Return the job that it is the launcher of, or was last."""
        self._last_job = self._job_of(self) or self._last_job
        return self._last_job

    def send(self, message: object) -> None:
        """See LauncherPeer. One that reads nothing for so long has to join anew."""
        if self._outgoing.qsize() >= _UNREAD_MAX:
            self.hang_up()
            return
        self._outgoing.put_nowait(message)

    def hang_up(self) -> None:
        """See LauncherPeer."""
        self._connection.hang_up()

    def is_hung_up(self) -> bool:
        """See LauncherPeer."""
        return self._connection.is_hung_up()

    async def close(self) -> None:
        """See LauncherPeer."""
        self.hang_up()
        await self.ended.wait()

    async def run(self) -> None:
        """Serve until the connection ends. Raises OSError then."""
        sender = asyncio.create_task(self._send_all(), name="launcher sender")
        try:
            while True:
                known = launcher_messages.FROM_LAUNCHER
                message = await self._connection.receive(known, SMALL_BYTES_MAX)
                await self._handle(message)
        finally:
            sender.cancel()
            await asyncio.wait([sender])

    async def _send_all(self) -> None:
        try:
            while True:
                message = await self._outgoing.get()
                await self._connection.send(message)
                name = self.job.link.job
                if isinstance(message, rank_messages.Refused | launcher_messages.End):
                    self._dismiss()
                if isinstance(message, launcher_messages.End) and not self.leaving:
                    # The next launcher of this name begins another job, which the controller could
                    # not tell from this one without a record that this launcher has left.
                    over = record_of(LauncherLeft("its job is over", by_user=False), name)
                    self.job.context.outlet.record(over)
        except OSError as error:  # the receiving side sees the end as well
            logger.info("job %s: its launcher: %s", self.job.facts.job, error)

    def _dismiss(self) -> None:
        self.dismissed, job = True, self.job
        if job.link.peer is self:
            job.dismiss_launcher()

    async def _handle(self, message: object) -> None:
        job = self.job
        match message:
            case launcher_messages.Started():
                job.processes.record_started(message)
            case reports.RankExited():
                await self._rank_exited(message)
            case (
                launcher_messages.OutputSeen()
                | launcher_messages.StepSeen()
                | launcher_messages.Inspected()
                | launcher_messages.RanksWatched()
            ):
                self._seen(message)
            case reports.GenerationStopped():
                self._abandon(message.abandoned)
                job.record.note_free_port(message.free_port)
                job.context.spawn(self._stopped(message), f"stopped {job.facts.job}")
            case reports.Standbys() | preload.Preload():
                self._record_standbys(message)
            case reports.GenerationFinished() | reports.LauncherLeft():
                self._end(message)
            case reports.EndAsked():
                self._ask_end(message)
            case _:
                logger.debug("job %s: a second Join on one connection", job.facts.job)

    def _seen(
        self,
        message: launcher_messages.OutputSeen
        | launcher_messages.StepSeen
        | launcher_messages.Inspected
        | launcher_messages.RanksWatched,
    ) -> None:
        match message:
            case launcher_messages.OutputSeen():
                self.job.output.add(message, self._connection.peer.uid)
            case launcher_messages.Inspected():
                self.job.inspections.take_part(message)
            case launcher_messages.RanksWatched():
                self.job.standing.add_watched(message)
            case launcher_messages.StepSeen():
                _count_seen_step(self.job, message)

    async def _rank_exited(self, message: reports.RankExited) -> None:
        job = self.job
        if message.generation > job.facts.newest_generation:
            return  # each that is newer than the one before would be a row of the journal
        job.standing.end(message.generation)
        # The last steps of the rank are reported before its exit.
        await job.stopper.drain(message.generation, message.rank)
        step = job.progress.last_step(message.generation, message.rank)
        exit = replace(message, step=step)
        job.context.outlet.record(record_of(exit, job.facts.reported_as))
        job.restart.record_failure(exit)

    def _end(self, message: reports.GenerationFinished | reports.LauncherLeft) -> None:
        """Report an end, once: what a launcher says again would be another row of the journal."""
        job = self.job
        if isinstance(message, reports.GenerationFinished):
            if message.generation > self._finished_generation:
                self._finished_generation = message.generation
                job.standing.end(message.generation)
                job.context.spawn(self._finished(message), f"finished {job.facts.job}")
        elif not self.leaving:
            self.leaving = True
            job.record.leave()
            left = replace(message, by_user=True)
            job.context.outlet.record(record_of(left, job.link.job))

    def _ask_end(self, message: reports.EndAsked) -> None:
        """Pass on, once, that the launcher's user wants the job to end."""
        if not self._end_asked:
            self._end_asked = True
            self.job.context.outlet.record(record_of(message, self.job.link.job))

    def _record_standbys(self, message: reports.Standbys | preload.Preload) -> None:
        if isinstance(message, preload.Preload):
            self.job.preloads.record_local(message)
        else:
            self.job.record_standbys(message)

    async def _finished(self, message: reports.GenerationFinished) -> None:
        job = self.job
        # The last steps are reported before the end: after it they would not count any more.
        await job.stopper.drain(message.generation)
        if job.facts.storage.storage is not None:
            # The newest verified step goes to storage when the end is reported: so none may still
            # be in verification by then.
            await job.stopper.settle(min(message.generation, job.facts.plan.generation))
        job.context.outlet.record(record_of(message, job.facts.reported_as))

    def _abandon(self, pids: tuple[int, ...]) -> None:
        """Wait no longer for processes that SIGKILL does not end; the fence keeps them out."""
        self.job.processes.abandon(pids)
        if not pids:
            return
        logger.warning(
            "job %s: killed, but held in the kernel by a device or a file system: processes %s",
            self.job.facts.job,
            ", ".join(map(str, pids)),
        )

    async def _stopped(self, message: reports.GenerationStopped) -> None:
        facts = self.job.facts
        # A generation number above all that were planned would make later generations refused.
        generation = min(message.generation, facts.newest_generation)
        if facts.plan.generation <= generation:
            # The stop that was ordered may be of a generation that this node never started.
            generation = max(generation, facts.stops.ordered)
        await self.job.stopper.complete(generation, message.at_boot_ns)


def admit_launcher(
    job: NodeJob, request: launcher_messages.Join, peer: Peer, launcher: LauncherPeer
) -> None:
    """Have a launcher that may for the job's, and tell it what it has missed."""
    job.record.admit_launcher(request, peer, identify(peer.pid))
    job.vault.uid = peer.uid
    job.vault.spare_slots = int(request.storage is not None)
    job.link.connect(launcher, request, job.facts.reported_as)
    launcher.send(launcher_messages.Joined(job.context.vault_context.node))
    facts = job.facts
    if facts.ended:
        reason = facts.ending.reason or "no reason was told"
        sentence = f"it ended while this launcher was away ({reason})"
        launcher.send(launcher_messages.End(facts.ending.succeeded, sentence))
        return
    job.tell_identity()
    job.storage.join(request, peer)
    job.spare.resume()
    job.preloads.send_to_launcher()
    _tell_missed(job, request, launcher)


def _tell_missed(job: NodeJob, request: launcher_messages.Join, launcher: LauncherPeer) -> None:
    facts, plan = job.facts, job.facts.plan
    if facts.stops.ordered > facts.stops.completed:
        launcher.send(launcher_messages.Stop(facts.stops.ordered, 0.0, "ordered while it was away"))
    elif plan.generation > max(request.running_generation, facts.stops.completed):
        launcher.send(start_message(plan, "ordered while the launcher was away"))
    elif facts.stop_due:
        launcher.send(launcher_messages.Stop(facts.stop_due, 0.0, "stopped while it was away"))


def report_joining_again(job: NodeJob) -> None:
    """Say once more that the launcher takes part: the controller has forgotten it.

    One that waits for its storage is told of when that has said what is there.
    """
    request = job.link.request
    if job.storage.unreported:
        return
    if job.link.connected and request is not None and not job.facts.ended:
        record = joined_again_record(request, job.facts, job.storage.files.listing)
        job.context.outlet.record(record)


def _count_seen_step(job: NodeJob, message: StepSeen) -> None:
    """Count a step of the whole job; ranks that have called in tell their steps themselves."""
    generation = message.generation
    if generation != job.facts.plan.generation or not job.facts.active:
        return
    if job.ranks.has(generation):
        return
    at_boot_ns = min(message.at_boot_ns, job.context.boot_ns())
    job.progress.add_seen_step(Progress(message.step, at_boot_ns, stall_ns=0))
    job.standing.add_seen_step(message.step, at_boot_ns)
    job.freshness.record_step(message.step)
