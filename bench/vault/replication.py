"""Vault part: the rate of a replica from one agent's process to another's, beside raw sendfile.

The seconds are from the controller's order until the other agent has acknowledged the root hash:
finding a place for it, sending, hashing what came, and storing what is known of it.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from harness.processes import cpu_s
from harness.table import Row, Series, Target
from harness.talk import Talk
from harness.waits import until_idle, until_quiet
from vault.nodes import bench_node, bench_rank
from vault.raw import GIB, Moved, RawPair, raw_pair

_BYTES = GIB
_TENSORS = 32
# Steps that are not counted: until replicas reuse the memory of earlier ones.
_WARM = 4


class Replication:
    """Two nodes, and a rank on the first. With certificates, copies travel inside TLS."""

    def __init__(
        self, stack: ExitStack, size_bytes: int = _BYTES, certificates: Path | None = None
    ) -> None:
        self._from, self._to = (
            stack.enter_context(bench_node(name, certificates=certificates))
            for name in ("node-1", "node-2")
        )
        self._rank: Talk = stack.enter_context(
            bench_rank("vault.state_rank", self._from.environment(1), size_bytes, _TENSORS)
        )
        self._to.talk.ask("recoverable", 0)  # this is how it learns the transfer key

    def move(self, step: int) -> Moved:
        """Save a step, and when it is verified have it replicated."""
        self._from.talk.ask("recoverable", step - 1)  # and no target until the step is verified
        self._rank.ask("save_at_last", step)
        self._from.talk.ask("verified", step)
        for node in (self._from, self._to):
            until_quiet(node.talk.pid)
        until_idle()
        before = self._cpus()
        address = self._to.talk.ask("address")
        seconds = self._from.talk.seconds("replicate", step, "node-2", address)
        self._to.talk.ask("recoverable", step)
        cpus = [after - early for after, early in zip(self._cpus(), before, strict=True)]
        return Moved(seconds, *cpus)

    def _cpus(self) -> Sequence[float]:
        return [cpu_s(node.talk.pid) for node in (self._from, self._to)]


def measure(repeats: int) -> Iterator[Row]:
    """Measure and yield the figures."""
    with ExitStack() as stack:
        raws: list[RawPair] = [stack.enter_context(raw_pair(_BYTES, streams)) for streams in (1, 2)]
        vault = Replication(stack)
        found: list[tuple[Moved, ...]] = []
        for step in range(1, repeats + _WARM + 1):
            until_idle()
            found.append((*(raw.move() for raw in raws), vault.move(step)))
    yield from _figures(found[_WARM:])


def _figures(found: Sequence[tuple[Moved, ...]]) -> Iterator[Row]:
    raw, double, vault = (
        Series(name, [GIB / 1e9 / moved.seconds for moved in moves], "GB/s")
        for name, moves in zip(
            ("raw sendfile, one stream", "raw sendfile, two streams", "replica of 1 GiB"),
            zip(*found, strict=True),
            strict=True,
        )
    )
    yield raw.figure()
    yield double.against(raw)
    yield vault.against(raw, Target(0.8, at_least=True))
    yield vault.against(double)
    for name, kind, target in (("raw sendfile", 0, None), ("replica", 2, Target(0.35))):
        moves = [round_[kind] for round_ in found]
        sent = [moved.sender_cpu_s for moved in moves]
        received = [moved.receiver_cpu_s for moved in moves]
        yield Series(f"{name}: CPU of the sender", sent, "s/GiB").figure(target)
        yield Series(f"{name}: CPU of the receiver", received, "s/GiB").figure(target)
