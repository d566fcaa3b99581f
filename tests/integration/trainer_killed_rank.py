"""A training process for tests: the real library, killed before a piece of its last step's copy.

Arguments: socket, generation, rank, ranks, the step that `restore` has to return (-1: none), the
last step, and the piece of its copy before which the process dies (-1: it does not). The state is
a function of rank and step, and what is restored has to be it.
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from everstep.copy_engine.memory import Copier, Copy, Work
from everstep.rank.agent_link import AgentLink
from everstep.rank.environment import membership
from everstep.saving.policy import Policy
from everstep.saving.snapshotter import Snapshots
from everstep.saving.step_saving import Tools
from everstep.state.capture import capture_of
from everstep.state.shards.parts import Place

_SIZES = (9000, 1, 5000, 40)
_PIECE_BYTES = 1024
# Of the arrays, the structures and the random state; a piece beyond the last: after all of them.
PIECES = 28
_PATIENCE_S = 20.0


class Dying(Copier):
    """Copies in small pieces by two threads, and dies before one of them, once it is told which."""

    piece = -1

    def copy(self, copies: Sequence[Copy]) -> None:
        """See Copier."""
        self.share(self.work(copies))

    def work(self, copies: Sequence[Copy]) -> Work:
        """See Copier."""
        calls: list[Callable[[], None]] = [
            partial(self._move, copy, at)
            for copy in copies
            for at in range(0, copy.size_bytes, _PIECE_BYTES)
        ]
        if self.piece >= 0:
            calls.insert(self.piece, partial(os.kill, os.getpid(), signal.SIGKILL))
        return Work(calls)

    def _move(self, copy: Copy, at: int) -> None:
        size = min(_PIECE_BYTES, copy.size_bytes - at)
        part = Copy(copy.to_address + at, copy.from_address + at, size)
        super().work([part]).take_part()


class State:
    """Arrays, and a list that grows in front of other shards."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.arrays = [bytearray(size) for size in _SIZES]
        self.progress: dict[str, object] = {"losses": []}

    def parts(self) -> dict[str, object]:
        arrays = {f"a{number}-{self.rank}": array for number, array in enumerate(self.arrays)}
        return {"progress": self.progress, **arrays}

    def become(self, step: int) -> None:
        """Be the state after a step, in the same memory."""
        for number, array in enumerate(self.arrays):
            word = f"step {step} rank {self.rank} array {number} ".encode()
            array[:] = (word * (len(array) // len(word) + 1))[: len(array)]
        self.progress["losses"] = [0.5 + step] * (40 * step)

    def is_after(self, step: int) -> bool:
        other = State(self.rank)
        other.become(step)
        return (self.arrays, self.progress) == (other.arrays, other.progress)


def main(path: str, generation: int, rank: int, ranks: int, known: int, *more: int) -> None:
    last, piece = more
    member = membership(
        {
            "EVERSTEP_SOCKET": path,
            "EVERSTEP_JOB": "demo",
            "EVERSTEP_GENERATION": str(generation),
            "EVERSTEP_TOKEN": "secret",
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
        }
    )
    assert member is not None
    link, copier, state = AgentLink(member), Dying(2), State(rank)
    assert link.attach(_PATIENCE_S)
    capture = capture_of(state.parts(), Place(rank, ranks))
    snapshots = Snapshots(capture, link, Tools(copier), policy=Policy(raises=True))
    assert snapshots.restore() == (known if known >= 0 else None)
    assert known < 0 or state.is_after(known)
    for step in range(known + 1, last + 1):
        state.become(step)
        copier.piece = piece if step == last else -1
        assert snapshots.snapshot(step)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
