"""All tests: how their processes start, and which of them run, in which order.

With EVERSTEP_TEST_JITTER=<seed> event loops are hostile, with EVERSTEP_THOROUGH_SHARE=K/N one of N
shares of the thorough cases runs.
"""

import os
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import settings

from fakes import hostile_timing
from fakes.inherited_signals import start_processes_as_from_a_terminal
from fakes.longest_first import put_longest_first
from fakes.shared_fixtures import group_by_shared_fixture
from fakes.thorough import mark_thorough, split_by_share
from simulation import injections
from test_times import read_table

# What a test shares with others that run the same says what it found as well.
pytest.register_assert_rewrite("kubernetes_suite", "real", "integration")
# Hypothesis fails an example that takes 0.2 s by default: beside other work, any can.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

if wanted := os.environ.get("EVERSTEP_TEST_JITTER"):
    hostile_timing.install(wanted)


@pytest.fixture(scope="session", autouse=True)
def _no_inherited_signals() -> None:
    """Where tests run, not where xdist distributes them: a hangup is to end neither."""
    start_processes_as_from_a_terminal()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is thorough, or a share of it; let the short tests come last.

    No worker waits for a long one then.
    """
    table = read_table()
    mark_thorough(items, table)
    group_by_shared_fixture(items)
    if share := os.environ.get("EVERSTEP_THOROUGH_SHARE"):
        items[:], left = split_by_share(items, share)
        config.hook.pytest_deselected(items=left)
    put_longest_first(items, table.seconds)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was left out, what simulated schedules have injected, and what can be wrong."""
    if find_spec("torch") is None:
        files = len(list(Path(__file__).parent.glob("with_torch/test_*.py")))
        terminalreporter.write_line(
            f"SKIPPED the {files} files of tests/with_torch: torch is not installed (make test)"
        )
    kinds = ("passed", "failed")
    told = {kind: [_injected(one) for one in terminalreporter.getreports(kind)] for kind in kinds}
    failed = sum(map(bool, told["failed"]))
    lines = list(injections.table(chain(*told["passed"], *told["failed"]), failed))
    if lines:
        terminalreporter.section("faults injected into simulated clusters")
        terminalreporter.write_line("\n".join(lines))


def _injected(report: pytest.TestReport) -> list[tuple[str, object]]:
    """Return the injections that the report of a test's call names."""
    if report.when != "call":
        return []
    return [one for one in report.user_properties if one[0] == injections.PROPERTY]
