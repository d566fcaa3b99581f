"""Seeds of schedules: a few in every run of the tests, the others in the long one."""

import pytest
from _pytest.mark import ParameterSet


def seeds(few: int, most: int) -> list[ParameterSet]:
    """Return the seeds below ``most``; those from ``few`` on are played by the long tests alone."""
    return [
        pytest.param(seed, marks=() if seed < few else pytest.mark.long) for seed in range(most)
    ]
