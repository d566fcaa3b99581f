"""Vault part: training stalled by a snapshot of 2 GiB, beside memcpy, DLRover and torch DCP.

Everstep's rank is started as `everstep run` starts it: where glibc takes the caches for larger
than they are, its memcpy is told better. memcpy runs in such a process and in a plain one; the
peers run in the plain one, as their launchers start it. All take turns in each round.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from harness import peers as vault_peers
from harness.table import Row, Series, Target
from harness.talk import Talk
from harness.waits import need_memory
from vault.nodes import BenchNode, bench_node, bench_rank, plain_environment

TENSORS = 64
TENSOR_BYTES = 32 * 1024 * 1024
# The first snapshot into each slot is measured apart.
SLOTS = 2
# Two states, two copies of them, the slots, and what DLRover and DCP keep; torch itself.
_NEEDED_BYTES = 18 * 1024**3
_PLAIN = ("memcpy1", "memcpy2", "dlrover2", "dlrover1", "dcp")
_TUNED = ("memcpy1", "memcpy2", "everstep")
_NAMES = {
    "plain memcpy1": "memcpy, one thread",
    "plain memcpy2": "memcpy, two threads",
    "tuned memcpy1": "memcpy as the launcher tunes it, one thread",
    "tuned memcpy2": "memcpy as the launcher tunes it, two threads",
    "plain dlrover2": "DLRover flash checkpoint, MEMORY, two threads",
    "plain dlrover1": "DLRover flash checkpoint, MEMORY, one thread",
    "plain dcp": "torch DCP async_save, default stager, two threads",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting: the processes on the rank's node, and so its threads; the contenders."""

    processes: int
    threads: str
    plain: tuple[str, ...]
    tuned: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranks:
    """A process as Everstep starts it, and one as others do."""

    node: BenchNode
    plain: Talk
    tuned: Talk

    def round(self, setting: Setting, step: int) -> Mapping[str, float]:
        """Let each contender save once."""
        took = {}
        for name in setting.plain:
            took[f"plain {name}"] = self.plain.seconds(name, step)
        for name in setting.tuned:
            took[f"tuned {name}"] = self.tuned.seconds(name, step)
        self.node.talk.ask("verified", step)
        self.node.talk.ask("recoverable", step)
        return took


def rounds(setting: Setting, repeats: int) -> dict[str, Series]:
    """Return what each contender took."""
    sizes = (TENSORS, TENSOR_BYTES)
    with ExitStack() as stack:
        node = stack.enter_context(bench_node("node-1", SLOTS))

        def rank(environment: Mapping[str, str], names: tuple[str, ...]) -> Talk:
            python = vault_peers.python()
            started = bench_rank("vault.stall_rank", environment, *sizes, *names, python=python)
            return stack.enter_context(started)

        tuned = rank(node.environment(1, setting.processes), setting.tuned)
        ranks = Ranks(node, rank(plain_environment(), setting.plain), tuned)
        found = [ranks.round(setting, step) for step in range(1, repeats + SLOTS + 1)]
    ours = f"snapshot(), 2 GiB, {setting.threads}"
    names = {**_NAMES, "tuned everstep": ours}
    warm = {key: Series(names[key], [one[key] for one in found[SLOTS:]]) for key in found[0]}
    first = Series(
        f"{ours}, first into each slot", [one["tuned everstep"] for one in found[:SLOTS]]
    )
    limit = Series(_NAMES["plain memcpy1"], [one["plain memcpy1"] for one in found[:SLOTS]])
    return warm | {"first": first, "limit of the first": limit}


def measure(repeats: int) -> Iterator[Row]:
    """Measure everything and yield the figures. Raises SystemExit without the memory for it."""
    need_memory(_NEEDED_BYTES)
    setting = Setting(2, "one thread", ("memcpy1",), ("memcpy1", "everstep"))
    one = rounds(setting, repeats)
    yield one["plain memcpy1"].figure()
    yield one["tuned memcpy1"].against(one["plain memcpy1"])
    yield one["tuned everstep"].against(one["plain memcpy1"], Target(1.05))
    yield one["tuned everstep"].against(one["tuned memcpy1"])
    yield one["first"].against(one["limit of the first"])
    two = rounds(Setting(1, "two threads", _PLAIN, _TUNED), repeats)
    plain, ours = two["plain memcpy1"], two["tuned everstep"]
    yield plain.figure()
    for name in ("plain memcpy2", "tuned memcpy1", "tuned memcpy2"):
        yield two[name].against(plain)
    yield ours.against(plain, Target(0.55))
    yield ours.against(two["plain memcpy2"])
    yield ours.against(two["tuned memcpy2"])
    for peer, bound in (("dlrover2", Target(0.75)), ("dlrover1", None), ("dcp", Target(0.4))):
        yield two[f"plain {peer}"].against(plain)
        yield ours.against(two[f"plain {peer}"], bound)
