"""The catalogue answers from its index exactly as from a look at every copy."""

from collections import defaultdict
from collections.abc import Sequence

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_controller.core.vault.catalogue import Catalogue, Recoverable
from everstep_controller.core.vault.copies import Copy, Tier

NODES = ("a", "b", "c")
LEARNED = (frozenset[str](), frozenset({"p"}), frozenset({"p", "q"}))


@st.composite
def _copies(draw: st.DrawFn, node: str) -> list[Copy]:
    number, tier = st.integers(0, 2), st.sampled_from(Tier)
    place = st.tuples(number, number, number, st.booleans(), st.sampled_from("pq"), tier)
    places = draw(st.lists(place, max_size=7))
    return [
        Copy(node, generation, rank, step, replica, f"{rank}{layout}", 8, layout, tier)
        for generation, rank, step, replica, layout, tier in places
    ]


_NODE = st.sampled_from(NODES)
_REPORT = _NODE.flatmap(lambda node: st.tuples(st.just(node), st.none() | _copies(node)))


def _distinct(copies: Sequence[Copy]) -> list[Copy]:
    """Return one copy of each place of a step: the last, as a node's list tells it."""
    return list({(c.generation, c.step, c.place): c for c in copies}.values())


def _recoverable(
    copies: Sequence[Copy], generation: int, world_size: int, learned: frozenset[str]
) -> Recoverable:
    ranks: dict[int, set[int]] = defaultdict(set)
    layouts: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    own: dict[int, set[int]] = defaultdict(set)
    own_layouts: dict[int, set[str]] = defaultdict(set)
    for copy in copies:
        if copy.generation == generation and copy.tier is Tier.MEMORY:
            ranks[copy.step].add(copy.rank)
            layouts[copy.step][copy.layout].add(copy.node)
            if not copy.replica:
                own[copy.rank].add(copy.step)
                own_layouts[copy.step].add(copy.layout)
    whole = [
        step
        for step, parts in layouts.items()
        if len(ranks[step]) >= world_size or (learned and parts.keys() == learned)
    ]
    safe = [step for step in whole if all(len(n) >= 2 for n in layouts[step].values())]
    newest = max(safe, default=None)
    passed = {
        step
        for steps in own.values()
        for step in steps
        if (newest is None or step > newest)
        and any(step not in others and max(others) > step for others in own.values())
    }
    # Whole, but what is left of some part is a single replica.
    orphans = {
        step
        for step in passed.intersection(whole)
        if any(
            len(n) < 2 and layout not in own_layouts[step] for layout, n in layouts[step].items()
        )
    }
    # Of each, the nodes that have the only copy of some part.
    exposed = {
        step: set().union(*(n for n in layouts[step].values() if len(n) < 2)) for step in orphans
    }
    if newest is None:
        orphans = {
            step
            for step in orphans
            if any(other > step and exposed[other] <= exposed[step] for other in orphans)
        }
    dead = passed.difference(whole) | orphans
    return Recoverable(newest, tuple(sorted(dead)) if len(own) >= world_size else ())


# Lists of lists take their time on a busy machine.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_REPORT, max_size=8))
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
                for learned in LEARNED:
                    expected = _recoverable(every, generation, world_size, learned)
                    found = catalogue.recoverable(generation, NODES, world_size, learned)
                    assert found == expected
        for away in map(set, ([], ["a"], ["a", "c"])):
            _parts_are_those_of_the_rest(catalogue, every, away)


def _parts_are_those_of_the_rest(
    catalogue: Catalogue, every: Sequence[Copy], away: set[str]
) -> None:
    reachable = {node: "" for node in NODES if node not in away}
    for key in {(copy.generation, copy.step) for copy in every}:
        rest = [c for c in every if (c.generation, c.step) == key and c.node not in away]
        memory = [c for c in rest if c.tier is Tier.MEMORY]
        for files, some in ((False, memory), (True, rest)):
            parts = catalogue.parts(key, catalogue.away(reachable), files=files)
            assert parts.ranks == {copy.rank for copy in some}
            assert parts.layouts == {copy.layout for copy in some}


# Lists of lists take their time on a busy machine.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_REPORT, max_size=8))
def test_two_copies_for_one_place_never_confuse_the_index(
    reports: list[tuple[str, list[Copy] | None]],
) -> None:
    """An agent that lists a place twice is wrong, but must not make the controller wrong."""
    catalogue = Catalogue()
    for node, copies in reports:
        catalogue.record_copies(node, {repr(copy).encode(): copy for copy in copies or ()}, 0)
        listed = {(c.generation, c.step, c.place) for c in copies or ()}
        held = [c for c in catalogue.copies() if c.node == node]
        assert {(c.generation, c.step, c.place) for c in held} == listed
    for node in NODES:
        catalogue.forget(node)
    assert list(catalogue.copies()) == []
