"""Launcher session: one launcher from its Join to the end of its connection."""

import asyncio
import logging

from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.message_memory import SMALL_BYTES_MAX
from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import identify
from everstep_agent.jobs.admission import comes_back, tell
from everstep_agent.jobs.facts import token_hash
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.peers import Launcher
from everstep_agent.jobs.records import (
    exited_record,
    finished_record,
    joined_again_record,
    left_record,
    start_messages,
)
from everstep_agent.jobs.stopping import hear_out, release_launcher, settle, stopped
from everstep_agent.jobs.validation import number_problem
from everstep_common import trainer_messages as messages
from everstep_common.frames import FrameError
from everstep_common.trainer_messages import Progress, StepSeen

logger = logging.getLogger(__name__)


class LauncherSession:
    """One launcher, from its Join to the end of its connection."""

    def __init__(self, connection: Connection, job: NodeJob) -> None:
        self._connection = connection
        self._job = job
        self._outgoing: asyncio.Queue[object] = asyncio.Queue()
        # It was told to go, and its place is free.
        self.dismissed = False
        self.leaving = False

    def tell(self, message: object) -> None:
        """See Launcher."""
        self._outgoing.put_nowait(message)

    def hang_up(self) -> None:
        """See Launcher."""
        self._connection.hang_up()

    async def run(self) -> None:
        """Serve until the connection ends. Raises OSError then."""
        sender = asyncio.create_task(self._send_all(), name="launcher sender")
        try:
            while True:
                known = messages.FROM_LAUNCHER
                message = await self._connection.receive(known, SMALL_BYTES_MAX)
                if problem := number_problem(message):
                    raise FrameError(problem)
                await self._take(message)
        finally:
            sender.cancel()
            await asyncio.wait([sender])

    async def _send_all(self) -> None:
        try:
            while True:
                message = await self._outgoing.get()
                await self._connection.send(message)
                if isinstance(message, messages.Refused | messages.End):
                    self._dismiss()
                if isinstance(message, messages.End) and not self.leaving:
                    # Its next launcher begins another job; the controller cannot tell them apart.
                    over = left_record(self._job.facts, "its job is over", by_user=False)
                    self._job.context.outlet.record(over)
        except OSError as error:  # the receiving side sees the end as well
            logger.info("launcher of job %s: %s", self._job.facts.job, error)

    def _dismiss(self) -> None:
        self.dismissed = True
        if self._job.launcher is self:
            release_launcher(self._job)

    async def _take(self, message: object) -> None:
        job = self._job
        match message:
            case messages.Started():
                job.processes.started(message)
            case messages.Exited():
                # Its last steps come before its end.
                await hear_out(job, message.generation, message.rank)
                step = job.progress.last(message.generation, message.rank)
                job.context.outlet.record(exited_record(job.facts, message, step))
                job.alone.failed(message, step)
            case messages.StepSeen():
                step_seen(job, message)
            case messages.Stopped():
                self._give_up(message.abandoned)
                job.facts.free_port = message.free_port
                job.context.spawn(self._stopped(message), f"stopped {job.facts.job}")
            case messages.Standbys() | messages.Lesson():
                self._of_standbys(message)
            case messages.Finished():
                job.context.spawn(self._finished(message), f"finished {job.facts.job}")
            case messages.Leave():
                self.leaving = True
                job.alone.left()
                job.context.outlet.record(left_record(job.facts, message.reason, by_user=True))
            case _:
                logger.info("job %s: a second Join on one connection", job.facts.job)

    def _of_standbys(self, message: messages.Standbys | messages.Lesson) -> None:
        if isinstance(message, messages.Lesson):
            self._job.lessons.told(message)
        else:
            self._job.stand_by(message)

    async def _finished(self, message: messages.Finished) -> None:
        job = self._job
        # The last steps come before the end, or the job ends without them.
        await hear_out(job, message.generation)
        if job.facts.storage is not None:
            # The last one goes to storage: once this is told, no newer one is still verified.
            await settle(job, min(message.generation, job.facts.plan.generation))
        job.context.outlet.record(finished_record(job.facts, message))

    def _give_up(self, pids: tuple[int, ...]) -> None:
        """Wait no longer for processes that SIGKILL does not end; the fence keeps them out."""
        self._job.processes.give_up(pids)
        if not pids:
            return
        logger.warning(
            "job %s: killed, but held in the kernel by a device or a file system: processes %s",
            self._job.facts.job,
            ", ".join(map(str, pids)),
        )

    async def _stopped(self, message: messages.Stopped) -> None:
        facts = self._job.facts
        # What it says of one that nobody ordered would fence off those that are still to come.
        generation = min(message.generation, max(facts.plan.generation, facts.stop_ordered))
        if facts.plan.generation <= generation:
            # The order may have been about a generation that this node never started.
            generation = max(generation, facts.stop_ordered)
        await stopped(self._job, generation, message.at_boot_ns)


def take_in(job: NodeJob, request: messages.Join, peer: Peer, launcher: Launcher) -> None:
    """Have a launcher that may for the job's."""
    facts = job.facts
    if not comes_back(facts, request, peer):
        facts.job_id = request.job_id or 0
        if facts.ended:
            facts.ended, facts.past = False, True
            job.lessons.forget()  # the next job of the name may run another script
    if facts.owner not in (-1, peer.uid):
        # Nothing of one user's job may reach the next one's, whatever its generations are.
        job.forget_past()
        job.storage.forget()
    facts.uid = facts.owner = peer.uid
    facts.token_sha256 = token_hash(request.token)
    facts.free_port, facts.launcher = request.free_port, identify(peer.pid)
    job.vault.uid = peer.uid
    job.vault.spare_slots = int(request.storage is not None)
    job.launcher, job.request, job.reproach = launcher, request, ""
    job.save()
    launcher.tell(messages.Joined(job.context.site.node))
    if facts.ended:
        reason = facts.end_reason or "no reason was told"
        sentence = f"it ended while this launcher was away ({reason})"
        launcher.tell(messages.End(facts.succeeded, sentence))
        return
    tell(job)
    job.storage.join(request, peer, lambda: job.launcher is launcher, job.notice)
    job.waiting.go_on()
    job.lessons.tell(launcher, request)
    _tell_missed(job, request, launcher)


def _tell_missed(job: NodeJob, request: messages.Join, launcher: Launcher) -> None:
    facts, plan = job.facts, job.facts.plan
    if facts.stop_ordered > facts.stopped:
        launcher.tell(messages.Stop(facts.stop_ordered, 0.0, "ordered while it was away"))
    elif plan.generation > max(request.running_generation, facts.stopped):
        for message in start_messages(plan, "ordered while the launcher was away", request):
            launcher.tell(message)
    else:
        job.alone.back()


def join_again(job: NodeJob) -> None:
    """Say once more that the launcher takes part: the controller has forgotten it."""
    if job.launcher and job.request and not job.facts.ended:
        seen = job.storage.files.listing
        job.context.outlet.record(joined_again_record(job.request, job.facts, seen))


def step_seen(job: NodeJob, message: StepSeen) -> None:
    """Count a step of the whole job; ranks that have called in tell their steps themselves."""
    generation = message.generation
    if generation != job.facts.plan.generation or generation <= job.facts.stopped:
        return
    if any(attached == generation for attached, _ in job.attached):
        return
    at_boot_ns = min(message.at_boot_ns, job.context.boot_ns())
    job.progress.seen(Progress(message.step, at_boot_ns, stall_ns=0))
    job.freshness.reached(message.step)
