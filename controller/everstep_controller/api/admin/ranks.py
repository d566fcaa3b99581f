"""Ranks of a job: what they write and do, for operators and the job's user; asked of its nodes."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from everstep_common.orders import ReadOutput
from everstep_common.printable import printable
from everstep_controller.api.admin.askers import Looks
from everstep_controller.api.admin.errors import OrderRefusedError, UnknownNameError, job_named
from everstep_controller.api.admin.messages.collective_messages import look_message
from everstep_controller.api.admin.messages.fleet_messages import slow_line
from everstep_controller.api.fleet.node_questions import NodeQuestions
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.jobs.lifecycle import ACTIVE, STEPPING
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.core.model.state import State
from everstep_controller.core.planned.swaps import slow_parts
from everstep_controller.inspection.inspector import Inquiry, Inspector, NoAnswerError
from everstep_controller.inspection.scheduler import BusyError, Purpose
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.slow.collective_arrival.collective_finding import SeenLook
from everstep_controller.slow.live import SURE_ROWS, LiveFinding
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import Identity, Role

# Each is asked once a second by each who follows; of a larger job a rank is named.
NODES_MAX = 64
FOLLOWERS_MAX = 32
# Of these, viewers together, and one viewer: who never reads what was asked for keeps its place.
_OF_VIEWERS_MAX = 24
_OF_VIEWER_MAX = 4
_PAUSE_S = 1.0


class ReaderPlaces:
    """Places of those who read output now: no viewer keeps others, or an operator, from it."""

    def __init__(self) -> None:
        self._readers: Counter[Identity] = Counter()

    @contextmanager
    def place(self, who: Identity) -> Iterator[None]:
        """Keep a place for somebody who reads. Raises OrderRefusedError when there is none."""
        if self._readers.total() >= FOLLOWERS_MAX:
            raise OrderRefusedError(f"{FOLLOWERS_MAX} others read output now; try again later")
        if who.role is not Role.OPERATOR:
            self._check_viewer(who)
        self._readers[who] += 1
        try:
            yield
        finally:
            self._readers[who] -= 1
            self._readers += Counter()  # without those that are at 0

    def _check_viewer(self, who: Identity) -> None:
        if self._readers[who] >= _OF_VIEWER_MAX:
            raise OrderRefusedError(
                f"{who.name} reads output {_OF_VIEWER_MAX} times already; end one of these"
            )
        viewers = sum(n for one, n in self._readers.items() if one.role is not Role.OPERATOR)
        if viewers >= _OF_VIEWERS_MAX:
            raise OrderRefusedError(f"{viewers} other viewers read output now; try again later")


class JobLogs:
    """Output of jobs. Raises UnknownNameError, NotTheOwnerError and OrderRefusedError."""

    def __init__(self, runtime: Runtime, questions: NodeQuestions, looks: Looks) -> None:
        self._runtime, self._looks = runtime, looks
        self._questions = questions
        self._places = ReaderPlaces()

    async def read(
        self, request: admin_pb2.ReadLogsRequest, who: Identity
    ) -> AsyncGenerator[admin_pb2.LogLines, None]:
        """Yield what is kept, and with ``follow`` what comes, until the job has ended."""
        job = job_named(self._runtime.state, request.job)
        await self._looks.check(who, job, "output")
        rank = request.rank if request.HasField("rank") else None
        with self._places.place(who):
            async for lines in self._read(job.id, rank, follow=request.follow):
                yield lines

    async def _read(
        self, job_id: str, rank: int | None, *, follow: bool
    ) -> AsyncGenerator[admin_pb2.LogLines, None]:
        reader = _Reader(self._questions, rank)
        while True:
            job = self._runtime.state.jobs.get(job_id)
            if job is None:
                return
            ended = job.state is JobState.ENDED
            told = await reader.read_on(job)
            for lines in told:
                yield lines
            if not follow or (ended and not told):
                return
            await asyncio.sleep(_PAUSE_S)


class _Reader:
    """Position up to which each node's output was read, and the word on nodes without any."""

    def __init__(self, questions: NodeQuestions, rank: int | None) -> None:
        self._questions = questions
        self._rank = rank
        self._after: dict[str, int] = {}
        self._said: set[str] = set()

    async def read_on(self, job: JobRecord) -> list[admin_pb2.LogLines]:
        """Return what is new on all nodes."""
        nodes = nodes_of(job, self._rank)
        answers = await asyncio.gather(*(self._ask(node, job) for node in nodes))
        return [lines for answer in answers for lines in answer]

    async def _ask(self, node: str, job: JobRecord) -> list[admin_pb2.LogLines]:
        after = self._after.get(node, 0)
        try:
            read = await self._questions.read_output(
                node, ReadOutput("", job.name, job.id, self._rank, after)
            )
        except NoAnswerError as error:
            return self._note(node, str(error))
        if read.newest < after:  # its agent was restarted, and counts anew
            self._after[node] = 0
            return []
        if not after and not read.pieces:
            said = f"{node} has no output of {job.name}: none came since its agent started"
            return self._note(node, said)
        self._after[node] = read.newest
        return [answer(admin_pb2.LogLines, piece, node=node, note="") for piece in read.pieces]

    def _note(self, node: str, said: str) -> list[admin_pb2.LogLines]:
        if said in self._said:
            return []
        self._said.add(said)
        return [admin_pb2.LogLines(node=node, note=said)]


def nodes_of(job: JobRecord, rank: int | None) -> Sequence[str]:
    """Return the nodes that have output: of a rank where it runs, or ran last.

    Raises UnknownNameError, and OrderRefusedError for more nodes than are asked at once.
    """
    members = list(job.generation.members) or list(job.launchers)
    if rank is not None:
        if not job.generation.members or rank >= job.world_size:
            raise UnknownNameError(f"{job.name} has no rank {rank}; it has {job.world_size}")
        return [members[rank // job.spec.processes_per_node]]
    if len(members) > NODES_MAX:
        raise OrderRefusedError(
            f"{job.name} is on {len(members)} nodes; name a rank of it: "
            f"everstep logs {job.name} --rank 0"
        )
    return members


class JobStacks:
    """Looks at jobs. Raises UnknownNameError, NotTheOwnerError and OrderRefusedError."""

    def __init__(self, runtime: Runtime, inspector: Inspector, looks: Looks) -> None:
        self._runtime, self._looks = runtime, looks
        self._inspector = inspector

    async def inspect(
        self, request: admin_pb2.InspectJobRequest, who: Identity
    ) -> AsyncGenerator[admin_pb2.NodeInspection, None]:
        """Yield what each node tells of its ranks, the fastest first."""
        job = job_named(self._runtime.state, request.job)
        await self._looks.check(who, job, "stacks")
        generation = job.generation.number
        self._refuse_ending(job, generation)
        try:
            asked = Inquiry.now(Purpose.PERSON, job)
            async with aclosing(self._inspector.ask(asked)) as nodes:
                async for told in nodes:
                    self._refuse_ending(job, generation)
                    yield answer(admin_pb2.NodeInspection, told)
        except BusyError as error:
            raise OrderRefusedError(str(error)) from error

    def _refuse_ending(self, asked: JobRecord, generation: int) -> None:
        """Refuse a job whose ranks end by an order: they would look as if they had died."""
        job = self._runtime.state.jobs.get(asked.id, asked)
        more = f"'everstep why {job.name}' tells more"
        if job.generation.number != generation:
            past = reversed(incidents_of_job(self._runtime.state, job))
            why = next((f": {one.message}" for one in past if one.generation == generation), "")
            raise OrderRefusedError(
                f"generation {generation} of {job.name} was stopped meanwhile{why}; another one"
                f" runs now, or soon; {more}"
            )
        if job.state is JobState.STOPPING:
            raise OrderRefusedError(
                f"generation {generation} of {job.name} is being stopped: {job.reason}; {more}"
            )
        if job.state not in ACTIVE:
            raise OrderRefusedError(_without_ranks(job))


def _without_ranks(job: JobRecord) -> str:
    more = f"'everstep why {job.name}' tells more"
    return f"{job.name} has no ranks now: it is {job.state.value}; {more}"


# --- who makes the others wait -------------------------------------------------------------------

_NOTHING_TOLD = (
    "no rank tells how long it works itself, and steps take equally long for all: its script tells "
    "it by 'with everstep.waiting():' around its collectives, and completed steps by "
    "everstep.step(N)"
)


class SlowRanks:
    """Tells who is slow. Raises UnknownNameError, NotTheOwnerError and OrderRefusedError."""

    def __init__(
        self,
        runtime: Runtime,
        finding: Callable[[JobRecord], LiveFinding],
        look: Callable[[JobRecord], Awaitable[SeenLook | None]],
        looks: Looks,
    ) -> None:
        """``look`` looks at the collectives of a job's ranks, and takes seconds."""
        self._runtime, self._looks = runtime, looks
        self._finding = finding
        self._look = look

    async def judge(self, name: str, who: Identity) -> admin_pb2.Slowness:
        """Return what is known of a job's ranks."""
        job = job_named(self._runtime.state, name)
        await self._looks.check(who, job, "slowness")
        if job.state not in ACTIVE:
            raise OrderRefusedError(_without_ranks(job))
        seen = await self._look(job)
        now_ns = self._runtime.now_ns()
        return slowness_of(self._runtime.state, job, self._finding(job), seen, now_ns)


def slowness_of(
    state: State,
    job: JobRecord,
    finding: LiveFinding,
    seen: SeenLook | None = None,
    now_ns: int = 0,
) -> admin_pb2.Slowness:
    """Return who makes the others of a job wait, by what is known of its ranks."""
    verdict = finding.verdict
    parts = _newest(slow_parts(job), finding)
    sentence = _sentence(parts, finding)
    if not parts and seen is not None and _is_more(seen, finding):
        sentence = seen.finding.sentence
    elif not (parts or finding.rows) and job.state not in STEPPING:
        sentence = (
            f"{job.name} is {job.state.value}: who makes it wait shows when its ranks make steps"
        )
    return admin_pb2.Slowness(
        job=job.name,
        sentence=printable(sentence),
        slow=[slow_line(state, job, part) for part in parts],
        plan=job.slow.plan if parts else "",
        imbalances=[
            admin_pb2.ImbalanceLine(kind=one.kind.value, ratio=one.ratio, sentence=one.sentence)
            for one in (verdict.imbalances if verdict is not None else ())
        ],
        pauses=[one.sentence for one in verdict.pauses] if verdict is not None else (),
        watched=verdict.watched if verdict is not None else (),
        blind=[printable(one) for one in _blind(job, finding)],
        ranks=finding.ranks or job.world_size,
        telling=finding.telling,
        comparisons=finding.rows,
        lost_ratio=verdict.lost_ratio if verdict is not None else 0.0,
        generation=job.generation.number,
        collectives=look_message(seen, now_ns, parts, finding) if seen is not None else None,
    )


def _is_more(seen: SeenLook, finding: LiveFinding) -> bool:
    """Return whether a look tells more than ranks, which tell nothing, or too little by now."""
    if not finding.telling:
        return seen.finding.collectives > 0
    return not finding.is_sure and any(one.nominated for one in seen.finding.late)


def _newest(known: tuple[SlowPart, ...], finding: LiveFinding) -> list[SlowPart]:
    """Return who is known to be slow, with the newest numbers, and since when that is known."""
    newest = {(one.kind, one.name): one for one in finding.parts}
    return [
        replace(
            newest.get((one.kind, one.name), one),
            began_ns=one.began_ns,
            compared_ns=one.compared_ns,
        )
        for one in known
    ]


def _sentence(parts: list[SlowPart], finding: LiveFinding) -> str:
    verdict = finding.verdict
    if len(parts) > 1:
        names = ", ".join(f"{one.kind} {one.name}" for one in parts[:_NAMED_MAX])
        more = f" and {len(parts) - _NAMED_MAX} more" if len(parts) > _NAMED_MAX else ""
        return f"Slow: {names}{more}"
    if parts:
        return parts[0].sentence[:1].upper() + parts[0].sentence[1:]
    if not finding.telling:
        return "Nobody can be judged: no rank tells how long it works itself"
    if verdict is None or not finding.is_sure:
        return f"Nobody is known to be slow after {finding.rows} of {SURE_ROWS} comparisons"
    if verdict.imbalances:
        said = "Nobody can be named" if verdict.imbalances[0].is_open else "Nobody is slow"
        return f"{said}. {_capital(verdict.imbalances[0].sentence)}"
    if _is_lost_to_nobody(finding):
        lost = f"{verdict.lost_ratio:.0%} is lost to the slowest rank of each step"
        return f"{lost}, and nobody can be named for it"
    return "Nobody is slow"


# So much of the time is lost to somebody, or to work that is uneven.
_LOST = 0.05


def _is_lost_to_nobody(finding: LiveFinding) -> bool:
    verdict = finding.verdict
    return (
        verdict is not None
        and finding.is_sure
        and not (finding.parts or verdict.pauses)
        and all(one.is_open for one in verdict.imbalances)
        and verdict.lost_ratio >= _LOST
    )


def _unnamed(finding: LiveFinding) -> Iterator[str]:
    """Yield which node to look at where time is lost and nobody is named."""
    if finding.slowest is None or finding.fastest is None or not _is_lost_to_nobody(finding):
        return
    (slow, slow_s), (fast, fast_s) = finding.slowest, finding.fastest
    if slow_s <= (1 + _LOST) * fast_s:
        return
    yield (
        f"who is at fault: ranks of {slow} work {slow_s:.3g} s a step, of {fast} {fast_s:.3g} s, "
        f"and too many are alike to tell; where they do the same work, look at {slow}: 'everstep "
        f"node {slow}', and 'everstep check {slow} --pair' while no ranks run there"
    )


_NAMED_MAX = 8


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _blind(job: JobRecord, finding: LiveFinding) -> Iterator[str]:
    if not finding.telling:
        if job.state in STEPPING:
            yield _NOTHING_TOLD
    elif finding.telling < finding.ranks:
        missing = finding.ranks - finding.telling
        yield f"{missing} of {finding.ranks} ranks tell nothing of their own work"
    yield from _unnamed(finding)
    if finding.verdict is not None:
        yield from finding.verdict.blind
