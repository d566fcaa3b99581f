"""The catalogue answers from its index exactly as from a look at every copy."""

from collections import defaultdict
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.catalogue import Catalogue, Copy, Recoverable

NODES = ("a", "b", "c")


@st.composite
def _copies(draw: st.DrawFn, node: str) -> list[Copy]:
    number = st.integers(0, 2)
    places = draw(st.lists(st.tuples(number, number, number, st.booleans(), number), max_size=9))
    return [
        Copy(node, generation, rank, step, replica, f"{content}", 8, (f"s{rank}",))
        for generation, rank, step, replica, content in places
    ]


_NODE = st.sampled_from(NODES)
_REPORT = _NODE.flatmap(lambda node: st.tuples(st.just(node), st.none() | _copies(node)))


def _distinct(copies: Sequence[Copy]) -> list[Copy]:
    """Return one copy of each place of a step: the last, as a node's list tells it."""
    return list({(c.generation, c.step, c.place): c for c in copies}.values())


def _recoverable(copies: Sequence[Copy], generation: int, world_size: int) -> Recoverable:
    holders: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    own: dict[int, set[int]] = defaultdict(set)
    for copy in copies:
        if copy.generation == generation:
            holders[copy.step][copy.rank].add(copy.node)
            if not copy.replica:
                own[copy.rank].add(copy.step)
    whole = [
        step
        for step, ranks in holders.items()
        if len(ranks) == world_size and all(len(nodes) >= 2 for nodes in ranks.values())
    ]
    newest = max(whole, default=None)
    dead = {
        step
        for steps in own.values()
        for step in steps
        if (newest is None or step > newest)
        and any(step not in others and max(others) > step for others in own.values())
    }
    return Recoverable(newest, tuple(sorted(dead)) if len(own) >= world_size else ())


@given(st.lists(_REPORT, max_size=12))
def test_every_answer_is_that_of_a_look_at_every_copy(
    reports: list[tuple[str, list[Copy] | None]],
) -> None:
    catalogue = Catalogue()
    held: dict[str, list[Copy]] = {}
    for node, copies in reports:
        if copies is None:
            catalogue.forget(node)
            held.pop(node, None)
        else:
            catalogue.replace(node, copies, 0)
            held[node] = _distinct(copies)
        every = [copy for some in held.values() for copy in some]
        assert sorted(map(repr, catalogue.copies())) == sorted(map(repr, every))
        for generation in range(3):
            for world_size in (1, 2, 3):
                expected = _recoverable(every, generation, world_size)
                assert catalogue.recoverable(generation, NODES, world_size) == expected
