"""What simulated clusters have journaled, decided again: no step changes what it does not name."""

from collections import Counter

import pytest

from simulation import test_liveness_schedules, test_schedules
from simulation.seeds import seeds
from simulation.whatever_happens import WhateverHappens
from unit.core.checked_steps import CheckedCore


@pytest.mark.parametrize("seed", seeds(1, 24))
def test_schedules_of_a_job_change_what_steps_name(seed: int) -> None:
    core = CheckedCore()
    for event, now_ns in test_schedules.run(seed).controller.journal:
        core.handle(event, now_ns)


@pytest.mark.parametrize("seed", seeds(1, 24))
def test_schedules_of_all_kinds_change_what_steps_name(seed: int) -> None:
    core = CheckedCore()
    cluster = test_liveness_schedules.run(seed, WhateverHappens(), Counter())
    for event, now_ns in cluster.controller.journal:
        core.handle(event, now_ns)
