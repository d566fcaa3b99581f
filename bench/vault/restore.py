"""Vault part: a rank's wait for its state, verified: 2 GiB of its own node, 1 GiB of a peer's.

Each round is a new generation, whose rank is a new process, as after a fault; its arrays have all
their pages. memcpy runs in that process, which is started as `everstep run` starts it; raw TCP runs
beside it in the same round. As soon as the plan comes, while the process starts, the agent verifies
the state and makes the new generation's slots; what is left of that is asked for after the restore
and is a figure of its own. The agent's hashing, over by then, is measured besides; "hashing
included" is the sum: the wait of a rank that needs no time to start. A fetch is timed from the plan
until the copy is here and verified.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harness.table import Row, Series, Target
from harness.waits import need_memory, until_idle, until_quiet
from vault.nodes import BenchNode, bench_node, bench_rank
from vault.raw import GIB, raw_pair

_BYTES = 2 * GIB
# Four processes have as much each, in and out of the raw pairs.
_PEER_BYTES = GIB
_TENSORS = 64
# The least: slots of the old generation and of the new one are there at once.
_SLOTS = 2


def save(node: BenchNode, size_bytes: int) -> object:
    """Have a rank save step 1 and end; return the copy as a plan names it."""
    with bench_rank("vault.state_rank", node.environment(1), size_bytes, _TENSORS) as rank:
        rank.ask("save_at_last", 1)
        node.talk.ask("verified", 1)
    return node.talk.ask("source", 1)


@dataclass(frozen=True, slots=True)
class Restored:
    """Waits of a rank for its state, in seconds."""

    state_s: float
    slots_s: float
    memcpy_s: float
    # Seconds that its node took to verify as many bytes, before the rank asked.
    hash_s: float = 0.0

    @property
    def with_hash_s(self) -> float:
        """Return how long it would have waited for both."""
        return self.state_s + self.hash_s


def restored(node: BenchNode, generation: int, size_bytes: int) -> Restored:
    """Return what a new rank of a generation waited for, and what memcpy took there."""
    environment = node.environment(generation)
    with bench_rank("vault.state_rank", environment, size_bytes, _TENSORS) as rank:
        until_quiet(node.talk.pid)
        rank.ask("memcpy")
        until_idle()
        memcpy_s = rank.seconds("memcpy")
        until_idle()
        state_s = rank.seconds("restore")
        return Restored(state_s, rank.seconds("slots"), memcpy_s)


def own(repeats: int) -> Iterator[Row]:
    """Yield the figures of a restore from the node's own memory."""
    found = []
    with bench_node("node-1", _SLOTS) as node:
        source = save(node, _BYTES)
        for generation in range(2, repeats + 2):
            node.talk.ask("start", generation, source)
            one = restored(node, generation, _BYTES)
            until_quiet(node.talk.pid)
            found.append(replace(one, hash_s=node.talk.seconds("hash", 1)))
    bare = Series(
        "memcpy of 2 GiB in the same process, one thread", [one.memcpy_s for one in found]
    )
    yield bare.figure()
    ours = Series("restore from own memory, two threads", [one.state_s for one in found])
    yield ours.against(bare, Target(1.2))
    hashed = Series("xxh3 of 2 GiB by the agent, as it verifies", [one.hash_s for one in found])
    yield hashed.against(bare)
    whole = [one.with_hash_s for one in found]
    yield Series("restore from own memory, hashing included", whole).against(bare)
    yield Series("after it, until the new slots are there", [one.slots_s for one in found]).figure()


def fetched(node: BenchNode, source: object) -> tuple[float, float]:
    """Return how long a node without the copy took to get it, and until it was in the arrays."""
    until_quiet(node.talk.pid)
    until_idle()
    fetch_s = node.talk.seconds("fetch", 2, source)
    return fetch_s, fetch_s + restored(node, 2, _PEER_BYTES).state_s


def raw_s(*, new: bool, used: bool) -> float:
    """Return how long raw TCP takes, the second time: one pair after the other has its memory."""
    with raw_pair(_PEER_BYTES, new=new, used=used) as raw:
        raw.move()
        until_idle()
        return raw.move().seconds


def peer(repeats: int) -> Iterator[Row]:
    """Yield the figures of a restore from another node, on new nodes in each round."""
    found: list[tuple[float, ...]] = []
    with bench_node("node-1", _SLOTS) as holder:
        source = save(holder, _PEER_BYTES)
        holder.talk.ask("start", 2, source)
        for _ in range(repeats):
            times = [raw_s(new=new, used=used) for used in (False, True) for new in (False, True)]
            for spare in (True, False):
                with bench_node("node-2", _SLOTS, spare=spare) as node:
                    if spare:
                        need_memory((2 + _SLOTS) * _PEER_BYTES)
                        node.talk.ask("wait_as_spare", _PEER_BYTES)
                    times += fetched(node, source)
            found.append(tuple(times))
    yield from _peer_figures(found)


def _peer_figures(found: Sequence[tuple[float, ...]]) -> Iterator[Row]:
    bare, fresh, used, fresh_used, spare, ours, late, late_ours = (
        Series(name, values)
        for name, values in zip(
            (
                "raw sendfile of 1 GiB, one stream",
                "raw sendfile of 1 GiB into new memory",
                "raw sendfile of 1 GiB, hashed as it comes, then copied by two threads",
                "raw sendfile of 1 GiB into new memory, hashed and copied like it",
                "1 GiB fetched from a peer and verified, by a spare",
                "restore of 1 GiB from a peer, on a spare: fetched, verified, in the arrays",
                "1 GiB fetched from a peer and verified, unprepared",
                "restore of 1 GiB from a peer, unprepared",
            ),
            map(list, zip(*found, strict=True)),
            strict=True,
        )
    )
    yield bare.figure()
    yield fresh.against(bare)
    yield used.against(bare)
    yield fresh_used.against(bare)
    yield spare.against(bare)
    yield ours.against(bare, Target(1.3))
    yield ours.against(used)
    yield late.against(fresh)
    yield late_ours.against(bare)
    yield late_ours.against(fresh_used)


def measure(repeats: int) -> Iterator[Row]:
    """Measure and yield the figures."""
    repeats = max(2, repeats // 2)  # each round starts processes and takes new memory
    yield from own(repeats)
    yield from peer(repeats)
