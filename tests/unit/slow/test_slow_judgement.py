"""Who is slow: constructed jobs, public traces, and what must not be blamed on anybody."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow.series import NAMES, SLOW_IN_AR, Series, healthy, made, trace

from everstep_controller.slow.analysis import SlowAnalysis
from everstep_controller.slow.peers import Floats, Indices, Roster
from everstep_controller.slow.verdict import Advice, ImbalanceKind, PauseKind, SlowVerdict


def _roster(roles: str, **places: str) -> Roster:
    """Return workers by letters: of each its role, and of each place what they share."""
    names = sorted(set(roles))
    return Roster(
        names=[f"w{number}" for number in range(len(roles))],
        roles=np.array([names.index(one) for one in roles]),
        role_names=names,
        places={
            kind: np.array([sorted(set(of)).index(one) for one in of])
            for kind, of in places.items()
        },
        place_names={kind: sorted(set(of)) for kind, of in places.items()},
    )


def _zeros(*sizes: int) -> Indices:
    return np.zeros(int(np.prod(sizes)), dtype=np.int64)


def _noise(steps: int, workers: int, seed: int = 1, scale: float = 0.01) -> Floats:
    drawn: Floats = np.exp(np.random.default_rng(seed).normal(0.0, scale, (steps, workers)))
    return drawn


def _verdict(roster: Roster, seconds: Floats) -> SlowVerdict:
    analysis = SlowAnalysis(roster)
    for step, row in enumerate(seconds):
        analysis.observe(step, row)
    return analysis.verdict()


def _judged(series: Series) -> SlowVerdict:
    analysis = SlowAnalysis(series.roster)
    for step, row in zip(series.steps, series.seconds, strict=True):
        analysis.observe(step, row)
    return analysis.verdict()


def _slow(verdict: SlowVerdict) -> list[str]:
    return [one.worker for one in verdict.slow]


def test_a_slow_worker_is_named_with_its_factor_and_when_it_began() -> None:
    seconds = _noise(60, 16)
    seconds[25:, 3] *= 1.2
    (slow,) = _verdict(_roster("a" * 16), seconds).slow
    assert slow.worker == "w3"
    assert slow.factor == pytest.approx(1.2, abs=0.02)
    assert abs(slow.since_step - 25) <= 2
    assert slow.until_step is None
    assert slow.judged_step <= 25 + 12


def test_a_worker_that_recovers_was_slow_for_a_time() -> None:
    seconds = _noise(80, 16)
    seconds[20:45, 3] *= 1.3
    (slow,) = _verdict(_roster("a" * 16), seconds).slow
    assert slow.until_step is not None
    assert 45 <= slow.until_step <= 60


def test_a_slow_worker_that_was_replaced_is_slow_no_longer() -> None:
    seconds = _noise(120, 16)
    seconds[:60, 3] *= 1.3
    seconds[60:, 3] = np.nan
    seconds[:60, 15] = np.nan
    (slow,) = _verdict(_roster("a" * 16), seconds).slow
    assert slow.worker == "w3"
    assert slow.until_step is not None
    assert 59 <= slow.until_step <= 80


def test_a_slow_worker_that_sets_the_pace_is_to_be_swapped() -> None:
    seconds = _noise(60, 16)
    seconds[:, 3] *= 1.5
    (slow,) = _verdict(_roster("a" * 16), seconds).slow
    assert slow.advice is Advice.SWAP
    assert slow.share > 0.9


def test_a_slow_worker_of_a_light_role_does_not_hold_the_job_back() -> None:
    seconds = _noise(60, 16)
    seconds[:, :8] *= 3.0
    seconds[:, 12] *= 1.3
    (slow,) = _verdict(_roster("a" * 8 + "b" * 8), seconds).slow
    assert (slow.worker, slow.role) == ("w12", "b")
    assert slow.advice is Advice.NOTIFY


def test_two_that_are_equally_slow_both_explain_the_loss() -> None:
    seconds = _noise(60, 32)
    seconds[:, [3, 20]] *= 1.4
    slow = _verdict(_roster("a" * 32), seconds).slow
    assert [one.worker for one in slow] == ["w3", "w20"]
    assert all(one.advice is Advice.SWAP for one in slow)


def test_single_long_steps_of_a_worker_are_no_slowness() -> None:
    seconds = _noise(100, 16)
    seconds[::10, 5] *= 8.0
    verdict = _verdict(_roster("a" * 16), seconds)
    assert not verdict.slow
    (pause,) = verdict.pauses
    assert (pause.kind, pause.worker, pause.steps) == (PauseKind.ONE_WORKER, "w5", 10)


def test_three_long_pauses_within_ten_steps_are_no_slowness() -> None:
    seconds = _noise(60, 16)
    seconds[20:40, 5] *= 1.02
    seconds[[24, 27, 29], 5] *= 3.0
    assert not _verdict(_roster("a" * 16), seconds).slow


@pytest.mark.parametrize(
    "steps",
    [
        # What a fleet of 16,384 drew: three and four pauses within eight steps, where sequences
        # have different lengths (5 % from step to step).
        "-.014 .036 .902 .145 .003 .052 .908 .138 .936 .276",
        "-.020 .287 .064 .633 .797 .017 .693 .016 -.038 .505",
    ],
)
def test_pauses_that_come_close_together_in_uneven_steps_are_no_slowness(steps: str) -> None:
    seconds = _noise(60, 64, scale=0.054)
    seconds[30:40, 5] = np.exp([float(one) for one in steps.split()])
    assert not _verdict(_roster("a" * 64), seconds).slow


def test_pauses_do_not_hide_that_the_steps_between_are_slow() -> None:
    seconds = _noise(60, 64, scale=0.02)
    seconds[20:, 5] *= 1.15
    seconds[22:60:3, 5] *= 2.5
    (slow,) = _verdict(_roster("a" * 64), seconds).slow
    assert (slow.worker, slow.judged_step <= 32) == ("w5", True)


def test_pauses_of_all_workers_in_turn_are_garbage_collection() -> None:
    seconds = _noise(96, 16)
    for step in range(0, 96, 3):
        seconds[step, (step * 7) % 16] *= 2.0
    verdict = _verdict(_roster("a" * 16), seconds)
    assert not verdict.slow
    (pause,) = verdict.pauses
    assert (pause.kind, pause.steps) == (PauseKind.SCATTERED, 32)


def test_evaluation_is_a_pause_of_all_at_equal_distances() -> None:
    seconds = _noise(100, 8)
    seconds[20::20] *= 5.0
    verdict = _verdict(_roster("a" * 8), seconds)
    assert not verdict.slow
    (pause,) = verdict.pauses
    assert (pause.kind, pause.steps) == (PauseKind.PERIODIC, 4)


def test_slow_storage_is_a_pause_of_all_at_no_regular_distance() -> None:
    seconds = _noise(100, 8)
    seconds[[31, 47, 80]] *= 4.0
    (pause,) = _verdict(_roster("a" * 8), seconds).pauses
    assert (pause.kind, pause.steps) == (PauseKind.COMMON, 3)


def test_the_first_steps_are_told_as_such() -> None:
    seconds = _noise(60, 8)
    seconds[:2] *= 20.0
    verdict = _verdict(_roster("a" * 8), seconds)
    assert not verdict.slow
    assert [one.kind for one in verdict.pauses] == [PauseKind.FIRST_STEPS]


def test_uneven_sequences_are_imbalance_and_nobody_is_blamed() -> None:
    verdict = _verdict(_roster("a" * 32), _noise(100, 32, scale=0.2))
    assert not verdict.slow
    assert [one.kind for one in verdict.imbalances] == [ImbalanceKind.DATA]


def test_a_heavy_stage_is_imbalance_and_nobody_is_blamed() -> None:
    seconds = _noise(60, 16)
    seconds[:, 12:] *= 1.3
    verdict = _verdict(_roster("aaaabbbbccccdddd"), seconds)
    assert not verdict.slow
    assert [one.kind for one in verdict.imbalances] == [ImbalanceKind.STAGE]


def test_stages_that_are_not_told_are_not_blamed() -> None:
    seconds = _noise(60, 16)
    seconds[:, 12:] *= 1.3
    verdict = _verdict(_roster("a" * 16), seconds)
    assert not verdict.slow
    assert ImbalanceKind.MIXED_ROLE in {one.kind for one in verdict.imbalances}


@pytest.mark.parametrize("replicas", [2, 8])
def test_the_last_of_many_stages_that_are_not_told_is_not_blamed(replicas: int) -> None:
    seconds = _noise(40, 8 * replicas)
    seconds[:, 7 * replicas :] *= 1.6
    verdict = _verdict(
        Roster([str(one) for one in range(8 * replicas)], _zeros(8, replicas), [""]), seconds
    )
    assert not verdict.slow
    assert ImbalanceKind.MIXED_ROLE in [one.kind for one in verdict.imbalances]


def test_one_worker_that_is_slow_from_the_first_step_is_named_where_no_roles_are_told() -> None:
    seconds = _noise(40, 16)
    seconds[:, 3] *= 1.6
    verdict = _verdict(Roster([f"w{one}" for one in range(16)], _zeros(16), [""]), seconds)
    assert _slow(verdict) == ["w3"]


def _untold(workers: int) -> Roster:
    return Roster([f"w{one}" for one in range(workers)], _zeros(workers), [""])


def test_a_slow_node_that_no_column_tells_of_may_be_slow_or_have_more_to_do() -> None:
    """Also from the first step on; and it neither pauses nor is it uneven data."""
    for since in (0, 16):
        seconds = _noise(60, 16)
        seconds[since:, 4:8] *= 1.5
        verdict = _verdict(_untold(16), seconds)
        (found,) = verdict.imbalances
        assert (found.kind, found.is_open) == (ImbalanceKind.MIXED_ROLE, True)
        assert verdict.sentence.startswith("Nobody can be named. 4 workers (w4, w5, w6, w7) take")
        assert ("from the first step on" in found.sentence) == (since == 0)
        for said in ("column role", "column node, leaf, rack or power", "more to do", "are slow"):
            assert said in found.sentence
        assert not verdict.pauses


@pytest.mark.parametrize(("workers", "slower"), [(16, 8), (4, 2), (3, 1), (2, 1)])
@pytest.mark.parametrize("since", [0, 16])
def test_where_half_is_slow_the_halves_are_told_and_nobody_is_named(
    workers: int, slower: int, since: int
) -> None:
    seconds = _noise(80, workers)
    seconds[since:, :slower] *= 1.5
    verdict = _verdict(_untold(workers), seconds)
    if since and workers <= 3:  # beside its own past one is named
        assert _slow(verdict) == ["w0"]
        return
    (found,) = verdict.imbalances
    assert (found.kind, found.is_open, _slow(verdict)) == (ImbalanceKind.TWO_SPEEDS, True, [])
    assert found.ratio == pytest.approx(0.5, abs=0.05)
    assert ("from the first step on" in found.sentence) == (since == 0)


@pytest.mark.parametrize("seed", range(30))
def test_of_workers_that_are_equally_fast_none_are_apart(seed: int) -> None:
    for workers in (2, 3, 4, 8, 16, 64):
        for scale in (0.01, 0.1):
            kinds = {
                one.kind
                for one in _verdict(_untold(workers), _noise(60, workers, seed, scale)).imbalances
            }
            assert ImbalanceKind.TWO_SPEEDS not in kinds


@pytest.mark.parametrize("seed", range(6))
def test_a_half_that_stalls_now_and_then_is_no_half_that_is_slow(seed: int) -> None:
    seconds = _noise(80, 8, seed)
    stalls = np.random.default_rng(seed).random((80, 1)) < 0.3
    seconds[:, :4] *= np.where(stalls, 1.5, 1.0)
    kinds = {one.kind for one in _verdict(_untold(8), seconds).imbalances}
    assert ImbalanceKind.TWO_SPEEDS not in kinds


def test_a_half_that_is_slow_is_told_with_its_node() -> None:
    seconds = _noise(40, 8)
    seconds[:, :4] *= 1.3
    verdict = _verdict(_roster("a" * 8, node="xxxxyyyy"), seconds)
    assert "of role a, all of node x, take 1.3" in verdict.sentence
    assert "column node" not in verdict.sentence


def test_a_replica_with_longer_sequences_is_told_as_such() -> None:
    """Or roles are wrong, and one of each is in the heavy stage: seconds are the same."""
    seconds = _noise(40, 32)
    seconds[:, 3::8] *= 1.3
    verdict = _verdict(_roster("a" * 8 + "b" * 8 + "c" * 8 + "d" * 8), seconds)
    assert not verdict.slow
    (found,) = [one for one in verdict.imbalances if one.kind is ImbalanceKind.REPLICA]
    assert "4 workers (w3, w11, w19, w27)" in found.sentence


def test_two_slow_workers_of_two_roles_among_four_are_named() -> None:
    seconds = _noise(40, 32)
    seconds[:, [3, 12]] *= 1.3
    assert sorted(_slow(_verdict(_roster("a" * 8 + "b" * 8 + "c" * 8 + "d" * 8), seconds))) == [
        "w12",
        "w3",
    ]


@pytest.mark.parametrize("seed", range(4))
def test_a_loader_that_stalls_in_half_of_the_steps_is_no_slow_worker(seed: int) -> None:
    random, seconds = np.random.default_rng(seed), _noise(120, 32, seed)
    seconds[:, 5] *= np.where(random.random(120) < 0.5, random.uniform(1.5, 3.0, 120), 1.0)
    verdict = _verdict(_roster("a" * 32), seconds)
    assert not verdict.slow
    assert [one.worker for one in verdict.pauses] == ["w5"]


def test_a_slow_worker_with_a_pause_before_and_a_fast_step_is_found_as_soon() -> None:
    seconds = _noise(40, 16)
    seconds[20:, 3] *= 1.3
    seconds[[12, 26], 3] = [2.5, 0.2]
    (slow,) = _verdict(_roster("a" * 16), seconds).slow
    assert slow.judged_step <= 20 + 12


@pytest.mark.parametrize("seed", range(3))
def test_noise_of_workers_with_few_peers_blames_nobody(seed: int) -> None:
    """Two levels: four in ten steps take longer, and the first ten steps may have few of them."""
    random = np.random.default_rng(seed)
    seconds = np.exp(0.1 * (random.random((120, 48)) < 0.4) + random.normal(0.0, 0.015, (120, 48)))
    roles = np.repeat(np.arange(16), 3)
    verdict = _verdict(
        Roster([str(one) for one in range(48)], roles, [*"abcdefghijklmnop"]), seconds
    )
    assert not verdict.slow


@pytest.mark.parametrize("seed", [43, 44, 47])
def test_lengths_that_last_for_some_steps_make_nobody_share_data_by_chance(seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = np.repeat(np.exp(random.normal(0.0, 0.21, (40, 64))), 3, axis=0)
    seconds = np.hstack([lengths, lengths]) * _noise(120, 128, seed, 0.02)
    assert not _verdict(_roster("a" * 64 + "b" * 64), seconds).slow


def test_two_experts_that_become_hot_as_two_others_cool_down_blame_nobody() -> None:
    seconds = _noise(60, 16)
    seconds[:30, [0, 8]] *= 1.2
    seconds[30:, [3, 11]] *= 1.4
    assert not _verdict(_roster("a" * 16), seconds).slow


def test_work_moves_about_in_a_table_of_every_tenth_step() -> None:
    random, seconds = np.random.default_rng(12), _noise(210, 64)
    for begin in range(0, 210, 30):
        seconds[begin : begin + 30, random.integers(0, 64, 6)] *= 1.2
    analysis = SlowAnalysis(_roster("a" * 64))
    for step, row in enumerate(seconds):
        analysis.observe(10 * step, row)
    assert not analysis.verdict().slow


def test_a_slow_rack_is_told_instead_of_its_workers() -> None:
    seconds = _noise(60, 32)
    seconds[20:, :8] *= 1.2
    roster = _roster("a" * 32, rack="A" * 8 + "B" * 8 + "C" * 8 + "D" * 8)
    verdict = _verdict(roster, seconds)
    assert not verdict.slow
    (place,) = verdict.places
    assert (place.kind, place.name, place.workers) == ("rack", "A", 8)
    assert place.factor == pytest.approx(1.2, abs=0.02)


def test_a_worker_that_is_slower_than_its_slow_rack_is_named_as_well() -> None:
    seconds = _noise(60, 32)
    seconds[20:, :8] *= 1.2
    seconds[20:, 5] *= 1.3
    roster = _roster("a" * 32, rack="A" * 8 + "B" * 8 + "C" * 8 + "D" * 8)
    assert _slow(_verdict(roster, seconds)) == ["w5"]


def test_workers_of_a_rack_that_recovers_are_not_blamed_for_what_is_left_of_it() -> None:
    seconds = _noise(100, 64, scale=0.02)
    seconds[20:50, :16] *= 1.2
    roster = _roster("a" * 64, rack="A" * 16 + "B" * 16 + "C" * 16 + "D" * 16)
    verdict = _verdict(roster, seconds)
    assert not verdict.slow
    (place,) = verdict.places
    assert place.until_step is not None
    assert 50 <= place.until_step <= 75


def test_a_rack_that_is_one_node_of_the_job_is_told_as_that_node() -> None:
    seconds = _noise(60, 32)
    seconds[20:, :4] *= 1.2
    nodes = "".join(letter * 4 for letter in "ABCDEFGH")
    roster = _roster("a" * 32, node=nodes, rack="X" * 4 + "Y" * 14 + "Z" * 14)
    (place,) = _verdict(roster, seconds).places
    assert (place.kind, place.name) == ("node", "A")


def test_a_role_with_one_worker_is_compared_with_its_own_past() -> None:
    seconds = _noise(80, 9)
    seconds[:, 8] *= 7.0
    seconds[40:, 8] *= 1.3
    (slow,) = _verdict(_roster("a" * 8 + "b"), seconds).slow
    assert slow.worker == "w8"
    assert slow.own_past
    assert slow.factor == pytest.approx(1.3, abs=0.03)


def test_longer_steps_of_all_are_not_blamed_on_who_has_no_peers() -> None:
    seconds = _noise(80, 9)
    seconds[40:] *= 1.3
    assert not _verdict(_roster("a" * 8 + "b"), seconds).slow


def test_a_drift_of_all_and_of_one_is_followed() -> None:
    seconds = _noise(600, 9)
    seconds *= np.exp(np.linspace(0.0, 0.02, 600))[:, None]
    seconds[:, 8] *= np.exp(np.linspace(0.0, 0.05, 600))
    assert not _verdict(_roster("a" * 8 + "b"), seconds).slow


def test_times_of_whole_steps_are_recognised() -> None:
    seconds = _noise(40, 1).repeat(8, axis=1)
    verdict = _verdict(_roster("a" * 8), seconds)
    assert not verdict.slow
    assert any("whole steps" in line for line in verdict.blind)


def test_a_worker_that_misses_most_steps_is_not_judged() -> None:
    seconds = _noise(60, 16)
    seconds[:, 3] *= 2.0
    seconds[np.arange(60) % 3 > 0, 3] = np.nan
    assert not _verdict(_roster("a" * 16), seconds).slow


def test_a_worker_with_a_row_in_every_second_step_is_said_not_to_be_judged() -> None:
    seconds = _noise(60, 16)
    seconds[:, 3] *= 1.5
    seconds[::2, 3] = np.nan
    verdict = _verdict(_roster("a" * 16), seconds)
    assert (_slow(verdict), verdict.pauses) == ([], ())
    (said,) = [one for one in verdict.blind if "not judged" in one]
    assert said.startswith("worker w3 told its seconds in 30 of 60 steps")
    assert said.endswith("it took 1.50 times as long as its peers")


def test_who_is_not_judged_is_not_called_as_fast_as_its_peers() -> None:
    seconds = _noise(80, 16)
    seconds[21:, 3] *= 1.4
    seconds[1::2, 3] = np.nan
    verdict = _verdict(_roster("a" * 16), seconds)
    assert verdict.sentence == "No worker that can be judged is slow"
    assert not any(one.worker == "w3" for one in verdict.pauses)
    assert any("worker w3" in one and "is not judged" in one for one in verdict.blind)


def test_a_slow_worker_that_misses_some_steps_is_found() -> None:
    seconds = _noise(60, 16)
    seconds[:, 3] *= 1.3
    seconds[::11, 3] = np.nan
    assert _slow(_verdict(_roster("a" * 16), seconds)) == ["w3"]


def test_too_few_steps_are_no_verdict() -> None:
    seconds = _noise(9, 16)
    seconds[2:, 3] *= 3.0
    verdict = _verdict(_roster("a" * 16), seconds)
    assert not verdict.slow
    assert verdict.watched == ("w3",)
    assert any("too few" in line for line in verdict.blind)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.floats(0.01, 100.0))
def test_a_factor_in_all_workers_changes_nobody(seed: int, factor: float) -> None:
    series = made(seed, steps=30).with_slow(seed % 64, 10, 1.3)
    one, other = (
        _verdict(series.roster, series.seconds),
        _verdict(series.roster, factor * series.seconds),
    )
    assert _slow(one) == _slow(other)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000))
def test_the_order_of_workers_does_not_matter(seed: int) -> None:
    series = made(seed, steps=30).with_slow(seed % 64, 10, 1.3)
    order = np.random.default_rng(seed + 1).permutation(64)
    roster = Roster(
        [str(series.roster.names[int(one)]) for one in order],
        series.roster.roles[order],
        series.roster.role_names,
    )
    one, other = _judged(series), _verdict(roster, series.seconds[:, order])
    assert sorted(_slow(one)) == sorted(_slow(other)) == [series.roster.names[seed % 64]]


@pytest.mark.parametrize("seed", range(8))
def test_healthy_workers_with_heavy_tails_are_not_blamed(seed: int) -> None:
    assert not _judged(made(seed, steps=200)).slow


@pytest.mark.parametrize("name", [one for one in NAMES if one == "AR"])
def test_the_slow_worker_of_a_public_trace_is_the_only_one(name: str) -> None:
    (slow,) = _judged(trace(name)).slow
    assert slow.worker == SLOW_IN_AR
    assert slow.factor == pytest.approx(2.38, abs=0.03)
    assert slow.advice is Advice.SWAP


@pytest.mark.parametrize("name", NAMES)
def test_nobody_is_blamed_in_a_public_trace_without_a_slow_worker(name: str) -> None:
    assert not _judged(healthy(name)).slow


@pytest.mark.parametrize("name", [one for one in NAMES if one == "SE"])
def test_different_sequence_lengths_are_told_as_imbalance(name: str) -> None:
    verdict = _judged(trace(name))
    assert ImbalanceKind.DATA in {one.kind for one in verdict.imbalances}


def test_work_that_moves_from_worker_to_worker_blames_nobody() -> None:
    """Experts that are chosen more often: six workers of 64 at a time, for thirty steps."""
    random, seconds = np.random.default_rng(12), _noise(210, 64)
    for begin in range(0, 210, 30):
        seconds[begin : begin + 30, random.integers(0, 64, 6)] *= 1.2
    verdict = _verdict(_roster("a" * 64), seconds)
    assert not verdict.slow
    assert [one.kind for one in verdict.imbalances] == [ImbalanceKind.MOVING]


def test_a_worker_that_stays_slow_is_named_though_work_moves() -> None:
    random, seconds = np.random.default_rng(13), _noise(210, 64)
    for begin in range(0, 210, 30):
        seconds[begin : begin + 30, random.integers(0, 32, 6)] *= 1.2
    seconds[20:, 40] *= 1.3
    assert _slow(_verdict(_roster("a" * 64), seconds)) == ["w40"]


@pytest.mark.parametrize("seed", range(6))
def test_workers_of_a_node_whose_loader_stalls_pause_together(seed: int) -> None:
    random, seconds = np.random.default_rng(seed), _noise(200, 64, seed)
    seconds[np.ix_(random.random(200) < 0.15, np.arange(64) // 8 == 1)] += 2.0
    nodes = "".join(letter * 8 for letter in "ABCDEFGH")
    verdict = _verdict(_roster("a" * 64, node=nodes), seconds)
    assert not verdict.slow
    assert not verdict.places
    assert [one.kind for one in verdict.pauses] == [PauseKind.TOGETHER]
    assert "w8, w9, w10, w11, w12, w13, w14, w15" in verdict.pauses[0].sentence


def test_evaluation_and_saves_at_different_distances_are_regular() -> None:
    seconds = _noise(200, 16)
    seconds[50::50] *= 6.0
    seconds[30::30] *= 2.5
    (pause,) = _verdict(_roster("a" * 16), seconds).pauses
    assert (pause.kind, pause.steps) == (PauseKind.PERIODIC, 8)
    assert "at multiples of 10" in pause.sentence


def test_longer_sequences_from_a_step_on_are_no_pause() -> None:
    seconds = _noise(200, 16)
    seconds[100:] *= 2.0
    (pause,) = _verdict(_roster("a" * 16), seconds).pauses
    assert pause.kind is PauseKind.LASTING
    assert "since step 100" in pause.sentence


def test_a_table_of_every_tenth_step_has_no_regular_pause_where_the_steps_become_longer() -> None:
    analysis, seconds = SlowAnalysis(_roster("a" * 16)), _noise(200, 16)
    seconds[100:] *= 2.0
    for number, row in enumerate(seconds):
        analysis.observe(10 * number, row)
    (pause,) = analysis.verdict().pauses
    assert pause.kind is PauseKind.LASTING
    assert "since step 1000" in pause.sentence


def test_steps_after_a_restart_are_one_pause() -> None:
    seconds = _noise(200, 16)
    seconds[100:103] *= 15.0
    (pause,) = _verdict(_roster("a" * 16), seconds).pauses
    assert (pause.kind, pause.steps) == (PauseKind.COMMON, 3)
    assert "once (steps 100)" in pause.sentence


def test_garbage_collection_is_not_told_as_uneven_data() -> None:
    seconds = _noise(200, 64)
    for worker in range(64):
        seconds[worker % 40 :: 40, worker] += 0.8
    verdict = _verdict(_roster("a" * 64), seconds)
    assert not verdict.imbalances
    assert [one.kind for one in verdict.pauses] == [PauseKind.SCATTERED]


@pytest.mark.parametrize("seed", range(4))
def test_workers_that_are_noisier_than_their_peers_are_not_blamed_for_chance(seed: int) -> None:
    """Four of 32 share their hosts with others: ten times the noise, and on average as fast."""
    random, seconds = np.random.default_rng(seed), _noise(200, 32, seed)
    seconds[:, ::8] *= np.exp(random.normal(0.0, 0.1, (200, 4)))
    assert not _verdict(_roster("a" * 32), seconds).slow


def test_a_worker_that_is_noisier_than_its_peers_is_named_when_it_is_slow() -> None:
    random, seconds = np.random.default_rng(1), _noise(120, 32)
    seconds[:, 5] *= np.exp(random.normal(0.0, 0.05, 120))
    seconds[60:, 5] *= 1.3
    (slow,) = _verdict(_roster("a" * 32), seconds).slow
    assert (slow.worker, slow.judged_step <= 80) == ("w5", True)


@pytest.mark.parametrize("seed", [2, 6])
def test_steps_of_two_lengths_blame_nobody(seed: int) -> None:
    """A fifth of all steps of all workers take 1.35 times as long, as chance has it."""
    random = np.random.default_rng(seed)
    seconds = np.exp(0.3 * (random.random((400, 64)) < 0.2)) * _noise(400, 64, seed)
    assert not _verdict(_roster("a" * 64), seconds).slow


def test_a_slow_worker_is_named_where_steps_have_two_lengths() -> None:
    random = np.random.default_rng(3)
    seconds = np.exp(0.3 * (random.random((120, 64)) < 0.2)) * _noise(120, 64)
    seconds[60:, 5] *= 1.6
    (slow,) = _verdict(_roster("a" * 64), seconds).slow
    assert (slow.worker, slow.judged_step <= 80) == ("w5", True)


@pytest.mark.parametrize("seed", range(6))
def test_a_node_whose_loader_stalls_in_most_steps_is_no_slow_node(seed: int) -> None:
    random, seconds = np.random.default_rng(seed), _noise(150, 32, seed)
    stalls = np.where(random.random(150) < 0.65, 1 + random.exponential(0.4, 150), 1.0)
    seconds[:, 8:12] *= stalls[:, None]
    verdict = _verdict(_roster("a" * 32, node="".join(one * 4 for one in "ABCDEFGH")), seconds)
    assert not verdict.slow
    assert not verdict.places


def test_a_pause_of_five_steps_before_some_that_are_long_by_chance_is_no_slowness() -> None:
    steps = ["-.016", "-.01", ".048", ".059", ".161", ".119", ".159", ".183", ".167", ".151"]
    seconds = _noise(60, 40, scale=0.02)
    seconds[30:40, 5] = np.exp([float(one) for one in steps[::-1]])
    assert not _verdict(_roster("a" * 40), seconds).slow


def test_a_loader_that_stalls_in_eight_steps_and_again_later_was_not_slow() -> None:
    seconds = _noise(60, 31, scale=0.02)
    for first, last in ((4, 14), (18, 20), (23, 24), (26, 29), (33, 36)):
        seconds[first:last, 5] *= 1.8
    verdict = _verdict(_roster("a" * 31), seconds)
    assert not verdict.slow


@pytest.mark.parametrize("seed", range(4))
def test_a_slow_worker_shows_in_uneven_data_of_which_half_is_shared_by_other_stages(
    seed: int,
) -> None:
    """Data of 6 % that all four stages of a replica share, and noise of 2.5 % of each worker."""
    random = np.random.default_rng(seed)
    data = np.tile(random.normal(0.0, 0.06, (80, 16)), 4)
    seconds = np.exp(data) * _noise(80, 64, seed, 0.025)
    roster = _roster("".join(one * 16 for one in "abcd"))
    assert not _verdict(roster, seconds).slow
    seconds[40:, 20] *= 1.12
    (slow,) = _verdict(roster, seconds).slow
    assert (slow.worker, slow.judged_step <= 60) == ("w20", True)
