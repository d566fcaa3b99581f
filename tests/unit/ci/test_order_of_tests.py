"""Order and marks of tests: the longest first, a group at once; no long case is a thorough one."""

import pytest

from fakes.longest_first import put_longest_first
from fakes.thorough import mark_thorough
from test_times import Table


def _nothing() -> None: ...


def _items(request: pytest.FixtureRequest, *names: str) -> list[pytest.Item]:
    """Return tests of this module that do nothing."""
    module = request.node.parent
    return [pytest.Function.from_parent(module, name=name, callobj=_nothing) for name in names]


def _id(request: pytest.FixtureRequest, name: str) -> str:
    return f"{request.node.parent.nodeid}::{name}"


def test_a_group_is_as_long_as_its_tests_together(request: pytest.FixtureRequest) -> None:
    items = _items(request, "test_short", "test_one[a]", "test_long", "test_one[b]")
    for item in (items[1], items[3]):
        item.add_marker(pytest.mark.xdist_group("one"))
    put_longest_first(items, {_id(request, "test_one"): 20, _id(request, "test_long"): 30})
    assert [item.name for item in items] == [
        "test_one[a]",
        "test_one[b]",
        "test_long",
        "test_short",
    ]


def test_a_long_case_takes_no_place_of_those_that_are_kept(
    request: pytest.FixtureRequest,
) -> None:
    items = _items(request, "test_many[1]", "test_many[2]", "test_many[3]")
    items[0].add_marker(pytest.mark.long)
    mark_thorough(items, Table((), {_id(request, "test_many"): 1}))
    marked = [item.name for item in items if item.get_closest_marker("thorough")]
    assert marked == ["test_many[3]"]
