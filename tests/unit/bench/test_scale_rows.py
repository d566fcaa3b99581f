"""Rows of the scale benchmark: each is measured, on a small fleet, and is what it says."""

import pytest
from scale.rows import ROWS

_NODES = 64
# A day of steps, or a process of its own, takes seconds at any size.
_SLOW = frozenset({"journal", "fold", "snapshots", "memory", "memory-jobs"})


@pytest.mark.parametrize("name", sorted(ROWS.keys() - _SLOW))
def test_a_row_is_measured(name: str) -> None:
    assert ROWS[name].measure(_NODES) > 0
