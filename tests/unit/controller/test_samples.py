import math

import numpy as np
import pytest

from everstep_common.samples import COLUMNS, SCHEMA
from everstep_controller.telemetry.samples import PackedSamples, SampleError, SampleRing

S = 1_000_000_000


def packed(*values: float, first_ns: int = 0, interval_ns: int = S) -> PackedSamples:
    rows = np.full((len(values), len(COLUMNS)), np.nan, dtype="<f4")
    rows[:, 0] = values
    return PackedSamples(SCHEMA, rows.tobytes(), first_ns, interval_ns)


def test_the_ring_keeps_the_newest_rows_of_each_node() -> None:
    ring = SampleRing(window=3)
    ring.add_batch("a", packed(1, 2), S)
    ring.add_batch("a", packed(3, 4), S)
    ring.add_batch("b", packed(9), S)
    a, b, nobody = ring.windows(("a", "b", "c"), COLUMNS[0])
    assert list(a) == [2.0, 3.0, 4.0], "oldest first"
    assert b[-1] == 9.0
    assert np.isnan(b[:-1]).all()
    assert np.isnan(nobody).all()
    assert ring.latest("a", COLUMNS[0]) == 4.0
    assert math.isnan(ring.latest("c", COLUMNS[0]))


def test_what_is_kept_of_a_node_is_as_many_rows_as_came_and_at_most_the_window() -> None:
    ring = SampleRing(window=3)
    ring.add_batch("a", packed(1, 2, interval_ns=5 * S), 100 * S)
    kept = ring.of_node("a")
    assert (list(kept.rows[:, 0]), kept.newest_ns, kept.interval_ns) == ([1, 2], 5 * S, 5 * S)
    ring.add_batch("a", packed(3, 4, first_ns=6 * S), 100 * S)
    assert list(ring.of_node("a").rows[:, 0]) == [2, 3, 4], "oldest first"
    assert ring.of_node("nobody").rows.shape == (0, len(COLUMNS))


def test_many_nodes_grow_the_ring() -> None:
    ring = SampleRing(window=2)
    for number in range(40):
        ring.add_batch(f"n{number}", packed(number), S)
    assert [ring.latest(f"n{number}", COLUMNS[0]) for number in (0, 39)] == [0.0, 39.0]


def test_a_batch_of_another_shape_is_refused() -> None:
    with pytest.raises(SampleError):
        SampleRing(2).add_batch("a", PackedSamples(SCHEMA, b"123", 0, S), S)
    with pytest.raises(SampleError):
        SampleRing(2).add_batch("a", PackedSamples(0, b"", 0, S), S)


def test_a_newer_schema_is_left_alone() -> None:
    assert SampleRing(2).add_batch("a", PackedSamples(SCHEMA + 1, b"123", 0, S), S) == 0


def test_the_newest_sample_is_as_old_as_it_says_and_never_from_the_future() -> None:
    ring = SampleRing(window=2)
    assert ring.newest_ns("a") is None
    ring.add_batch("a", packed(1, 2, 3, first_ns=10 * S), 60 * S)
    assert ring.newest_ns("a") == 12 * S, "the third of its rows, though two are kept"
    ring.add_batch("a", packed(1, 2, 3, first_ns=70 * S, interval_ns=3600 * S), 71 * S)
    assert ring.newest_ns("a") == 71 * S
