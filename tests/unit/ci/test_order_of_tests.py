"""Order and marks of tests: the longest first, a group at once; no long case is a thorough one."""

import pytest

from fakes.longest_first import put_longest_first
from fakes.thorough import mark_thorough, split_by_share
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


def test_each_thorough_case_is_of_one_share_and_all_others_of_every_one(
    request: pytest.FixtureRequest,
) -> None:
    names = [f"test_many[{number}]" for number in range(40)]
    items = _items(request, *names)
    for item in items[10:]:
        item.add_marker(pytest.mark.thorough)
    for item in items[20:25]:
        item.add_marker(pytest.mark.xdist_group("one"))
    shares = [split_by_share(items, f"{place}/3")[0] for place in range(3)]
    assert all(item in share for item in items[:10] for share in shares)
    assert all([item in share for share in shares].count(True) == 1 for item in items[10:])
    assert any(set(items[20:25]) <= set(share) for share in shares)


@pytest.mark.parametrize("share", ["3/3", "1", "-1/3", "a/b", "0/0"])
def test_what_is_no_share_is_told(share: str) -> None:
    with pytest.raises(pytest.UsageError, match="expected K/N"):
        split_by_share([], share)
