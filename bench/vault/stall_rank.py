"""Rank of a vault benchmark: saves one state in several ways, and answers with their seconds.

Arguments: tensors, bytes of each, names of contenders. "NAME STEP" → seconds.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import cache

import torch
from harness.talk import serve
from vault.contenders import Contender, Dcp, Everstep, Memcpy, SharedCopy, State, timed
from vault.dlrover_peer import Dlrover, DlroverSaver, end_dlrover


def contenders(names: list[str], state: State) -> dict[str, Contender]:
    """Return those that were asked for."""
    copy = cache(lambda: SharedCopy(state))
    saver = cache(lambda: DlroverSaver(state))
    known: dict[str, Callable[[], Contender]] = {
        "memcpy1": lambda: Memcpy(copy(), 1),
        "memcpy2": lambda: Memcpy(copy(), 2),
        "everstep": lambda: Everstep(state),
        "dcp": lambda: Dcp(state),
        "dlrover1": lambda: Dlrover(saver(), 1),
        "dlrover2": lambda: Dlrover(saver(), 2),
    }
    return {name: known[name]() for name in names}


def _end(*_: object) -> None:
    end_dlrover()
    os._exit(0)  # its threads would keep the process


def main(count: int, size_bytes: int, names: list[str]) -> None:
    """Serve until standard input ends."""
    state = {f"layer-{number}": torch.rand(size_bytes // 4) for number in range(count)}
    chosen = contenders(names, state)
    signal.signal(signal.SIGTERM, _end)
    serve(lambda words: timed(chosen[words[0]], int(words[1])))
    _end()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
