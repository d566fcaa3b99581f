"""Thorough cases: what `make test` leaves out, by the table tests/thorough.toml."""

from collections import Counter
from collections.abc import Iterable

import pytest

from test_times import read_table


def mark_thorough(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that are beyond what the table keeps of their function."""
    table, seen = read_table(), Counter[str]()
    for item in items:
        function = item.nodeid.partition("[")[0]
        seen[function] += 1
        if seen[function] > table.cases(function, seen[function]):
            item.add_marker(pytest.mark.thorough)
