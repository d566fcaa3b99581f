"""Cuts around the controller: with at most half heard nothing is lost, else whoever is cut off."""

import pytest

from everstep_sim.cuts import play
from simulation.seeds import seeds

# So many seeds are played in every run, two of each kind of cut; the others by the long test.
_FEW, _MOST = 14, 200


@pytest.mark.parametrize("seed", seeds(_FEW, _MOST))
def test_a_controller_that_hears_at_most_half_loses_stops_and_throws_away_nothing(
    seed: int,
) -> None:
    outcome = play(seed, few=True)
    assert outcome.heard * 2 <= outcome.nodes
    assert outcome.clean, outcome


@pytest.mark.parametrize("seed", seeds(_FEW, _MOST))
def test_a_controller_that_hears_more_than_half_takes_the_others_for_off_and_nobody_else(
    seed: int,
) -> None:
    outcome = play(seed, few=False)
    assert outcome.clean, outcome
