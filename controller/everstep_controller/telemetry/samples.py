"""Sample ring: the newest samples of every node and when they were taken, in memory only."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from everstep_common.samples import COLUMNS, SCHEMA

Rows = NDArray[np.float32]


class SampleError(ValueError):
    """A batch of samples has another shape than its schema says."""


@dataclass(frozen=True, slots=True)
class PackedSamples:
    """Rows of one node as they come; times are on the controller's timeline."""

    schema: int
    rows: bytes
    first_ns: int
    interval_ns: int


@dataclass(frozen=True, slots=True)
class NodeSamples:
    """Rows of one node, oldest first, when the newest was taken, and the time between two."""

    rows: Rows
    newest_ns: int
    interval_ns: int


class SampleRing:
    """Ring of the last ``window`` rows of each node; NaN where none came yet."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._rows: Rows = np.full((0, window, len(COLUMNS)), np.nan, dtype=np.float32)
        self._index: dict[str, int] = {}
        self._taken: list[int] = []
        self._newest_ns: dict[str, int] = {}
        self._interval_ns: dict[str, int] = {}

    def add_batch(self, node: str, batch: PackedSamples, now_ns: int) -> int:
        """Add a node's rows; return their number. Raises SampleError for a wrong shape."""
        rows = _unpack(batch.schema, batch.rows)
        last_ns = batch.first_ns + max(0, len(rows) - 1) * batch.interval_ns
        rows = rows[-self._window :]
        index = self._index_of(node)
        first = self._taken[index] % self._window
        # In two slices at most: numbers of slots take four times as long.
        before_end = rows[: self._window - first]
        self._rows[index, first : first + len(before_end)] = before_end
        if len(before_end) < len(rows):
            self._rows[index, : len(rows) - len(before_end)] = rows[len(before_end) :]
        self._taken[index] += len(rows)
        self._newest_ns[node] = min(last_ns, now_ns)
        self._interval_ns[node] = batch.interval_ns
        return len(rows)

    def newest_ns(self, node: str) -> int | None:
        """Return when a node's newest row was taken; None when none came yet."""
        return self._newest_ns.get(node)

    def latest(self, node: str, column: str) -> float:
        """Return the newest value of a node's metric; NaN when there is none."""
        index = self._index.get(node)
        if index is None or not self._taken[index]:
            return float("nan")
        row = (self._taken[index] - 1) % self._window
        return float(self._rows[index, row, COLUMNS.index(column)])

    def of_node(self, node: str) -> NodeSamples:
        """Return all that is kept of a node; no rows where none came yet."""
        index = self._index.get(node)
        if index is None:
            return NodeSamples(np.empty((0, len(COLUMNS)), dtype=np.float32), 0, 0)
        taken = self._taken[index]
        slots = np.arange(max(0, taken - self._window), taken) % self._window
        newest_ns, interval_ns = self._newest_ns[node], self._interval_ns[node]
        return NodeSamples(self._rows[index, slots], newest_ns, interval_ns)

    def windows(self, nodes: tuple[str, ...], column: str) -> Rows:
        """Return a row per node: the kept values of one metric, oldest first; NaN where none is."""
        found = np.full((len(nodes), self._window), np.nan, dtype=np.float32)
        known = [i for i, node in enumerate(nodes) if node in self._index]
        indexes = np.array([self._index[nodes[i]] for i in known], dtype=np.intp)
        oldest = np.array([self._taken[index] for index in indexes], dtype=np.intp)
        slots = (oldest[:, None] + np.arange(self._window)) % self._window
        found[known] = self._rows[indexes[:, None], slots, COLUMNS.index(column)]
        return found

    def _index_of(self, node: str) -> int:
        index = self._index.get(node)
        if index is None:
            index = self._index[node] = len(self._taken)
            self._taken.append(0)
            if index >= len(self._rows):
                more = np.full(
                    (max(16, len(self._rows)), self._window, len(COLUMNS)), np.nan, np.float32
                )
                self._rows = np.concatenate([self._rows, more])
        return index


def _unpack(schema: int, packed: bytes) -> Rows:
    if schema < SCHEMA:
        raise SampleError(f"samples of schema {schema}; this version knows {SCHEMA} and later")
    # A newer agent appends columns and raises the schema: only a known width can be cut from.
    if schema > SCHEMA:
        return np.empty((0, len(COLUMNS)), dtype=np.float32)
    if len(packed) % (4 * len(COLUMNS)):
        raise SampleError(f"{len(packed)} bytes of samples are not rows of {len(COLUMNS)} columns")
    return np.frombuffer(packed, dtype="<f4").reshape(-1, len(COLUMNS))
