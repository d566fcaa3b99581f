"""Job server: the Unix socket that lets launchers and trainers in, or says why not."""

import asyncio
import logging
import socket
from typing import Protocol

from everstep_agent.concurrency.fair_turns import served_user
from everstep_agent.ipc.connection import Connection
from everstep_agent.ipc.listeners import UserListener
from everstep_agent.ipc.message_memory import SMALL_BYTES_MAX, memory_owner
from everstep_agent.ipc.peer import Peer
from everstep_agent.ipc.processes import alive
from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.job_table import JobTable
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.sessions.admission import (
    attach_refusal,
    count_memory_refusal,
    forecast_of,
    has_memory,
    join_refusal,
    late_refusal,
    memory_refusal,
    protocol_problem,
)
from everstep_agent.jobs.sessions.launcher import LauncherSession, admit_launcher
from everstep_agent.jobs.sessions.trainer import TrainerSession
from everstep_agent.quotas.connection_quota import ConnectionLimit, ConnectionQuota
from everstep_agent.quotas.user_quotas import JobLimit, JobQuota
from everstep_common import launcher_messages, rank_messages
from everstep_common.frames import FrameError, MessageError, encode
from everstep_common.log_limit import by_user
from everstep_common.printable import printable
from everstep_common.reports import LauncherLeft
from everstep_common.version import TRAINER_PROTOCOL
from everstep_proto.reports import record_of

logger = logging.getLogger(__name__)
# How long a new connection has for its first message; until then it only costs a descriptor.
_FIRST_MESSAGE_S = 10.0
_UNSEEN = (
    "this node's agent runs in a PID namespace of its own and cannot see this process, so it could "
    "not tell when it dies; run the agent on the host, or in a pod with hostPID: true"
)


class LauncherWatch(Protocol):
    """Policies for launchers that are away, and for a controller that is."""

    def watch_absent(self, job: NodeJob, *, told: bool) -> None:
        """Find out what becomes of a launcher that is away; ``told``: the controller knows."""
        ...

    def forget_if_over(self, job: NodeJob) -> None:
        """Forget a job that has ended and keeps nothing."""
        ...

    def controller_away(self) -> str:
        """Return why the controller is not there; "" while it is."""
        ...


class JobServer:
    """Server of the jobs' socket: accepts connections; sessions give them meaning."""

    def __init__(self, context: JobContext, jobs: JobTable, watch: LauncherWatch) -> None:
        self._context = context
        self._jobs = jobs
        self._watch = watch
        settings, clock = context.settings, asyncio.get_running_loop().time
        limit = ConnectionLimit(
            settings.connections_per_user_max, settings.connections_per_user_per_s
        )
        self._quota = ConnectionQuota(limit, context.refusals, clock)
        jobs_limit = JobLimit(settings.jobs_per_user_max, settings.new_jobs_per_user_per_min)
        self._job_quota = JobQuota(jobs_limit, context.refusals, clock)

    @property
    def connections(self) -> int:
        """Return how many connections of launchers and training processes there are."""
        return sum(self._quota.open_connections.values())

    async def serve(self, listener: socket.socket) -> None:
        """Accept until cancelled."""
        users = UserListener(listener, "job socket", self._quota, _refusal_frame)
        while True:
            connection = Connection(*await users.accept())
            self._context.spawn(self._serve(connection), "job connection")

    async def _serve(self, connection: Connection) -> None:
        uid = connection.peer.uid
        served_user.set(uid)
        try:
            if connection.peer.pid == 0:  # pid_namespaces(7): it has no number here
                await connection.send(rank_messages.Refused(_UNSEEN))
                return
            first = await _first_message(connection)
            if isinstance(first, launcher_messages.Join) and connection.is_hung_up():
                # It was killed while this agent stood still: its successor has joined meanwhile.
                text = "job %s: launcher %d did not wait"
                logger.info(text, first.job, connection.peer.pid, extra=by_user(uid))
            elif isinstance(first, launcher_messages.Join):
                await self._launcher(connection, first)
            elif isinstance(first, rank_messages.Attach):
                await self._trainer(connection, first)
        except FrameError as error:
            text = "process %d of user %d: %s"
            logger.warning(text, connection.peer.pid, uid, error, extra=by_user(uid))
        except OSError as error:
            logger.debug("process %d of user %d: %s", connection.peer.pid, uid, error)
        finally:
            self._quota.leave(uid)
            connection.close()

    async def _trainer(self, connection: Connection, attach: rank_messages.Attach) -> None:
        job = self._jobs.running(attach.job, attach.generation)
        facts = job.facts if job else None
        reason = attach_refusal(facts, attach, connection.peer.uid)
        if job is None or reason:
            await connection.send(rank_messages.Refused(reason or "this job is not known"))
            return
        # Asked for this generation only: a process of an older one may still be connected.
        holder = job.ranks.holder(attach.generation, attach.rank)
        if holder is not None:
            reason = _held_by(holder, attach.rank, connection.peer.pid)
            await connection.send(rank_messages.Refused(reason))
            return
        job.ranks.attach(attach.generation, attach.rank, connection.peer.pid)
        memories = self._context.vault_context.message_memories
        connection.use_memory(memories, memory_owner(connection.peer.uid, attach.job))
        try:
            await TrainerSession(connection, job, attach).run()
        finally:
            job.ranks.detach(attach.generation, attach.rank)

    async def _launcher(self, connection: Connection, join: launcher_messages.Join) -> None:
        peer = connection.peer
        refused = self._refusal(join, peer) or await self._other_launcher(join, peer)
        known = self._known(join, peer)
        if refused is None and self._jobs.joined(join, peer) is None:
            refused = self._quota_refusal(peer.uid)
        begins = refused is None and not has_memory(known, join, peer.uid)
        if begins and (reason := await memory_refusal(self._context, known, join, peer.uid)):
            count_memory_refusal(self._context, peer.uid, reason)
            refused = rank_messages.Refused(reason)
        refused = refused or self._taken_meanwhile(join)
        if refused is not None:
            await connection.send(refused)
            return
        job = self._jobs.joined(join, peer) or self._jobs.of_new_launcher(join)
        if begins:
            # No await since the memory was found to suffice, so nobody else can have taken it.
            job.record.promise_memory(forecast_of(self._context, join))
        await self._serve_launcher(connection, job, join)

    async def _serve_launcher(
        self, connection: Connection, job: NodeJob, join: launcher_messages.Join
    ) -> None:
        self._jobs.leave_others(job, connection.peer)
        session = LauncherSession(connection, job, self._jobs.of_launcher)
        admit_launcher(job, join, connection.peer, session)
        if away := self._watch.controller_away():
            session.send(launcher_messages.Notice(away))
        try:
            await session.run()
        except OSError:  # not when the agent itself ends: its successor will see who is there
            self._after(session.job, session)
            raise
        finally:
            session.ended.set()

    def _known(self, join: launcher_messages.Join, peer: Peer) -> NodeJob | None:
        return self._jobs.joined(join, peer) or self._jobs.newest(join.job)

    def _refusal(self, join: launcher_messages.Join, peer: Peer) -> rank_messages.Refused | None:
        known = self._known(join, peer)
        reason = join_refusal(known.facts if known else None, join, peer.uid)
        if known is not None and not reason and _place_is_taken(known, peer):
            # Elsewhere the controller answers it, who knows how its job ended.
            reason = late_refusal(known.facts, join)
        return rank_messages.Refused(reason) if reason else None

    def _quota_refusal(self, uid: int) -> rank_messages.Refused | None:
        """Return why a user gets no further job here."""
        reason = self._job_quota.refusal(uid, sum(_is_of(job, uid) for job in self._jobs))
        return rank_messages.Refused(reason) if reason else None

    async def _other_launcher(
        self, join: launcher_messages.Join, peer: Peer
    ) -> rank_messages.RefusedForNow | None:
        for job in self._jobs.named(join.job):
            if reason := await _other_launcher(job, peer.pid):
                return rank_messages.RefusedForNow(reason)
        return None

    def _taken_meanwhile(self, join: launcher_messages.Join) -> rank_messages.RefusedForNow | None:
        """Return the refusal of a launcher that waited while another one was let in."""
        for job in self._jobs.named(join.job):
            if job.link.connected and (process := job.facts.place.process) is not None:
                return rank_messages.RefusedForNow(_taken(job, process.pid))
        return None

    def _after(self, job: NodeJob, session: LauncherSession) -> None:
        if session.dismissed:
            self._watch.forget_if_over(job)
            return
        job.link.peer = None
        if job.facts.ended:
            if not session.leaving:
                self._context.outlet.record(
                    record_of(LauncherLeft("its job is over", by_user=False), job.link.job)
                )
            job.dismiss_launcher()
            self._watch.forget_if_over(job)
            return
        self._watch.watch_absent(job, told=session.leaving)


def _refusal_frame(sentence: str) -> bytes:
    return encode(rank_messages.Refused(sentence))


def _is_of(job: NodeJob, uid: int) -> bool:
    """Return whether a job is a user's: by its launcher here, or by who began what is kept."""
    return uid in (job.facts.place.uid, job.facts.owner.uid)


async def _first_message(connection: Connection) -> object:
    """Return the peer; refuse one whose words cannot be used, with why. Raises FrameError."""
    async with asyncio.timeout(_FIRST_MESSAGE_S):
        try:
            return await connection.receive(
                (launcher_messages.Join, rank_messages.Attach), SMALL_BYTES_MAX
            )
        except MessageError as error:
            # Fields that another version has would be called unknown ones, which explains nothing.
            protocol = error.fields.get("protocol", TRAINER_PROTOCOL)
            other = protocol_problem(protocol, error.fields.get("version"))
            # It quotes what came, which may be what no message and no terminal can show.
            await connection.send(rank_messages.Refused(printable(other or str(error))))
            raise


def _place_is_taken(job: NodeJob, peer: Peer) -> bool:
    """Return whether a job has a launcher here that is another process."""
    there = job.facts.place.process
    return job.link.connected or (there is not None and there.pid != peer.pid)


def _taken(job: NodeJob, pid: int) -> str:
    return (
        f"job {job.facts.job} has a launcher on this node already, process {pid}; "
        f"stop it first ('kill {pid}'), or choose another name with --job"
    )


async def _other_launcher(job: NodeJob, pid: int) -> str | None:
    """Return why another launcher stands in the way, after waiting for one that just died."""
    before, launcher = job.facts.place.process, job.link.peer
    if launcher is not None and before is not None:
        if alive(before) and not launcher.is_hung_up():
            return _taken(job, before.pid)
        # The end of its connection is not read yet: this agent stood still.
        await launcher.close()
    absence, job.link.absence = job.link.absence, None
    if absence is None or absence.done():
        return None
    if before is not None and before.pid == pid:
        absence.cancel()
        await asyncio.wait([absence])
        return None
    if before is not None and alive(before):
        job.link.absence = absence
        return (
            f"the launcher of job {job.facts.job} on this node, process {before.pid}, is about to "
            "reconnect; stop it first"
        )
    await asyncio.wait([absence])
    return None


def _held_by(holder: int, rank: int, pid: int) -> str:
    """Return why a process does not get a place, with what to do about it."""
    if holder == pid:
        return (
            f"rank {rank} is attached already, by this very process: it has called everstep.init()"
            " twice, or before everstep.snapshots(). Call snapshots() and step() of what init()"
            " returned"
        )
    return f"rank {rank} is attached already, as process {holder}; end it first"
