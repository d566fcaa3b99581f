"""GPUs beside their peers: low ones are found, and what their work or an operator does is none."""

import re
from dataclasses import replace

import numpy as np
import pytest

from everstep_common.judging.findings import Mode, Severity
from everstep_common.reports.gpu_columns import HeldBy
from everstep_controller.core.model.node_findings import PRECURSORS
from everstep_controller.core.planned.slow_evidence import JUDGED
from everstep_controller.judging.gpu_conditions import BRAKE, CLOCKS, PCIE, SET_LOW
from everstep_controller.judging.gpu_view import SLOTS, Work
from simulation.seeds import seeds
from unit.judging.virtual_gpus import H100, SlotOfGpus, VirtualGpus, braked, low_clock, narrow

_LOW, _BRAKED, _PCIE = CLOCKS.name, BRAKE.name, PCIE.name
# Until what is there from the beginning is found: 24 samples that count, of which some are lost.
_FOUND = 60


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_in_a_fleet_that_is_only_noisy_nobody_is_found(seed: int) -> None:
    """16,384 GPUs for six minutes; in the long tests for a day."""
    looks = 4 if seed < 1 else 24 * 40
    fleet = VirtualGpus(2048, seed, domains=[f"r{number // 8}" for number in range(2048)])
    for _ in range(looks):
        fleet.pass_slots(SLOTS // 2)
        fleet.judge()
    assert fleet.told == []


@pytest.mark.parametrize("seed", seeds(3, 30))
@pytest.mark.parametrize("gpus", [slice(3, 4), slice(None)])
def test_a_low_gpu_and_a_low_node_are_found_with_their_numbers(seed: int, gpus: slice) -> None:
    fleet = VirtualGpus(8, seed, faults=[low_clock(5, gpus)])
    fleet.look(_FOUND)
    assert fleet.open == {("n5", _LOW)}
    (raised,) = fleet.told
    assert raised.finding is not None
    assert re.search(r"SM clock 1,[0-9]{3} MHz beside 1,[0-9]{3} MHz", raised.evidence)
    assert re.search(r"of [56][0-9] peers", raised.evidence)
    assert "peers since 1970-01-12T" in raised.evidence
    numbers = {one.name: one.value for one in raised.measurements}
    assert numbers["clock_mhz"] <= 1230
    assert numbers["peers_median_mhz"] > 1500
    assert numbers["gpus_low"] <= (8 if gpus == slice(None) else 1)


def test_who_is_well_again_is_cleared_on_evidence() -> None:
    fleet = VirtualGpus(8, faults=[low_clock(5, 3)], capped=0.2)
    fleet.look(_FOUND)
    assert fleet.open == {("n5", _LOW)}
    fleet.faults.clear()
    fleet.look(_FOUND)
    assert fleet.open == set()
    assert [one.finding is None for one in fleet.told] == [False, True]


def test_what_is_found_is_held_while_nobody_works_there_and_over_a_restart() -> None:
    fleet = VirtualGpus(8, faults=[low_clock(5, 3)], capped=0.2)
    fleet.look(_FOUND)
    fleet.restart()
    fleet.works = [None] * 8
    assert fleet.look(_FOUND) == []
    fleet.works = [Work("j-2", 0)] * 8
    fleet.faults.clear()
    fleet.look(_FOUND)
    assert fleet.open == set()


def test_a_controller_that_restarts_again_and_again_finds_nobody_before_it_has_seen_enough() -> (
    None
):
    fleet = VirtualGpus(8, faults=[low_clock(5, 3)], capped=0.0)
    for _ in range(10):
        fleet.restart()
        assert fleet.look(20) == []
    assert fleet.look(20)


@pytest.mark.parametrize("held", [HeldBy.POWER_CAP, HeldBy.IDLE, HeldBy.UNKNOWN])
def test_low_clocks_that_work_or_an_operator_explains_are_no_finding(held: HeldBy) -> None:
    fleet = VirtualGpus(8, faults=[low_clock(5, slice(None), held=int(held))])
    assert fleet.look(_FOUND) == []


def test_clocks_that_an_operator_has_set_are_told_once_and_are_no_evidence() -> None:
    fleet = VirtualGpus(8, faults=[low_clock(5, slice(None), held=int(HeldBy.SETTING))])
    (raised,) = fleet.look(2 * _FOUND)
    assert raised.key.condition == SET_LOW.name
    assert raised.finding is not None
    assert (raised.finding.severity, raised.finding.mode) == (Severity.INFO, Mode.OBSERVE)
    assert SET_LOW.name not in JUDGED | PRECURSORS.keys()


def test_heat_is_named_as_what_holds_the_clocks_down() -> None:
    fleet = VirtualGpus(8, faults=[low_clock(5, 3, held=int(HeldBy.HEAT))])
    (raised,) = fleet.look(_FOUND)
    assert "held down by heat" in raised.evidence


def test_a_brake_is_found_beside_peers_without_one() -> None:
    fleet = VirtualGpus(8, faults=[braked(2)])
    fleet.look(_FOUND)
    assert fleet.open == {("n2", _BRAKED), ("n2", _LOW)}
    evidence = {one.key.condition: one.evidence for one in fleet.told}
    assert "held down by the power brake" in evidence[_BRAKED]


@pytest.mark.parametrize(("width", "generation"), [(8, 5), (16, 4)])
def test_a_narrow_link_is_found_beside_its_peers(width: int, generation: int) -> None:
    fleet = VirtualGpus(8, faults=[narrow(2, 7, width, generation)])
    fleet.look(_FOUND)
    assert fleet.open == {("n2", _PCIE)}
    assert f"PCIe {generation} x{width} beside PCIe 5 x16" in fleet.told[0].evidence


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_a_rack_that_is_low_together_is_one_cause_and_no_nodes(seed: int) -> None:
    domains = [f"r{number // 8}" for number in range(64)]
    fleet = VirtualGpus(64, seed, domains=domains)
    # The brake of a rack takes some minutes to come to all of its nodes, and goes likewise.
    rng = np.random.default_rng(seed)
    nodes = [int(one) for one in rng.permutation(np.arange(8, 16))]
    fleet.look(30)
    for node in nodes:
        fleet.faults.append(braked(node))
        fleet.look(int(rng.integers(0, 3)))
    fleet.look(_FOUND)
    assert fleet.open == {("domain/r1", "DomainBraked"), ("domain/r1", "DomainClocksLow")}
    while fleet.faults:
        fleet.faults.pop()
        fleet.look(int(rng.integers(0, 3)))
    fleet.look(_FOUND)
    assert fleet.open == set()
    assert {one.node for one in fleet.told} == {""}


def test_two_of_a_racks_eight_nodes_are_two_nodes() -> None:
    domains = [f"r{number // 8}" for number in range(64)]
    fleet = VirtualGpus(64, domains=domains, faults=[low_clock(9, 1), low_clock(12, 2)])
    fleet.look(_FOUND)
    assert fleet.open == {("n9", _LOW), ("n12", _LOW)}


def test_where_many_nodes_of_a_job_are_low_nobody_is_the_odd_one() -> None:
    fleet = VirtualGpus(40, faults=[low_clock(node, slice(None)) for node in range(8)])
    assert fleet.look(_FOUND) == []


def test_with_fewer_than_four_nodes_or_eight_gpus_nobody_is_compared() -> None:
    assert VirtualGpus(3, faults=[low_clock(1, 0)]).look(_FOUND) == []
    assert VirtualGpus(6, gpus=1, faults=[low_clock(1, 0)]).look(_FOUND) == []


def test_other_jobs_and_other_models_are_no_peers() -> None:
    fast, slow = Work("fast-1", 0), Work("slow-2", 0)
    works = [fast] * 8 + [slow] * 8
    fleet = VirtualGpus(16, works=works)
    fleet.faults = [low_clock(node, slice(None)) for node in range(8, 16)]
    assert fleet.look(_FOUND) == []
    models = [(H100,) * 8] * 13 + [("NVIDIA A100",) * 8] * 3
    mixed = VirtualGpus(16, models=models)
    mixed.faults = [low_clock(node, slice(None)) for node in range(13, 16)]
    assert mixed.look(_FOUND) == []


def test_a_node_with_two_jobs_or_none_is_not_compared() -> None:
    works = [Work("j-1", 0)] * 7 + [None]
    fleet = VirtualGpus(8, works=works, faults=[low_clock(7, 0)])
    assert fleet.look(_FOUND) == []


def test_what_was_before_the_generation_does_not_count() -> None:
    fleet = VirtualGpus(8, faults=[low_clock(7, 0)], capped=0.0)
    fleet.pass_slots(SLOTS)
    fleet.works = [Work("j-1", int(fleet.now_s * 1e9))] * 8
    assert fleet.look(20) == []
    assert fleet.look(20)


@pytest.mark.parametrize("clock", [0, 65_535])
def test_a_clock_that_is_no_clock_says_nothing(clock: int) -> None:
    def wrong(slot: SlotOfGpus) -> None:
        slot.clock[3, :] = clock

    assert VirtualGpus(8, faults=[wrong]).look(_FOUND) == []


def test_without_columns_of_older_agents_nothing_is_said() -> None:
    def silent(slot: SlotOfGpus) -> None:
        for column in (slot.clock, slot.busy, slot.held, slot.width, slot.generation):
            column[4:] = 0

    fleet = VirtualGpus(8, faults=[silent, low_clock(2, 0)], capped=0.0)
    fleet.look(_FOUND)
    assert fleet.open == {("n2", _LOW)}, "the four that tell are enough, and the others are held"


@pytest.mark.parametrize("seed", seeds(10, 200))
def test_whatever_a_job_has_its_own_gpus_do_no_node_of_others_is_found(seed: int) -> None:
    """A job may idle, draw power and pause as it likes, on its own nodes and on shared ones."""
    rng = np.random.default_rng(seed)
    mine, theirs = Work("hostile-1", 0), Work("theirs-2", 0)
    # It shares two nodes with the other job, and two more are its own beside theirs in each rack.
    works: list[Work | None] = [mine] * 8 + [None] * 2 + [theirs] * 10
    domains = [f"r{number % 4}" for number in range(20)]
    alone = VirtualGpus(20, seed, works=works, domains=domains)
    beside = replace(alone, seed=seed)

    def play(slot: SlotOfGpus) -> None:
        shape = (10, 8)
        idle = rng.random(shape) < rng.random()
        slot.busy[:10] = np.where(idle, 0, 5)
        slot.clock[:10] = rng.choice([210, 600, 1200, 1980], shape)
        slot.held[:10] = rng.choice([0, int(HeldBy.IDLE), int(HeldBy.POWER_CAP)], shape)

    beside.faults = [play]
    beside.look(_FOUND)
    assert {node for node, _ in beside.open} & {f"n{number}" for number in range(8, 20)} == set()


@pytest.mark.parametrize("seed", seeds(10, 200))
def test_idling_and_drawing_power_in_any_pattern_makes_no_node_slow(seed: int) -> None:
    """What a job can do to clocks shows as idling or as its power cap, also on its own nodes."""
    rng = np.random.default_rng(seed)
    fleet = VirtualGpus(12, seed)
    victims = rng.permutation(12)[: rng.integers(1, 4)]

    def play(slot: SlotOfGpus) -> None:
        idle = rng.random((len(victims), 8)) < 0.3
        slot.busy[victims] = np.where(idle, rng.integers(0, 5, idle.shape), 5)
        slot.clock[victims] = np.where(idle, 210, 900)
        slot.held[victims] = np.where(idle, int(HeldBy.IDLE), int(HeldBy.POWER_CAP))

    fleet.faults = [play]
    assert fleet.look(_FOUND) == []
