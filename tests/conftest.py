"""All tests: how their processes start; with EVERSTEP_TEST_JITTER=<seed>, hostile event loops."""

import os

import pytest
from hypothesis import settings

from fakes import hostile_timing
from fakes.inherited_signals import start_processes_as_from_a_terminal

# Hypothesis fails an example that takes 0.2 s by default: beside other work, any can.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

if wanted := os.environ.get("EVERSTEP_TEST_JITTER"):
    hostile_timing.install(wanted)


@pytest.fixture(scope="session", autouse=True)
def _no_inherited_signals() -> None:
    """Where tests run, not where xdist distributes them: a hangup is to end neither."""
    start_processes_as_from_a_terminal()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the short tests come last: no worker waits for a long one of another at the end."""
    items.sort(key=lambda item: "unit" in item.path.parts)
