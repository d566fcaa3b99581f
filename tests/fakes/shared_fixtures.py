"""Groups of tests for xdist: a module whose tests share a fixture has one worker.

Without it each worker builds the package, boots the machine or starts the fleet for itself.
"""

from collections.abc import Iterable

import pytest


def group_by_shared_fixture(items: Iterable[pytest.Item]) -> None:
    """Mark the tests of each module that share a fixture of it, unless they have a group."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None and _shares_one(item):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def group_of(item: pytest.Item) -> str:
    """Return what is run by one worker: the name of a test's group, or its own."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker and marker.args else item.nodeid


def _shares_one(item: pytest.Item) -> bool:
    """Return whether a test takes a fixture of its module: pytest tells that nowhere in public."""
    if not isinstance(item, pytest.Function):
        return False
    found = item._fixtureinfo.name2fixturedefs.values()
    return any(one.scope == "module" for defined in found for one in defined)
