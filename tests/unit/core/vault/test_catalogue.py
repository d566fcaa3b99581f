"""The catalogue: which step can be restored, from where, and what may be freed."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.vault.catalogue import Catalogue
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.recovery_step import Choice, Question, choose_step

WORLD = 3
NODES = ("a", "b", "c")
PARTS = ("part-0", "part-1", "part-2")


def _copy(node: str, rank: int, step: int, generation: int = 1) -> Copy:
    replica = node != NODES[rank]
    return Copy(node, generation, rank, step, replica, f"{rank}.{step}", 8, f"part-{rank}")


def _ring(*steps: int, generation: int = 1) -> Catalogue:
    """Return a catalogue in which each rank's copy is at home and on the next node."""
    catalogue = Catalogue()
    for index, node in enumerate(NODES):
        own = [_copy(node, index, step, generation) for step in steps]
        kept = [_copy(node, (index - 1) % WORLD, step, generation) for step in steps]
        catalogue.replace(node, own + kept, generation)
    return catalogue


def _reach(*nodes: str) -> dict[str, str]:
    return {node: f"{node}:7436" for node in nodes}


def _choose(
    catalogue: Catalogue, branch: tuple[BranchPoint, ...], reachable: dict[str, str]
) -> Choice:
    return choose_step(catalogue, Question(branch, reachable, expected=True))


def test_a_step_on_two_nodes_each_is_recoverable_without_any_one() -> None:
    assert _ring(4, 5).recoverable(1, NODES, WORLD).step == 5


def test_a_step_without_replicas_is_not() -> None:
    catalogue = Catalogue()
    for rank, node in enumerate(NODES):
        catalogue.replace(node, [_copy(node, rank, 5)], 0)
    assert catalogue.recoverable(1, NODES, WORLD).step is None


def test_one_node_alone_needs_no_replica() -> None:
    catalogue = Catalogue()
    catalogue.replace("a", [_copy("a", 0, 5)], 0)
    assert catalogue.recoverable(1, ("a",), 1).step == 5


def test_a_step_that_one_rank_has_passed_without_a_snapshot_is_dead() -> None:
    catalogue = Catalogue()
    catalogue.replace("a", [_copy("a", 0, 5), _copy("a", 0, 6)], 0)
    catalogue.replace("b", [_copy("b", 1, 6)], 0)
    catalogue.replace("c", [_copy("c", 2, 5)], 0)
    assert catalogue.recoverable(1, NODES, WORLD).dead_steps == (5,)


def test_of_steps_whose_own_copies_are_lost_for_good_only_the_newest_is_kept() -> None:
    catalogue = Catalogue()
    # B's agent has lost its memory, also the replicas of a's copies, and has saved a newer step.
    steps = (4, 5, 6)
    catalogue.replace("a", [_copy("a", 0, step) for step in steps], 0)
    catalogue.replace("b", [_copy("b", 1, 60)], 0)
    own = [_copy("c", 2, step) for step in steps]
    catalogue.replace("c", [*own, *(_copy("c", 1, step) for step in steps)], 0)
    found = catalogue.recoverable(1, NODES, WORLD)
    assert (found.step, found.dead_steps) == (None, (4, 5))


def test_of_such_steps_an_older_one_is_kept_until_replicas_of_the_newest_have_come() -> None:
    catalogue = Catalogue()
    catalogue.replace("a", [_copy("a", 0, 4), _copy("a", 2, 4), _copy("a", 0, 5)], 0)
    catalogue.replace("b", [_copy("b", 1, 60)], 0)
    own = [_copy("c", rank, step) for rank in (2, 1) for step in (4, 5)]
    fourth = [_copy("d", 0, 4), _copy("d", 0, 5)]
    catalogue.replace("c", own, 0)
    catalogue.replace("d", fourth, 0)
    # Whichever of a and d is lost, 4 could be restored; 5 neither without c.
    assert catalogue.recoverable(1, (*NODES, "d"), WORLD).dead_steps == (4,)
    catalogue.replace("d", [_copy("d", 0, 4)], 0)
    assert catalogue.recoverable(1, (*NODES, "d"), WORLD).dead_steps == ()
    catalogue.replace("d", fourth, 0)
    assert catalogue.recoverable(1, (*NODES, "d"), WORLD).dead_steps == (4,)


def test_the_loss_of_any_one_node_leaves_the_newest_step() -> None:
    for dead in NODES:
        catalogue = _ring(4, 5)
        catalogue.forget(dead)
        branch = (BranchPoint(1, None, WORLD),)
        alive = _reach(*(node for node in NODES if node != dead))
        choice = _choose(catalogue, branch, alive)
        assert choice.step == 5
        assert {source.layout for source in choice.sources} == set(PARTS)


def test_steps_of_an_abandoned_branch_are_never_chosen() -> None:
    catalogue = _ring(4, 5, 9)
    branch = (BranchPoint(1, 5, WORLD), BranchPoint(2, None, WORLD))
    assert _choose(catalogue, branch, _reach(*NODES)).step == 5


def test_a_job_that_had_a_snapshot_never_starts_over_in_silence() -> None:
    catalogue = _ring(5)
    branch = (BranchPoint(1, None, WORLD, PARTS),)
    choice = _choose(catalogue, branch, _reach("a"))
    assert choice.step is None
    assert choice.lost == "no reachable copy of rank 1"


def test_a_job_without_a_snapshot_starts_from_the_beginning() -> None:
    choice = choose_step(Catalogue(), Question((), {}, expected=False))
    assert (choice.step, choice.lost) == (None, "")


def test_the_layout_is_known_when_every_rank_has_reported() -> None:
    catalogue = Catalogue()
    catalogue.replace("a", [_copy("a", 0, 1)], 0)
    assert catalogue.layouts(1, WORLD) == ()
    assert _ring(1).layouts(1, WORLD) == PARTS


@given(
    st.sets(st.tuples(st.sampled_from(NODES), st.integers(0, 2), st.integers(0, 4))),
    st.sets(st.sampled_from(NODES)),
)
def test_what_is_chosen_is_whole_and_reachable_and_the_newest(
    held: set[tuple[str, int, int]], alive: set[str]
) -> None:
    catalogue = Catalogue()
    for node in NODES:
        catalogue.replace(node, [_copy(n, rank, step) for n, rank, step in held if n == node], 1)
    choice = _choose(catalogue, (BranchPoint(1, None, WORLD),), _reach(*alive))
    whole = [
        step
        for step in range(5)
        if all(any((n, rank, step) in held for n in alive) for rank in range(WORLD))
    ]
    assert choice.step == max(whole, default=None)
    assert all(source.node in alive and source.step == choice.step for source in choice.sources)
