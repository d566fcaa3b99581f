"""Job table: the jobs of a node by their ids, and which of them an order or a launcher is of.

A job has its id from the controller. Until that has answered, it is a launcher that waits, known by
the name that it gave. Then it gets its id, or is the launcher of a job that is here already, or of
one that goes on from what is kept of another: what has the copies of its lineage is that job then.
"""

import hmac
from collections.abc import Callable, Iterator
from typing import Protocol

from everstep_agent.ipc.peer import Peer
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.jobs.job.peers import LauncherPeer
from everstep_agent.jobs.state.facts import NOBODY, JobFacts, job_key
from everstep_common.job_ids import token_hash
from everstep_common.launcher_messages import Join
from everstep_common.orders import EndJob


def comes_back(facts: JobFacts, request: Join, peer: Peer) -> bool:
    """Return whether a launcher is of the job that the facts are about, and not of another one."""
    before = facts.place.process
    if request.job_id:
        return request.job_id == facts.job_id
    return before is not None and before.pid == peer.pid


def goes_on(facts: JobFacts, request: Join, uid: int) -> bool:
    """Return whether a launcher's job may go on from what is kept here of the one before it."""
    ours = hmac.compare_digest(facts.owner.token_sha256, token_hash(request.token))
    kept = facts.ended and facts.ending.leaves_state and facts.owner.uid == uid
    return kept and ours and not request.fresh


class JobSubject(Protocol):
    """Job that an order is about: its name, its id, and the lineage of its state."""

    @property
    def job(self) -> str:
        """Return its name."""
        ...

    @property
    def job_id(self) -> str:
        """Return its id."""
        ...

    @property
    def lineage_id(self) -> str:
        """Return the id of the job with which its lineage began."""
        ...


class JobTable:
    """All jobs of a node. Event loop only."""

    def __init__(
        self, make: Callable[[JobFacts], NodeJob], watch_launcher: Callable[[NodeJob], None]
    ) -> None:
        """``watch_launcher`` finds out what becomes of a launcher that is away, anew."""
        self._make = make
        self._watch_launcher = watch_launcher
        self._jobs: dict[str, NodeJob] = {}

    def __iter__(self) -> Iterator[NodeJob]:
        return iter(list(self._jobs.values()))

    def add(self, facts: JobFacts) -> NodeJob:
        """Return a new job."""
        job = self._jobs[facts.key] = self._make(facts)
        return job

    def remove(self, job: NodeJob) -> None:
        """Forget a job that is closed."""
        self._jobs.pop(job.facts.key, None)

    # --- who is who ------------------------------------------------------------------------------

    def named(self, name: str) -> list[NodeJob]:
        """Return the jobs of a name."""
        return [job for job in self if job.facts.job == name]

    def newest(self, name: str) -> NodeJob | None:
        """Return the job that has a name now: one that is not over, else the last one."""
        known = self.named(name)
        going_on = [job for job in known if not job.facts.ended]
        return next(reversed(going_on or known), None)

    def by_key(self, key: str) -> NodeJob | None:
        """Return the job of an id, or the newest of a name."""
        return self._jobs.get(key) or self.newest(key)

    def user_of(self, key: str) -> int:
        """Return the user of the job of an id, or of the newest of a name; NOBODY: not known."""
        job = self.by_key(key)
        if job is None:
            return NOBODY
        facts = job.facts
        return facts.place.uid if facts.place.uid != NOBODY else facts.owner.uid

    def _of_id(self, name: str, job_id: str) -> NodeJob | None:
        return self._jobs.get(job_key(name, job_id))

    def running(self, name: str, generation: int) -> NodeJob | None:
        """Return the job of a name that runs a generation here, else the one that has the name."""
        known = (job for job in self.named(name) if job.facts.plan.generation == generation)
        return next((job for job in known if job.facts.active), self.newest(name))

    def of_lineage(self, lineage: str) -> NodeJob | None:
        """Return the job that has the copies of a lineage here."""
        found = [job for job in self if job.facts.lineage == lineage]
        begun = (job for job in found if job.facts.begun)
        return next(begun, next((job for job in found if job.facts.lineage_id), None))

    def of_launcher(self, peer: LauncherPeer) -> NodeJob | None:
        """Return the job whose launcher this is; None when it is nobody's any more."""
        return next((job for job in self if job.link.peer is peer), None)

    def joined(self, request: Join, peer: Peer) -> NodeJob | None:
        """Return the job that a launcher comes back to; None for one that has none here yet."""
        known = self.named(request.job)
        return next((job for job in known if comes_back(job.facts, request, peer)), None)

    def of_new_launcher(self, request: Join) -> NodeJob:
        """Return what a launcher waits as until the controller has said which job it is of."""
        known = self._of_id(request.job, request.job_id)
        return known or self.add(JobFacts(request.job, request.job_id))

    def leave_others(self, job: NodeJob, peer: Peer) -> None:
        """A launcher that has come back to its job has no place in another of its name."""
        for other in self.named(job.facts.job):
            process = other.facts.place.process
            if other is not job and process is not None and process.pid == peer.pid:
                other.vacate_place()

    def is_awaited(self, job: NodeJob) -> bool:
        """Return whether a launcher waits here that may go on from what is kept of a job."""
        return any(
            waiting is not job
            and not waiting.facts.begun
            and waiting.facts.place.process is not None
            and waiting.link.request is not None
            and goes_on(job.facts, waiting.link.request, waiting.facts.place.uid)
            for waiting in self.named(job.facts.job)
        )

    # --- what the controller says ----------------------------------------------------------------

    def known(self, told: JobSubject) -> NodeJob | None:
        """Return the job that an order is about, if anything is known of it or of its state."""
        return self._of_id(told.job, told.job_id) or self.of_lineage(told.lineage_id)

    def to_end(self, end: EndJob) -> NodeJob | None:
        """Return the job that is to end; a launcher that was never answered may be all of it."""
        waiting = self._of_id(end.job, "")
        unanswered = None if waiting is not None and waiting.facts.begun else waiting
        return self._of_id(end.job, end.job_id) or unanswered

    def bind(self, told: JobSubject) -> NodeJob:
        """Return the job that an order is about, under its id from now on; a new one if need be."""
        own = self._of_id(told.job, told.job_id)
        holder = self.of_lineage(told.lineage_id)
        if holder is None or holder is own or (own is not None and own.facts.begun):
            job = own or self.add(JobFacts(told.job, told.job_id))
            self._identify(job, told)
            return job
        if own is not None:
            self._jobs.pop(own.facts.key)
        self._identify(holder, told)
        if own is not None:
            self._move_launcher(own, holder)
            own.retire()
        return holder

    def answer(self, told: JobSubject) -> NodeJob:
        """Return the job of an order that says which one the launcher of its name here is of."""
        waiting = self._waiting(told)
        if waiting is None:
            return self.bind(told)
        if self._of_id(told.job, told.job_id) is None and not waiting.facts.begun:
            self._identify(waiting, told)
            return self.bind(told)
        job = self.bind(told)
        if job is waiting:
            return job
        self._move_launcher(waiting, job)
        if waiting.facts.begun:
            waiting.record.vacate_place()
        else:
            self.remove(waiting)
            waiting.retire()
            waiting.context.store.forget(waiting.facts.key)
        return job

    def answer_if_here(self, told: JobSubject) -> NodeJob | None:
        """Do so where there is such a launcher, or anything of the job."""
        here = self.known(told) is not None or self._waiting(told) is not None
        return self.answer(told) if here else None

    def _waiting(self, told: JobSubject) -> NodeJob | None:
        """Return the one that has the launcher of this name, if that is to be another job's.

        There is one launcher of a name on a node at most; one whose processes run, or whose job is
        over, has its job.
        """
        for job in self.named(told.job):
            facts = job.facts
            here = job.link.connected or facts.place.process is not None
            settled = facts.active or facts.ended or facts.key == job_key(told.job, told.job_id)
            if here and not settled:
                return job
        return None

    def _identify(self, job: NodeJob, told: JobSubject) -> None:
        if not told.job_id:
            return
        self._jobs.pop(job.facts.key, None)
        job.identify(told.job_id, told.lineage_id)
        self._jobs[job.facts.key] = job

    def _move_launcher(self, one: NodeJob, other: NodeJob) -> None:
        absence, one.link.absence = one.link.absence, None
        other.take_launcher(one)
        if absence is not None and not absence.done():
            absence.cancel()
            self._watch_launcher(other)
