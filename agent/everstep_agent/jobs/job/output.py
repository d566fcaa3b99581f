"""Output of a job's ranks on this node: the newest lines of each, read again by a number."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from everstep_common.launcher_messages import OutputSeen
from everstep_common.reports import OutputPiece, OutputRead

# Some thousand lines of a rank; of 64 ranks the last hundred of each.
_OF_RANK_MAX = 256 * 1024
_OF_JOB_MAX = 1024 * 1024
# Of all jobs of one user, those included that are over: who has many gets less of each.
_OF_USER_MAX = 8 * 1024 * 1024
# In one answer: well below what a stream takes at once, and below what a terminal shows.
_ANSWER_MAX = 256 * 1024
# Of each user's jobs that are over, so that nobody's jobs take the place of another's; and of all:
# sixteen MiB at most, whatever they wrote.
_PAST_JOBS_OF_USER_MAX = 4
_PAST_JOBS_MAX = 16


@dataclass(slots=True)
class _RankOutput:
    pieces: deque[OutputPiece] = field(default_factory=deque)
    size: int = 0


class OutputMemory:
    """Memory that the output of each user's jobs takes, and those that take it."""

    def __init__(self) -> None:
        self._used: Counter[int] = Counter()
        self._jobs: dict[int, dict[JobOutput, None]] = {}

    def count_bytes(self, job: "JobOutput", size: int) -> None:
        """Count what a job takes more, or less."""
        self._used[job.uid] += size
        if job.size:
            self._jobs.setdefault(job.uid, {})[job] = None
            return
        self._jobs.get(job.uid, {}).pop(job, None)
        if not self._jobs.get(job.uid):
            self._jobs.pop(job.uid, None)
            del self._used[job.uid]

    def limit(self, uid: int) -> None:
        """Drop what is oldest of a user's longest outputs, so that each job has its share."""
        while self._used[uid] > _OF_USER_MAX:
            max(self._jobs[uid], key=lambda job: job.size).drop_oldest()

    def used(self, uid: int) -> int:
        """Return how many bytes a user's jobs take."""
        return self._used[uid]


class JobOutput:
    """Newest output of each rank of a job here, in memory only."""

    def __init__(self, memory: OutputMemory) -> None:
        self.uid = -1
        self.size = 0
        self._memory = memory
        self._ranks: dict[int, _RankOutput] = {}
        self._sequence = 0

    @property
    def empty(self) -> bool:
        """Return whether no rank has written anything."""
        return not self._ranks

    def add(self, seen: OutputSeen, uid: int) -> None:
        """Keep what a rank of a user wrote, in the place of what is oldest."""
        if uid != self.uid:
            self.clear()  # another user's launcher has nothing to do with what was before
            self.uid = uid
        self._sequence += 1
        piece = OutputPiece(seen.rank, seen.generation, self._sequence, seen.lines)
        rank = self._ranks.setdefault(seen.rank, _RankOutput())
        rank.pieces.append(piece)
        rank.size += _size(piece)
        self._count(_size(piece))
        while rank.size > _OF_RANK_MAX:
            self._drop_oldest(seen.rank)
        while self.size > _OF_JOB_MAX:
            self.drop_oldest()
        self._memory.limit(uid)

    def drop_oldest(self) -> None:
        """Drop the oldest piece of the rank that has most."""
        self._drop_oldest(max(self._ranks, key=lambda one: self._ranks[one].size))

    def clear(self) -> None:
        """Keep nothing any more."""
        self._ranks.clear()
        self._count(-self.size)

    def read(self, read_id: str, rank: int | None, after: int) -> OutputRead:
        """Return what came after a number; at first the newest, later the oldest of it."""
        found = sorted(self._after(rank, after), key=lambda piece: piece.sequence)
        taken: list[OutputPiece] = []
        size = 0
        for piece in found if after else reversed(found):
            size += _size(piece)
            if taken and size > _ANSWER_MAX:
                break
            taken.append(piece)
        taken.sort(key=lambda piece: piece.sequence)
        # An older agent may have counted further: who asks begins anew then.
        newest = taken[-1].sequence if taken else min(after, self._sequence)
        return OutputRead(read_id, known=True, newest=newest, pieces=tuple(taken))

    def _after(self, rank: int | None, after: int) -> Iterator[OutputPiece]:
        for number, output in self._ranks.items():
            if rank in (None, number):
                yield from (piece for piece in output.pieces if piece.sequence > after)

    def _drop_oldest(self, rank: int) -> None:
        output = self._ranks[rank]
        size = _size(output.pieces.popleft())
        output.size -= size
        self._count(-size)
        if not output.pieces:
            del self._ranks[rank]

    def _count(self, size: int) -> None:
        self.size += size
        self._memory.count_bytes(self, size)


class PastOutput:
    """Output of each user's newest jobs that the node has forgotten otherwise."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, JobOutput] = OrderedDict()

    def keep(self, job_id: str, output: JobOutput) -> None:
        """Keep what a job wrote, in the place of its user's job that ended longest ago.

        Where too many users have some, the one with most jobs loses one.
        """
        if output.empty:
            return
        before = self._jobs.get(job_id)
        if before is not None and before is not output:
            before.clear()  # of a part that the node had in the same job before
        self._jobs[job_id] = output
        self._jobs.move_to_end(job_id)
        while self._counts()[output.uid] > _PAST_JOBS_OF_USER_MAX:
            self._drop_oldest_of(output.uid)
        while len(self._jobs) > _PAST_JOBS_MAX:
            self._drop_oldest_of(self._counts().most_common(1)[0][0])

    def of(self, job_id: str) -> JobOutput | None:
        """Return what a job wrote; None where nothing is kept."""
        return self._jobs.get(job_id)

    def _counts(self) -> Counter[int]:
        return Counter(output.uid for output in self._jobs.values())

    def _drop_oldest_of(self, uid: int) -> None:
        oldest = next(key for key, output in self._jobs.items() if output.uid == uid)
        self._jobs.pop(oldest).clear()


def _size(piece: OutputPiece) -> int:
    # A line costs more than its letters.
    return sum(len(line) + 64 for line in piece.lines) + 128
