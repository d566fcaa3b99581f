"""The newest samples of every node: one ring of nodes, metrics and time, in memory only."""

import numpy as np
from numpy.typing import NDArray

from everstep_common.samples import COLUMNS, SCHEMA

Rows = NDArray[np.float32]


class SampleError(ValueError):
    """A batch of samples has another shape than its schema says."""


class SampleRing:
    """Keeps the last ``window`` rows of each node; NaN where none came yet."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._rows: Rows = np.full((0, window, len(COLUMNS)), np.nan, dtype=np.float32)
        self._index: dict[str, int] = {}
        self._taken: list[int] = []

    def take(self, node: str, schema: int, packed: bytes) -> int:
        """Add a node's rows; return their number. Raises SampleError for a wrong shape."""
        rows = _unpack(schema, packed)[-self._window :]
        index = self._index_of(node)
        first = self._taken[index]
        slots = np.arange(first, first + len(rows)) % self._window
        self._rows[index, slots] = rows
        self._taken[index] += len(rows)
        return len(rows)

    def latest(self, node: str, column: str) -> float:
        """Return the newest value of a node's metric; NaN when there is none."""
        index = self._index.get(node)
        if index is None or not self._taken[index]:
            return float("nan")
        row = (self._taken[index] - 1) % self._window
        return float(self._rows[index, row, COLUMNS.index(column)])

    def window(self, column: str) -> tuple[list[str], Rows]:
        """Return node names and, per node, the kept values of one metric (in no order of time)."""
        return list(self._index), self._rows[: len(self._index), :, COLUMNS.index(column)]

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
