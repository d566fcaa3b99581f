"""Copies of ranks: what is known of each, and which the job no longer needs. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from everstep_agent.vault.snapshots.manifest import Layout, layout_in_parts
from everstep_common.long_frames import Parts, finish
from everstep_common.rank_messages import Entry


@dataclass(frozen=True, slots=True, order=True)
class CopyKey:
    """Key of a copy: which rank snapshotted what; unique within a job."""

    generation: int
    rank: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step} of rank {self.rank}, generation {self.generation}"


@dataclass(frozen=True, slots=True)
class CopyRef:
    """One copy by its bytes: whatever has this hash is as good."""

    key: CopyKey
    size_bytes: int
    root_hash: bytes


@dataclass(frozen=True, slots=True)
class CopyManifest:
    """A verified copy: its hash, its size, and where each logical shard lies in it."""

    key: CopyKey
    size_bytes: int
    root_hash: bytes
    entries: tuple[Entry, ...]

    @property
    def ref(self) -> CopyRef:
        """Return the copy without its shards."""
        return CopyRef(self.key, self.size_bytes, self.root_hash)


@dataclass(frozen=True, slots=True)
class Recoverable:
    """The controller's newest recoverable step: it survives the loss of any one node."""

    generation: int = 0
    step: int | None = None
    dead_steps: frozenset[int] = frozenset()
    # (generation, step) on their way to storage: what was written here stays until it is there.
    storing: frozenset[tuple[int, int]] = frozenset()
    # Copies that are in storage already.
    on_disk: frozenset[CopyKey] = frozenset()

    def frees(self, key: CopyKey, *, replica: bool = False) -> bool:
        """Return whether the job can do without the copy.

        An older generation is needed until the new one has a recoverable step of its own.
        """
        if not replica and (key.generation, key.step) in self.storing and key not in self.on_disk:
            return False
        if key.generation != self.generation:
            return key.generation < self.generation and self.step is not None
        if key.step in self.dead_steps:
            return True
        return self.step is not None and key.step < self.step


@dataclass(frozen=True, slots=True)
class ReplicaTarget:
    """Agent to which this node's own copies are replicated."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class InitialCopies:
    """The copies that a new generation begins from, as its plan names them."""

    keys: frozenset[CopyKey] = frozenset()
    # Copies that no other node has: lost with this node unless they are replicated again.
    only_here: frozenset[CopyKey] = frozenset()


def initial_copies(holders: Iterable[tuple[CopyKey, str]], node: str) -> InitialCopies:
    """Return what a plan's (copy, holder) pairs mean to a node."""
    nodes: dict[CopyKey, set[str]] = {}
    for key, holder in holders:
        nodes.setdefault(key, set()).add(holder)
    only_here = frozenset(key for key, names in nodes.items() if names == {node})
    return InitialCopies(frozenset(nodes), only_here)


class LayoutCache:
    """Layouts of copies, each worked out once: a report names them all again and again."""

    _KEPT_MAX = 1024
    # How many manifests are remembered: the same object comes step after step, one for each rank.
    _RECENT_MAX = 32

    def __init__(self) -> None:
        self._known: dict[tuple[CopyKey, bytes], Layout] = {}
        self._recent: dict[int, tuple[tuple[Entry, ...], Layout]] = {}

    def layout_of(self, manifest: CopyManifest) -> Layout:
        """Return the layout of a copy; long manifests are learned before."""
        return finish(self.learn_layout(manifest))

    def learn_layout(self, manifest: CopyManifest) -> Parts[Layout]:
        """Return the layout of a copy, in parts."""
        layout = self._known.get((manifest.key, manifest.root_hash))
        if layout is None:
            if len(self._known) >= self._KEPT_MAX:
                self._known.clear()
            layout = yield from self._of(manifest.entries)
            self._known[manifest.key, manifest.root_hash] = layout
        return layout

    def clear(self) -> None:
        """The job is over."""
        self._recent.clear()

    def _of(self, entries: tuple[Entry, ...]) -> Parts[Layout]:
        same, layout = self._recent.get(id(entries), ((), Layout(b"")))
        if same is not entries:
            layout = yield from layout_in_parts(entries)
            if len(self._recent) >= self._RECENT_MAX:
                del self._recent[next(iter(self._recent))]
            self._recent[id(entries)] = (entries, layout)
        return layout
