"""Made tables of bench slow: the same for a seed, of each kind, and counted rightly."""

import numpy as np
import pytest
from slow.tables import KINDS, Job, count_tables, judged


def _job(kind: str, seed: int) -> Job:
    return KINDS[kind](np.random.default_rng(seed))


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_the_same_for_a_seed_and_another_for_another(kind: str) -> None:
    one, other, third = _job(kind, 1), _job(kind, 1), _job(kind, 2)
    np.testing.assert_array_equal(one.ratios, other.ratios)
    assert one.ratios.shape[1] == one.roster().size >= 2
    assert one.ratios.shape[0] >= 60
    assert not np.isnan(one.ratios).all(axis=1).any()
    assert not np.array_equal(one.ratios, third.ratios, equal_nan=True)


def test_a_slow_worker_of_a_calm_table_is_found_and_nobody_else() -> None:
    ratios = np.random.default_rng(1).normal(0.0, 0.01, (80, 16))
    job = Job(ratios, np.zeros(16, dtype=np.int64))
    assert not judged(job, np.exp(ratios)).slow
    ratios[30:, 3] += 0.2
    assert [one.worker for one in judged(job, np.exp(ratios)).slow] == ["w3"]


def test_tables_are_counted_with_and_without_a_slow_worker() -> None:
    found = count_tables("drift", range(3))
    assert (found.tables, found.false, found.false_beside) == (3, 0, 0)
    assert found.missed <= 1
