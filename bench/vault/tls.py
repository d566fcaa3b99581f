"""Vault part: the cost of ``bulk_tls`` to a replica, beside none and raw TCP sendfile, in turn."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from harness.table import Row, Series
from harness.waits import until_idle
from vault.raw import GIB, Moved, raw_pair
from vault.replication import Replication

from fakes.authority import Authority

# Two pairs of nodes, each with slots and replicas, are 7 GiB of memory.
_BYTES = GIB // 2
# Steps that are not counted: until replicas reuse the memory of earlier ones.
_WARM = 4
_KINDS = ("raw sendfile, one stream", "replica of 0.5 GiB", "replica of 0.5 GiB, bulk_tls")


def measure(repeats: int) -> Iterator[Row]:
    """Measure and yield the figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="everstep-bench-")))
        authority = Authority(folder)
        for name in ("node-1", "node-2"):
            authority.issue(name, "agent")
        raw = stack.enter_context(raw_pair(_BYTES))
        plain, tls = Replication(stack, _BYTES), Replication(stack, _BYTES, folder)
        found: list[tuple[Moved, ...]] = []
        for step in range(1, repeats + _WARM + 1):
            until_idle()
            found.append((raw.move(), plain.move(step), tls.move(step)))
    yield from _figures(found[_WARM:])


def _figures(found: Sequence[tuple[Moved, ...]]) -> Iterator[Row]:
    raw, plain, tls = (
        Series(name, [_BYTES / 1e9 / moved.seconds for moved in moves], "GB/s")
        for name, moves in zip(_KINDS, zip(*found, strict=True), strict=True)
    )
    yield raw.figure()
    yield plain.against(raw)
    yield tls.against(raw)
    yield tls.against(plain)
    for kind, name in enumerate(_KINDS):
        moves = [round_[kind] for round_ in found]
        sent = [moved.sender_cpu_s * GIB / _BYTES for moved in moves]
        received = [moved.receiver_cpu_s * GIB / _BYTES for moved in moves]
        yield Series(f"{name}: CPU of the sender", sent, "s/GiB").figure()
        yield Series(f"{name}: CPU of the receiver", received, "s/GiB").figure()
