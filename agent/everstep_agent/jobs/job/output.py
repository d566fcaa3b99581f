"""Output of a job's ranks on this node: the newest lines of each, read again by a number."""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from everstep_common.reports import OutputPiece, OutputRead
from everstep_common.trainer_messages import OutputSeen

# Some thousand lines of a rank; of 64 ranks the last hundred of each.
_OF_RANK_MAX = 256 * 1024
_OF_JOB_MAX = 1024 * 1024
# Of all jobs of one user, those included that are over: who has many gets less of each.
_OF_USER_MAX = 8 * 1024 * 1024
# In one answer: well below what a stream takes at once, and below what a terminal shows.
_ANSWER_MAX = 256 * 1024
# Four MiB at most, whatever they wrote.
_PAST_JOBS_MAX = 4


@dataclass(slots=True)
class _RankOutput:
    pieces: deque[OutputPiece] = field(default_factory=deque)
    size: int = 0


class OutputMemory:
    """Memory that the output of each user's jobs takes."""

    def __init__(self) -> None:
        self._used: Counter[int] = Counter()

    def count_bytes(self, uid: int, size: int) -> None:
        """Count what a user's jobs take more, or less."""
        self._used[uid] += size
        if not self._used[uid]:
            del self._used[uid]

    def is_full(self, uid: int) -> bool:
        """Return whether a user's jobs take more than they may."""
        return self._used[uid] > _OF_USER_MAX


class JobOutput:
    """Newest output of each rank of a job here, in memory only."""

    def __init__(self, memory: OutputMemory) -> None:
        self._memory = memory
        self._uid = -1
        self._ranks: dict[int, _RankOutput] = {}
        self._sequence = 0
        self._size = 0

    @property
    def empty(self) -> bool:
        """Return whether no rank has written anything."""
        return not self._ranks

    def add(self, seen: OutputSeen, uid: int) -> None:
        """Keep what a rank of a user wrote, in the place of what is oldest."""
        if uid != self._uid:
            self.clear()  # another user's launcher has nothing to do with what was before
            self._uid = uid
        self._sequence += 1
        piece = OutputPiece(seen.rank, seen.generation, self._sequence, seen.lines)
        rank = self._ranks.setdefault(seen.rank, _RankOutput())
        rank.pieces.append(piece)
        rank.size += _size(piece)
        self._count(_size(piece))
        while rank.size > _OF_RANK_MAX:
            self._drop_oldest(seen.rank)
        while self._ranks and (self._size > _OF_JOB_MAX or self._memory.is_full(uid)):
            self._drop_oldest(max(self._ranks, key=lambda one: self._ranks[one].size))

    def clear(self) -> None:
        """Keep nothing any more."""
        self._ranks.clear()
        self._count(-self._size)

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
        self._size += size
        self._memory.count_bytes(self._uid, size)


class PastOutput:
    """Output of the newest jobs that the node has forgotten otherwise."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, JobOutput] = OrderedDict()

    def keep(self, job_id: str, output: JobOutput) -> None:
        """Keep what a job wrote, in the place of the one that ended longest ago."""
        if output.empty:
            return
        self._jobs[job_id] = output
        self._jobs.move_to_end(job_id)
        while len(self._jobs) > _PAST_JOBS_MAX:
            self._jobs.popitem(last=False)[1].clear()

    def of(self, job_id: str) -> JobOutput | None:
        """Return what a job wrote; None where nothing is kept."""
        return self._jobs.get(job_id)


def _size(piece: OutputPiece) -> int:
    # A line costs more than its letters.
    return sum(len(line) + 64 for line in piece.lines) + 128
