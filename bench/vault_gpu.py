"""Vault part: snapshots of a state on a GPU; the copy's rate, and its cost to a training step.

Runs in the interpreter that EVERSTEP_BENCH_TORCH names (one with a CUDA build of torch), else in
this one. EVERSTEP_BENCH_LAYERS and _WIDTH choose a transformer that fills the card.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from vault_figures import Figure, Series, Target
from vault_nodes import Talk, bench_node, bench_rank

_PYTHON = os.environ.get("EVERSTEP_BENCH_TORCH", sys.executable)
_LAYERS = os.environ.get("EVERSTEP_BENCH_LAYERS", "48")
_WIDTH = os.environ.get("EVERSTEP_BENCH_WIDTH", "4096")
_WARM = 5
_ASK = "import sys, torch; sys.exit(not torch.cuda.is_available())"


def measure(repeats: int) -> Iterator[Figure]:
    """Measure and yield the figures; without a GPU, one that says so."""
    if subprocess.run([_PYTHON, "-c", _ASK], stderr=subprocess.DEVNULL, check=False).returncode:
        yield Figure(name="no GPU here: not measured", value=0.0, unit="")
        return
    with bench_node("node-1") as node:
        arguments = (_LAYERS, _WIDTH)
        with bench_rank("vault_gpu_rank.py", node.environment(1), *arguments, python=_PYTHON) as r:
            copies = _answers(node.talk, r, "copy", 0, repeats)
            steps = _answers(node.talk, r, "round", repeats + _WARM, 3 * repeats)
    limit = Series("copy to pinned memory", [one[0] for one in copies], "GB/s")
    yield limit.figure()
    rate = Series("snapshot, waited for at once", [one[1] for one in copies], "GB/s")
    yield rate.against(limit, Target(0.9, at_least=True))
    without = Series("training step", [one[0] for one in steps])
    yield without.figure()
    yield Series("training step with a snapshot", [one[1] for one in steps]).against(
        without, Target(1.01)
    )
    yield Series("its call of snapshot()", [one[2] for one in steps]).against(without)


def _answers(node: Talk, rank: Talk, word: str, begun: int, count: int) -> list[Sequence[float]]:
    found: list[Sequence[float]] = []
    for step in range(begun + 1, begun + _WARM + count + 1):
        answer = rank.ask(word)
        assert isinstance(answer, list)
        found.append(answer)
        node.ask("verified", step)
        node.ask("recoverable", step)
    return found[_WARM:]
