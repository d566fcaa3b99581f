"""Thorough cases: what `make test` leaves out, by the table tests/thorough.toml."""

from collections import Counter
from collections.abc import Iterable

import pytest

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
