"""Thorough cases: what `make test` leaves out, by the table tests/thorough.toml."""

import zlib
from collections import Counter
from collections.abc import Iterable

import pytest

from fakes.shared_fixtures import group_of
from test_times import Table


def mark_thorough(items: Iterable[pytest.Item], table: Table) -> None:
    """Mark the cases that are beyond what the table keeps of their function.

    Long ones are no cases of either command, wherever they stand among others.
    """
    seen = Counter[str]()
    for item in items:
        if item.get_closest_marker("long") is not None:
            continue
        function = item.nodeid.partition("[")[0]
        seen[function] += 1
        if seen[function] > table.cases(function, seen[function]):
            item.add_marker(pytest.mark.thorough)


def split_by_share(
    items: Iterable[pytest.Item], share: str
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run, and those left out: thorough ones that are of another share.

    ``share`` is "K/N" with K from 0 to N - 1. Tests that share a fixture are of one share. Raises
    UsageError for what is no share.
    """
    place, _, count = share.partition("/")
    if not (place.isdecimal() and count.isdecimal() and int(place) < int(count)):
        raise pytest.UsageError(f"EVERSTEP_THOROUGH_SHARE={share}: expected K/N, as in 0/3")
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        is_other = zlib.crc32(group_of(item).encode()) % int(count) != int(place)
        is_left = is_other and item.get_closest_marker("thorough") is not None
        (left if is_left else kept).append(item)
    return kept, left
