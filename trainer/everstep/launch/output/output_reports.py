"""Output reports: the newest lines of each rank, as the agent keeps them for 'everstep logs'."""

from collections.abc import Callable
from dataclasses import dataclass, field

from everstep_common.failures.tracebacks import uncoloured
from everstep_common.launcher_messages import OUTPUT_LINE_MAX, OUTPUT_LINES_MAX, OutputSeen

# Lines of a second go together.
_INTERVAL_S = 1.0
# Of all ranks of a node together in that time: enough to read, and no load for the agent.
_BYTES_MAX = 64 * 1024
# A rank alone among many has still its last sentence.
_OF_RANK_MIN = 1024


@dataclass(slots=True)
class _Waiting:
    lines: list[str] = field(default_factory=list)
    size: int = 0
    left_out: int = 0


class OutputReports:
    """Lines of one generation's ranks; of more than is read only the newest are told."""

    def __init__(self, tell: Callable[[object], None], monotonic: Callable[[], float]) -> None:
        self._tell = tell
        self._monotonic = monotonic
        self._generation = 0
        self._of_rank = _BYTES_MAX
        self._waiting: dict[int, _Waiting] = {}
        self._next_at = 0.0

    def begin(self, generation: int, ranks: int) -> None:
        """Another generation starts, with so many ranks here."""
        self.flush()
        self._generation = generation
        self._of_rank = max(_OF_RANK_MIN, _BYTES_MAX // max(1, ranks))

    def add(self, rank: int, line: bytes) -> None:
        """Take a line that a rank wrote."""
        text = uncoloured(line[:OUTPUT_LINE_MAX].decode(errors="replace")).expandtabs().rstrip()
        waiting = self._waiting.setdefault(rank, _Waiting())
        waiting.lines.append(text)
        waiting.size += len(text) + 1
        while len(waiting.lines) > 1 and (
            waiting.size > self._of_rank or len(waiting.lines) >= OUTPUT_LINES_MAX
        ):
            waiting.size -= len(waiting.lines.pop(0)) + 1
            waiting.left_out += 1

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called, if at all."""
        return max(0.0, self._next_at - self._monotonic()) if self._waiting else None

    def advance(self) -> None:
        """Tell what is due."""
        if self._waiting and self._monotonic() >= self._next_at:
            self.flush()

    def flush(self) -> None:
        """Tell all that waits now, as what comes next must not overtake it."""
        waiting, self._waiting = self._waiting, {}
        for rank, one in waiting.items():
            left_out = [f"… {one.left_out} lines were left out here …"] if one.left_out else []
            self._tell(OutputSeen(self._generation, rank, (*left_out, *one.lines)))
        self._next_at = self._monotonic() + _INTERVAL_S
