import math

import numpy as np
import pytest

from everstep_common.samples import COLUMNS, SCHEMA
from everstep_controller.samples import SampleError, SampleRing


def packed(*values: float) -> bytes:
    rows = np.full((len(values), len(COLUMNS)), np.nan, dtype="<f4")
    rows[:, 0] = values
    return rows.tobytes()


def test_the_ring_keeps_the_newest_rows_of_each_node() -> None:
    ring = SampleRing(window=3)
    ring.take("a", SCHEMA, packed(1, 2))
    ring.take("a", SCHEMA, packed(3, 4))
    ring.take("b", SCHEMA, packed(9))
    names, values = ring.window(COLUMNS[0])
    assert names == ["a", "b"]
    assert set(values[0]) == {2.0, 3.0, 4.0}
    assert ring.latest("a", COLUMNS[0]) == 4.0
    assert math.isnan(ring.latest("c", COLUMNS[0]))


def test_many_nodes_grow_the_ring() -> None:
    ring = SampleRing(window=2)
    for number in range(40):
        ring.take(f"n{number}", SCHEMA, packed(number))
    assert [ring.latest(f"n{number}", COLUMNS[0]) for number in (0, 39)] == [0.0, 39.0]


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(SampleError):
        SampleRing(2).take("a", SCHEMA, b"123")
    with pytest.raises(SampleError):
        SampleRing(2).take("a", 0, b"")


def test_a_newer_schema_is_left_alone() -> None:
    assert SampleRing(2).take("a", SCHEMA + 1, b"123") == 0
