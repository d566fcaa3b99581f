"""Order of tests: the longest first, and the short ones fill the end of a run.

A worker that gets a long test last lets all others wait for it.
"""

from collections import Counter
from collections.abc import Mapping

import pytest

from fakes.shared_fixtures import group_of


def put_longest_first(items: list[pytest.Item], seconds: Mapping[str, int]) -> None:
    """Sort tests by the seconds of their group, which one worker runs; tests of a unit are last.

    ``seconds``: of a case of each function that takes long.
    """
    took_s = Counter[str]()
    for item in items:
        took_s[group_of(item)] += seconds.get(item.nodeid.partition("[")[0], 0)
    items.sort(key=lambda item: ("unit" in item.path.parts, -took_s[group_of(item)]))
