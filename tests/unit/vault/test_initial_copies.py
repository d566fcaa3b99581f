"""What a generation begins from, and what of it is on one node only."""

from everstep_agent.vault.snapshots.copies import CopyKey, initial_copies


def test_a_copy_that_only_this_node_has_is_told_from_those_that_others_have_too() -> None:
    alone, shared, elsewhere = (CopyKey(1, rank, 4) for rank in range(3))
    holders = [(alone, "a"), (shared, "a"), (shared, "b"), (elsewhere, "b")]
    found = initial_copies(holders, "a")
    assert found.only_here == {alone}
    assert found.keys == {alone, shared, elsewhere}


def test_both_copies_on_one_node_are_lost_with_it() -> None:
    key = CopyKey(1, 0, 4)
    assert initial_copies([(key, "a"), (key, "a")], "a").only_here == {key}
