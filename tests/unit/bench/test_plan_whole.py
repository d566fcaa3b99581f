"""A whole plan, as the benchmark of large jobs makes it: what it orders is right."""

import pytest
from plan_whole import Whole, formed, lose, run
from scale_fleet import RANKS_PER_NODE

from everstep_controller.core.actions import StartGeneration
from everstep_controller.core.vault.recovery_step import group_sources
from everstep_controller.core.vault.replication import replica_targets

_LOST = "n40"


@pytest.fixture(scope="module")
def planned() -> tuple[Whole, list[str], list[StartGeneration]]:
    """A job of 128 nodes in racks of 31 with a spare each that has lost one; before and after."""
    whole = formed(132, 128)
    run(whole)
    before = list(whole.job.generation.members)
    return whole, before, lose(whole, _LOST)


Planned = tuple[Whole, list[str], list[StartGeneration]]


def test_the_spare_of_the_rack_takes_the_place_and_all_others_keep_theirs(planned: Planned) -> None:
    whole, before, starts = planned
    after = [start.node for start in starts]
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [(_LOST, "n63")]
    domains = {name: node.spec.domain for name, node in whole.bench.core.state.nodes.items()}
    assert domains["n63"] == domains[_LOST]


def test_every_rank_is_ordered_once_at_one_place(planned: Planned) -> None:
    _, _, starts = planned
    ranks = [start.first_rank + rank for start in starts for rank in range(start.processes)]
    assert ranks == list(range(128 * RANKS_PER_NODE))
    assert {(start.world_size, start.generation) for start in starts} == {(1024, 2)}
    assert {(start.master_address, start.master_port) for start in starts} == {("127.0.0.1", 29500)}


def test_only_the_replicas_from_and_to_the_lost_node_go_elsewhere(planned: Planned) -> None:
    whole, before, starts = planned
    domains = {name: node.spec.domain for name, node in whole.bench.core.state.nodes.items()}
    old = replica_targets(before, domains)
    new = replica_targets([start.node for start in starts], domains)
    keeper = next(home for home, target in old.items() if target == _LOST)
    kept = old.keys() - {_LOST, keeper}
    assert {home: old[home] for home in kept} == {home: new[home] for home in kept}
    assert (new["n63"], new[keeper]) == (old[_LOST], "n63")
    assert all(domains[home] != domains[target] for home, target in new.items())


def test_each_member_is_told_of_what_its_ranks_had_and_of_nothing_that_is_lost(
    planned: Planned,
) -> None:
    whole, before, starts = planned
    domains = {name: node.spec.domain for name, node in whole.bench.core.state.nodes.items()}
    target = replica_targets(before, domains)[_LOST]
    told = group_sources(whole.job)
    assert {source.node for source in told.of("n63")} == {target}
    for start in starts:
        ranks = range(start.first_rank, start.first_rank + RANKS_PER_NODE)
        named = told.of(start.node)
        assert {source.rank for source in named} == set(ranks)
        assert {source.step for source in named} == {starts[0].restore_step}
        assert _LOST not in {source.node for source in named}
