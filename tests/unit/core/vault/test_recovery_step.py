"""Which step a job goes back to, over tiers, branches and states that are avoided."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_controller.core.model.snapshots import BranchPoint, StepKey
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import Question, choose_step
from unit.core.vault.vault_story import BRANCH, NODES, REACHABLE, copy, ring, stored


def _question(*avoided: StepKey, alive: tuple[str, ...] = NODES) -> Question:
    reachable = {node: REACHABLE[node] for node in alive}
    return Question(BRANCH, reachable, expected=True, avoided=avoided)


def test_of_one_step_memory_is_taken_before_disk_and_disk_before_storage() -> None:
    catalogue = ring([5], files=[5])
    catalogue.record_stored("a", [stored(5)])
    choice = choose_step(catalogue, _question())
    assert (choice.step, choice.generation, choice.stored) == (5, 1, stored(5))
    assert [source.on_disk for source in choice.sources] == [False] * 6 + [True] * 3
    assert choice.reason == "step 5 is the newest that 3 nodes hold whole"


def test_a_newer_step_in_a_slower_tier_wins() -> None:
    catalogue = ring([3], files=[4])
    assert choose_step(catalogue, _question()).step == 4
    catalogue.record_stored("b", [stored(5)])
    choice = choose_step(catalogue, _question())
    assert (choice.step, choice.sources, choice.stored) == (5, (), stored(5))
    assert "shared storage" in choice.reason


def test_memory_and_files_together_make_a_step_whole() -> None:
    catalogue = Catalogue()
    catalogue.replace("a", [copy("a", 0, 5), copy("a", 1, 5, disk=True)], 1)
    catalogue.replace("c", [copy("c", 2, 5)], 1)
    choice = choose_step(catalogue, _question())
    assert choice.step == 5
    assert [(source.rank, source.on_disk) for source in choice.sources] == [
        (0, False),
        (2, False),
        (1, True),
    ]


def test_a_job_on_one_node_is_told_so() -> None:
    catalogue = Catalogue()
    catalogue.replace("a", [copy("a", rank, 5) for rank in range(3)], 1)
    assert (
        choose_step(catalogue, _question()).reason
        == "step 5 is the newest that one node holds whole"
    )


def test_what_only_a_node_that_is_away_can_read_is_not_there() -> None:
    catalogue = ring([3])
    catalogue.record_stored("c", [stored(5)])
    assert choose_step(catalogue, _question(alive=("a", "b"))).step == 3


def test_a_stored_step_of_an_abandoned_branch_is_never_chosen() -> None:
    catalogue = ring([3])
    catalogue.record_stored("a", [stored(9)])
    branch = (BranchPoint(1, 3, 3), BranchPoint(2, None, 3))
    assert choose_step(catalogue, Question(branch, REACHABLE, expected=True)).step == 3


def test_a_job_begins_where_its_launchers_say_that_storage_ends() -> None:
    branch = (BranchPoint(4, 40, 3),)
    question = Question(branch, REACHABLE, expected=False, stored=(stored(40, generation=4),))
    choice = choose_step(Catalogue(), question)
    assert (choice.step, choice.generation) == (40, 4)


def test_a_state_that_is_avoided_gives_way_to_an_older_one_in_any_tier() -> None:
    catalogue = ring([5])
    catalogue.record_stored("a", [stored(2)])
    choice = choose_step(catalogue, _question((1, 5)))
    assert (choice.step, choice.stored) == (2, stored(2))
    assert "crashed twice soon after step 5 was restored" in choice.reason


def test_a_state_that_is_avoided_is_taken_again_when_there_is_no_other_and_says_so() -> None:
    choice = choose_step(ring([5]), _question((1, 5)))
    assert choice.step == 5
    assert "again, for no older one is left" in choice.reason


def test_equal_parts_of_data_parallel_ranks_stand_in_for_each_other() -> None:
    catalogue = Catalogue()
    for index, node in enumerate(NODES):
        same = copy(node, index, 5)._replace(layout="part-0", replica=False)
        catalogue.replace(node, [same], 1)
    point = BranchPoint(1, None, 3, ("part-0",))
    assert catalogue.recoverable(1, NODES, 3).step == 5
    for alive in NODES:
        question = Question([point], {alive: "x:1"}, expected=True)
        assert choose_step(catalogue, question).step == 5


def test_a_state_that_has_grown_since_its_parts_were_learned_is_judged_by_its_ranks() -> None:
    """An optimizer without state before its first step: the layout of step 0 is not that of 1."""
    catalogue = Catalogue()
    for index, node in enumerate(NODES):
        grown = copy(node, index, 6)._replace(layout=f"grown-{index}")
        catalogue.replace(node, [copy(node, index, 5), grown], 1)
    point = BranchPoint(1, None, 3, ("part-0", "part-1", "part-2"))
    assert choose_step(catalogue, Question([point], REACHABLE, expected=True)).step == 6
    two = Question([point], {node: "x:1" for node in NODES[:2]}, expected=True)
    assert (
        "part part-2" in choose_step(catalogue, two).lost
        or choose_step(catalogue, two).step is None
    )


def _like_rank_0(rank: int, step: int, node: str) -> Copy:
    """Return a copy of what data-parallel ranks have alike, and of something of the rank's own."""
    return copy(node, rank, step)._replace(needed="alike")


def test_what_is_only_a_lost_ranks_own_does_not_make_a_step_unusable() -> None:
    catalogue = Catalogue()
    for rank, node in enumerate(NODES):
        catalogue.replace(node, [_like_rank_0(rank, 5, node)], 1)
    learned = catalogue.layouts(1, 3)
    assert learned == ("alike",)
    point = BranchPoint(1, None, 3, learned)
    choice = choose_step(catalogue, Question([point], {"b": "b:1", "c": "c:1"}, expected=True))
    assert choice.step == 5
    assert choice.reason.endswith("whole, but 1 of the ranks lost what was theirs alone")


def test_a_step_before_in_which_no_rank_lost_anything_is_taken_first() -> None:
    catalogue = Catalogue()
    for rank, node in enumerate(NODES):
        steps = [4] if rank == 0 else [4, 5]
        catalogue.replace(node, [_like_rank_0(rank, step, node) for step in steps], 1)
    point = BranchPoint(1, None, 3, ("alike",))
    assert choose_step(catalogue, Question([point], REACHABLE, expected=True)).step == 4
    lost = Question([point], {"b": "b:1", "c": "c:1"}, expected=True)
    assert choose_step(catalogue, lost).step == 5
    catalogue.record_stored("b", [stored(3)])
    assert choose_step(catalogue, lost).step == 5


def test_memory_is_freed_only_for_a_step_that_every_rank_has() -> None:
    catalogue = Catalogue()
    for node in NODES[:2]:
        catalogue.replace(node, [_like_rank_0(rank, 5, node) for rank in (1, 2)], 1)
    assert catalogue.recoverable(1, NODES, 3, ("alike",)).step is None
    catalogue.replace("c", [_like_rank_0(0, 5, "c")], 1)
    assert catalogue.recoverable(1, NODES, 3, ("alike",)).step is None  # rank 0's own: one node
    catalogue.replace("a", [_like_rank_0(rank, 5, "a") for rank in range(3)], 1)
    assert catalogue.recoverable(1, NODES, 3, ("alike",)).step == 5


_PLACES = st.sets(
    st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 4), st.sampled_from(NODES))
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_PLACES, _PLACES, st.sets(st.integers(0, 4)), st.sets(st.sampled_from(NODES)))
def test_the_choice_is_whole_of_the_branch_and_none_newer_is(
    memory: set[tuple[int, int, int, str]],
    disk: set[tuple[int, int, int, str]],
    whole: set[int],
    alive: set[str],
) -> None:
    branch = (BranchPoint(1, 2, 3), BranchPoint(2, None, 3))
    catalogue = Catalogue()
    for node in NODES:
        held = [copy(n, r, s, generation=g) for g, r, s, n in memory if n == node]
        held += [copy(n, r, s, generation=g, disk=True) for g, r, s, n in disk if n == node]
        catalogue.replace(node, held, 2)
    catalogue.record_stored("a", [stored(step) for step in whole])
    reachable = {node: REACHABLE[node] for node in alive}
    choice = choose_step(catalogue, Question(branch, reachable, expected=True))
    possible = {
        step
        for generation, step in ((g, s) for g in (1, 2) for s in range(5) if g == 2 or s <= 2)
        if ("a" in alive and generation == 1 and step in whole)
        or all(
            any((generation, rank, step, n) in memory | disk for n in alive) for rank in range(3)
        )
    }
    assert choice.step == max(possible, default=None)
    assert all(s.step == choice.step and s.node in alive for s in choice.sources)
