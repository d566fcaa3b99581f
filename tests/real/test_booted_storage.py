"""A user's job brings its steps to storage through the shipped unit and its drop-in, confined."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.worker.step_listing import list_steps
from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_fleet
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_USER = 54330
_PLACE = "shared/alice"
_RUN = "import sys; from everstep.entry import main; sys.exit(main())"


@pytest.fixture
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    drop_in = (REPOSITORY / "systemd/everstep-agent.service.d/storage.conf").read_text()
    ours = drop_in.replace("#ReadWritePaths=/shared /scratch", "ReadWritePaths=/shared")
    assert ours != drop_in
    with booted(tmp_path_factory.mktemp("storage"), "everstep-storage") as started:
        _make_home(started)
        install_fleet(started, [ours])
        yield started


@pytest.fixture
def box_without_drop_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("bare"), "everstep-bare") as started:
        _make_home(started)
        install_fleet(started, [])
        yield started


def _make_home(box: Box) -> None:
    home = box.root / _PLACE
    home.mkdir(parents=True)
    os.chown(home, _USER, _USER)


def _train(box: Box, steps: int) -> str:
    """Run a job of an ordinary user to its end; return what its terminal showed."""
    everstep = (PYTHON, "-c", _RUN, "run", "--job", "demo")
    storage = ("--persist", f"/{_PLACE}/steps", "--persist-every", "5", "--snapshot-every", "1")
    script = "/opt/source/tests/integration/counting_job.py"
    job = (PYTHON, script, "--losses", f"/{_PLACE}/losses")
    user = ("setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups")
    home = ("env", f"HOME=/{_PLACE}")
    both = ("sh", "-c", 'exec "$@" 2>&1', "sh")
    return box.run(*both, *user, *home, *everstep, *storage, "--", *job, "--steps", str(steps))


def test_a_users_job_is_stored_by_the_confined_agent_and_goes_on_from_there(box: Box) -> None:
    home = box.root / _PLACE
    try:
        wait_until(lambda: _active(box, "controller") and _active(box, "agent"), 60.0)
        _train(box, 40)
        latest = _latest(home)
        _train(box, 60)
    finally:
        print(box.run("journalctl", "--no-pager", "--lines=80", check=False))
    # Nothing but storage has survived the end of the first job.
    assert json.loads((home / "said-losses-0.json").read_text())["restored"] == latest
    assert {path.stat().st_uid for path in (home / "steps").rglob("*")} == {_USER}


def test_without_the_drop_in_a_job_trains_and_says_that_nothing_is_stored(
    box_without_drop_in: Box,
) -> None:
    box = box_without_drop_in
    try:
        wait_until(lambda: _active(box, "controller") and _active(box, "agent"), 60.0)
        said = _train(box, 20)
    finally:
        print(box.run("journalctl", "--no-pager", "--lines=80", check=False))
    assert f"may not open files as user {_USER}" in said
    assert "The job trains without it" in said
    assert list((box.root / _PLACE / "steps").iterdir()) == []


def _active(box: Box, daemon: str) -> bool:
    return box.show(f"everstep-{daemon}.service", "ActiveState") == "active"


def _latest(home: Path) -> int:
    seen = list_steps(FolderBackend(str(home / "steps"), "demo"), None)
    assert seen.latest is not None
    assert seen.latest.target is not None
    return seen.latest.target.step
