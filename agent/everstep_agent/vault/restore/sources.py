"""Copy sources: where copies of a state can be had, and which of them to restore from. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from everstep_agent.vault.snapshots.copies import CopyRef
from everstep_agent.vault.snapshots.file_tier import FileCopy
from everstep_agent.vault.snapshots.restore_plan import copy_named_by
from everstep_common.long_frames import Parts
from everstep_common.orders import ShardSource

# Names of shards that are looked up at once, which takes half a millisecond.
_NAMES = 4096


class SourceTier(Enum):
    """Kinds of sources, best first: in this order they are tried."""

    OWN_MEMORY = "own memory"
    PEER_MEMORY = "peer memory"
    LOCAL_DISK = "local disk"
    SHARED_STORAGE = "shared storage"


_ORDER: Mapping[SourceTier, int] = {tier: order for order, tier in enumerate(SourceTier)}


@dataclass(frozen=True, slots=True)
class CopySource:
    """One copy in one place. ``node`` and ``address`` are empty where no other agent is asked."""

    tier: SourceTier
    copy: CopyRef
    layout: bytes = b""
    node: str = ""
    address: str = ""

    @property
    def part(self) -> bytes:
        """Return which part of the state it is; a copy of unknown layout is a part of its own."""
        return self.layout or str(self.copy.key).encode()

    def __str__(self) -> str:
        return f"{self.tier.value} of {self.node}" if self.node else self.tier.value


def sources_of_plan(
    named: Iterable[ShardSource], held: Iterable[CopyRef], here: str
) -> list[CopySource]:
    """Return the sources of a plan as this node sees them; what it holds itself is one, too."""
    known = set(held)
    sources: dict[CopySource, None] = {}
    for one in named:
        wanted, layout = copy_named_by(one), bytes.fromhex(one.layout)
        if wanted in known:
            sources[CopySource(SourceTier.OWN_MEMORY, wanted, layout)] = None
        source = _named(one, wanted, layout, here)
        if source is not None:
            sources[source] = None
    return sorted(sources, key=lambda source: _ORDER[source.tier])


def _named(one: ShardSource, wanted: CopyRef, layout: bytes, here: str) -> CopySource | None:
    tier = SourceTier.LOCAL_DISK if one.on_disk else SourceTier.PEER_MEMORY
    if one.node != here:
        return CopySource(tier, wanted, layout, one.node, one.bulk_address)
    return CopySource(tier, wanted, layout) if one.on_disk else None


def sources_in_storage(files: Iterable[FileCopy]) -> list[CopySource]:
    """Return the files of a stored step as sources."""
    return [CopySource(SourceTier.SHARED_STORAGE, file.copy, file.layout) for file in files]


def own_parts(sources: Iterable[CopySource], rank: int) -> dict[bytes, bytes]:
    """Return the parts that a rank saved itself, with the root hash of what it saved."""
    return {one.part: one.copy.root_hash for one in sources if one.copy.key.rank == rank}


def without_other_ranks(
    sources: Iterable[CopySource], own: Mapping[bytes, bytes]
) -> list[CopySource]:
    """Return the sources without what others saved under the same names as ``own``.

    Copies of one part are equal, as a rule; ranks that saved different bytes each get theirs back.
    """
    return [one for one in sources if own.get(one.part, one.copy.root_hash) == one.copy.root_hash]


def choose_in_parts(
    contents: Sequence[tuple[CopySource, frozenset[str]]], missing: Set[str]
) -> Parts[list[CopySource]]:
    """Return sources that together have as much as possible of what is missing.

    A better tier first, whatever its size; within a tier the one that brings most, and of equal
    ones the smallest. Nothing is taken twice.
    """
    left, chosen = set(missing), list[CopySource]()
    for tier in SourceTier:
        rest = {source: names for source, names in contents if source.tier is tier}
        while rest and left:
            brings: dict[CopySource, int] = {}
            for source, names in rest.items():
                brings[source] = yield from _common(names, left)
            best = max(rest, key=lambda one: (brings[one], -one.copy.size_bytes))
            if not brings[best]:
                break
            chosen.append(best)
            yield from _taken_away(rest.pop(best), left)
    return chosen


def lacking_in_parts(missing: Set[str], contents: Iterable[Iterable[str]]) -> Parts[set[str]]:
    """Return what of the missing is in none of these."""
    left = set(missing)
    for names in contents:
        yield from _taken_away(names, left)
    return left


def _common(names: Iterable[str], left: Set[str]) -> Parts[int]:
    count = 0
    for some in _some(names):
        count += sum(map(left.__contains__, some))
        yield
    return count


def _taken_away(names: Iterable[str], left: set[str]) -> Parts[None]:
    for some in _some(names):
        left.difference_update(some)
        yield


def _some(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    rest = iter(names)
    while some := tuple(islice(rest, _NAMES)):
        yield some


def best_for_ranks(ranks: range, sources: Sequence[CopySource]) -> list[CopySource]:
    """Return the best source of what each of these ranks snapshotted itself.

    Where the plan names none of theirs (equal copies are named once), the only part there is.
    """
    # Ranks may have saved different bytes under the same names.
    parts = {_bytes_of(source) for source in sources if source.copy.key.rank in ranks}
    everything = {_bytes_of(source) for source in sources}
    if not parts and len(everything) == 1:
        parts = everything
    best: dict[tuple[bytes, bytes], CopySource] = {}
    for source in sources:
        if _bytes_of(source) in parts:
            best.setdefault(_bytes_of(source), source)
    return list(best.values())


def _bytes_of(source: CopySource) -> tuple[bytes, bytes]:
    return source.part, source.copy.root_hash
