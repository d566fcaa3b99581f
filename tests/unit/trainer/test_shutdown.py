"""A machine that shuts down is told from a job that is stopped, and ends none of several nodes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep.launch.command_line.options import parse_options
from everstep.launch.link import LaunchLink
from everstep.launch.membership import LeaveRequest
from everstep.launch.processes.shutdown import is_shutting_down


def _shuts_down(run: Path, *answers: str, closes_after: int = 99) -> tuple[bool, int]:
    """Return what was found, and how often it was waited; logins are closed while it waits."""
    (run / "systemd/system").mkdir(parents=True, exist_ok=True)
    told: Iterator[str] = iter(answers)
    waited = 0

    def wait(_seconds: float) -> None:
        nonlocal waited
        waited += 1
        if waited == closes_after:
            (run / "nologin").write_text("System is going down. Unprivileged users are not …")

    return is_shutting_down(run, lambda: next(told, ""), wait), waited


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (["stopping"], (True, 0)),
        (["running"], (False, 0)),
        (["degraded"], (False, 0)),
        (["starting"], (False, 0)),
        (["", "stopping"], (True, 1)),
        (["", "unknown", "running"], (False, 2)),
    ],
)
def test_systemd_says_whether_the_machine_shuts_down(
    tmp_path: Path, answers: list[str], found: tuple[bool, int]
) -> None:
    assert _shuts_down(tmp_path, *answers) == found


def test_where_its_bus_is_down_already_closed_logins_say_it(tmp_path: Path) -> None:
    assert _shuts_down(tmp_path / "one", closes_after=3) == (True, 3)
    found, waited = _shuts_down(tmp_path / "other")
    assert not found
    assert waited < 60


def test_logins_that_are_closed_while_a_machine_starts_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "nologin").write_text("System is booting up. See pam_nologin(8)")
    assert _shuts_down(tmp_path, "starting") == (False, 0)


def test_where_there_is_no_systemd_nobody_is_asked(tmp_path: Path) -> None:
    assert not is_shutting_down(tmp_path, lambda: "stopping")


@pytest.mark.parametrize(
    ("nodes", "number", "shuts_down", "only_here"),
    [
        ("2", signal.SIGTERM, True, True),
        ("2", signal.SIGTERM, False, False),
        ("2", signal.SIGINT, True, False),
        # There is nobody who could go on: its last step is saved.
        ("1", signal.SIGTERM, True, False),
    ],
)
def test_a_shutdown_concerns_this_node_only(
    nodes: str, number: signal.Signals, shuts_down: bool, only_here: bool
) -> None:
    options = parse_options(["--job", "j", "--nnodes", nodes, "--", "true"], {})
    link = LaunchLink.__new__(LaunchLink)
    leaving = LeaveRequest(options, link, lambda _: None, lambda: 0.0, {}, lambda: shuts_down)
    assert not leaving.begin(number)
    assert leaving.only_here(number) is only_here
