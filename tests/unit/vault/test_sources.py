"""Which sources a state is taken from: the best tier first, each shard once, equal copies alike."""

from everstep_agent.vault.restore.sources import (
    CopySource,
    SourceTier,
    best_for_ranks,
    choose_in_parts,
    lacking_in_parts,
    own_parts,
    sources_in_storage,
    sources_of_plan,
    without_other_ranks,
)
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, CopyRef, LayoutCache
from everstep_agent.vault.snapshots.file_tier import FileCopy
from everstep_agent.vault.snapshots.manifest import Layout, layout_of
from everstep_common.long_frames import finish
from everstep_common.orders import ShardSource
from everstep_common.rank_messages import Entry


def _wanted(rank: int, size: int = 10, root: bytes = b"r") -> CopyRef:
    return CopyRef(CopyKey(1, rank, 5), size, root)


def _named(rank: int, node: str, *, on_disk: bool = False) -> ShardSource:
    return ShardSource(
        node=node,
        bulk_address=f"{node}:1",
        generation=1,
        rank=rank,
        step=5,
        root_hash=b"r".hex(),
        size_bytes=10,
        on_disk=on_disk,
    )


def test_what_is_held_here_is_own_memory_whoever_the_plan_names() -> None:
    found = sources_of_plan([_named(0, "b")], [_wanted(0)], "a")
    assert [str(source) for source in found] == ["own memory", "peer memory of b"]


def test_a_copy_with_another_hash_is_not_the_one_that_is_wanted() -> None:
    found = sources_of_plan([_named(0, "b")], [_wanted(0, root=b"other")], "a")
    assert [source.tier for source in found] == [SourceTier.PEER_MEMORY]


def test_memory_comes_before_disks_and_the_own_disk_asks_no_agent() -> None:
    found = sources_of_plan(
        [_named(0, "a", on_disk=True), _named(0, "b", on_disk=True), _named(0, "c")], [], "a"
    )
    assert [(source.tier, source.address) for source in found] == [
        (SourceTier.PEER_MEMORY, "c:1"),
        (SourceTier.LOCAL_DISK, ""),
        (SourceTier.LOCAL_DISK, "b:1"),
    ]


def test_memory_that_this_node_has_no_more_is_no_source() -> None:
    assert sources_of_plan([_named(0, "a")], [], "a") == []


def _content(
    tier: SourceTier, names: str, size: int = 10, rank: int = 0
) -> tuple[CopySource, frozenset[str]]:
    return CopySource(tier, _wanted(rank, size), node=tier.name), frozenset(names)


def choose(
    contents: list[tuple[CopySource, frozenset[str]]], missing: set[str]
) -> list[CopySource]:
    return finish(choose_in_parts(contents, missing))


def test_a_better_tier_is_taken_though_another_has_more() -> None:
    own = _content(SourceTier.OWN_MEMORY, "a")
    peer = _content(SourceTier.PEER_MEMORY, "abc")
    assert choose([peer, own], set("ab")) == [own[0], peer[0]]


def test_within_a_tier_the_one_that_brings_most_comes_first() -> None:
    one = _content(SourceTier.PEER_MEMORY, "a", rank=1)
    most = _content(SourceTier.PEER_MEMORY, "abc", rank=2)
    assert choose([one, most], set("abc")) == [most[0]]


def test_of_equal_ones_the_smallest_is_taken_and_no_second() -> None:
    large = _content(SourceTier.PEER_MEMORY, "ab", size=100, rank=1)
    small = _content(SourceTier.PEER_MEMORY, "ab", size=10, rank=2)
    assert choose([large, small], {"a"}) == [small[0]]


def test_what_nobody_has_leaves_the_rest_to_be_chosen() -> None:
    one = _content(SourceTier.PEER_MEMORY, "a")
    assert choose([one], {"a", "z"}) == [one[0]]
    assert choose([one], {"z"}) == []


def test_what_is_in_none_of_them_is_lacking_and_what_was_asked_stays_as_it_was() -> None:
    asked = set("abcd")
    assert finish(lacking_in_parts(asked, [frozenset("ab"), frozenset("cz")])) == {"d"}
    assert asked == set("abcd")


def test_of_very_many_names_only_some_are_looked_up_at_once() -> None:
    names = [str(number) for number in range(100_000)]
    halves = [
        (CopySource(SourceTier.PEER_MEMORY, _wanted(rank), node="b"), frozenset(names[rank::2]))
        for rank in (0, 1)
    ]
    looked = sum(1 for _ in choose_in_parts(halves, set(names)))
    assert looked >= 20


def _part(tier: SourceTier, rank: int, layout: bytes) -> CopySource:
    return CopySource(tier, _wanted(rank), layout, "n")


def test_ahead_of_being_asked_a_node_fetches_the_best_copy_of_its_own_ranks() -> None:
    peer, disk = _part(SourceTier.PEER_MEMORY, 1, b"one"), _part(SourceTier.LOCAL_DISK, 1, b"one")
    equal = _part(SourceTier.OWN_MEMORY, 7, b"one")
    other = _part(SourceTier.PEER_MEMORY, 3, b"three")
    assert best_for_ranks(range(1, 2), [peer, disk, other]) == [peer]
    assert best_for_ranks(range(1, 2), [equal, peer, disk, other]) == [equal]


def _saved(rank: int, root: bytes, tier: SourceTier = SourceTier.PEER_MEMORY) -> CopySource:
    return CopySource(tier, _wanted(rank, root=root), b"w", f"node-{rank}")


def test_ahead_of_being_asked_a_node_fetches_what_each_of_its_ranks_saved() -> None:
    saved = [_saved(0, b"zero"), _saved(1, b"one"), _saved(2, b"two")]
    assert best_for_ranks(range(1, 3), saved) == saved[1:]


def test_of_one_part_a_rank_is_given_the_bytes_that_it_saved_itself() -> None:
    saved = [_saved(0, b"zero"), _saved(1, b"one"), _saved(1, b"one", SourceTier.LOCAL_DISK)]
    assert without_other_ranks(saved, own_parts(saved, 1)) == saved[1:]
    assert without_other_ranks(saved, own_parts(saved, 7)) == saved


def test_equal_copies_of_other_ranks_are_as_good_as_the_own_one() -> None:
    saved = [_saved(0, b"same"), _saved(1, b"same")]
    assert without_other_ranks(saved, own_parts(saved, 1)) == saved


def test_ranks_that_the_plan_does_not_name_take_the_only_part_there_is() -> None:
    only = _part(SourceTier.PEER_MEMORY, 0, b"one")
    assert best_for_ranks(range(4, 8), [only]) == [only]
    assert best_for_ranks(range(4, 8), [only, _part(SourceTier.PEER_MEMORY, 1, b"two")]) == []


def test_the_files_of_a_stored_step_are_sources_of_shared_storage() -> None:
    (source,) = sources_in_storage([FileCopy(CopyRef(CopyKey(1, 0, 5), 10, b"r"), b"layout")])
    assert (source.tier, source.part) == (SourceTier.SHARED_STORAGE, b"layout")
    assert str(source) == "shared storage"


def test_copies_with_the_same_names_have_the_same_layout_wherever_the_shards_lie() -> None:
    one, other = Entry("a", 0, 1), Entry("b", 1, 1)
    swapped = (Entry("b", 0, 1), Entry("a", 64, 1))
    assert layout_of((one, other)) == layout_of(swapped)
    assert layout_of((one,)) != layout_of((one, other))
    assert len(layout_of((one,))) == 16


def test_a_layout_that_was_worked_out_before_is_the_same() -> None:
    layouts = LayoutCache()
    facts = CopyManifest(CopyKey(1, 0, 5), 1, b"r", (Entry("a", 0, 1),))
    assert layouts.layout_of(facts) == layouts.layout_of(facts) == Layout(layout_of(facts.entries))


def test_of_ranks_with_replaceable_things_of_their_own_what_is_needed_is_equal() -> None:
    shared = Entry("model/w", 0, 1)
    layouts = [
        LayoutCache().layout_of(
            CopyManifest(CopyKey(1, rank, 5), 2, b"r", (shared, Entry(private, 1, 1)))
        )
        for rank, private in enumerate(["rank-0~/random#tree", "rank-1~/random#tree", "rank-2/x"])
    ]
    assert len({layout.whole for layout in layouts}) == 3
    assert layouts[0].needed == layouts[1].needed == layout_of((shared,))
    assert layouts[2].needed == b""
