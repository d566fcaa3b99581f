"""A training job as a service of an ordinary user, beside the shipped agent, under systemd."""

import json
import os
from collections.abc import Iterator
from functools import partial

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_fleet
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_UNIT = "everstep-job.service"
_HOME = "srv/alice"
_USER = 54330
_ACCOUNT = f'u alice {_USER} "A user" /{_HOME}\nu bob - "Another user"\n'
# The unit as it is shipped, but for what it runs and where.
_OURS = f"""\
[Service]
WorkingDirectory=/{_HOME}
ExecStart=
ExecStart={PYTHON} -c "import sys; from everstep.entry import main; sys.exit(main())" run \
    --job llm --nnodes 1 --nproc-per-node 1 --snapshot-every 1 -- \
    {PYTHON} /opt/source/tests/integration/counting_job.py --losses /{_HOME}/losses
"""
_PRIVATE = (
    "/run/everstep-agent/jobs.sqlite",
    "/run/everstep-agent/agent.lock",
    "/var/lib/everstep-agent",
    "/var/lib/everstep-controller",
    "/etc/everstep/tls",
)


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("job"), "everstep-job") as started:
        install_fleet(started)
        (started.root / "opt/alice.conf").write_text(_ACCOUNT)
        started.run("systemd-sysusers", "/opt/alice.conf")
        home = started.root / _HOME
        home.mkdir(parents=True)
        os.chown(home, _USER, _USER)
        started.install(_UNIT, (REPOSITORY / "examples/systemd" / _UNIT).read_text())
        folder = started.root / "etc/systemd/system" / f"{_UNIT}.d"
        folder.mkdir()
        (folder / "ours.conf").write_text(_OURS)
        started.run("systemctl", "daemon-reload")
        for daemon in ("controller", "agent"):
            wait_until(partial(_active, started, f"everstep-{daemon}.service"), 120.0)
        try:
            yield started
        finally:
            print(started.run("journalctl", "--no-pager", "--lines=120", check=False))


def test_a_job_of_a_user_is_a_service_that_survives_its_ranks_and_its_launcher(box: Box) -> None:
    box.run("systemctl", "start", _UNIT)
    wait_until(lambda: _step(box) > 5, 120.0)
    # Each generation has a control group of its own, for systemd has delegated the service's.
    (rank,) = wait_until(lambda: _generation(box, 1), 120.0)
    assert box.run("stat", "-c", "%u", f"/proc/{rank}") == str(_USER)
    safe = _step(box)
    box.run("kill", "-KILL", rank)
    wait_until(lambda: _generation(box, 2), 120.0)
    wait_until(lambda: _restored(box) >= safe - 5, 120.0)

    launcher = box.show(_UNIT, "MainPID")
    box.run("kill", "-KILL", launcher)
    wait_until(lambda: box.show(_UNIT, "NRestarts") == "1", 120.0)
    safe = _step(box)
    wait_until(lambda: _step(box) > safe + 5, 120.0)

    box.run("systemctl", "stop", _UNIT)
    # Not "failed", which any other code than 0 and 143 would be.
    assert box.show(_UNIT, "ActiveState") == "inactive"
    said = box.run("journalctl", "--no-pager", "--output=cat", f"--unit={_UNIT}")
    assert "job llm was ended by its user on vm after step" in said
    assert not box.run("pgrep", "-u", "alice", check=False)
    stopped = _step(box)
    box.run("systemctl", "start", _UNIT)
    # What the agent kept in its memory: the job has no storage.
    wait_until(lambda: _restored(box) >= stopped - 5, 120.0)
    wait_until(lambda: _step(box) > stopped + 5, 120.0)
    box.run("systemctl", "stop", _UNIT)


def test_the_shipped_units_show_users_the_socket_and_nothing_else(box: Box) -> None:
    socket = "/run/everstep-agent/agent.sock"
    wait_until(lambda: box.run("stat", "-c", "%a", socket, check=False) == "666", 120.0)
    folder = box.run("stat", "-c", "%a %U", "/run/everstep-agent")
    assert folder == "755 everstep-agent"
    for path in _PRIVATE:
        box.run("stat", path)  # it is there
        for user in ("alice", "bob"):
            told = box.run(*_as(user), "sh", "-c", f"test -r {path} && echo yes", check=False)
            assert not told, f"{user} reads {path}"


def _as(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--")


def test_the_unit_of_a_job_is_one_that_systemd_understands(box: Box) -> None:
    assert not box.run("systemd-analyze", "verify", f"/etc/systemd/system/{_UNIT}")


def _active(box: Box, unit: str) -> bool:
    return box.show(unit, "ActiveState") == "active"


def _step(box: Box) -> int:
    losses = box.root / _HOME / "losses"
    lines = losses.read_text().split("\n")[:-1] if losses.exists() else []
    return int(lines[-1].split()[0]) if lines else -1


def _restored(box: Box) -> int:
    told = json.loads((box.root / _HOME / "said-losses-0.json").read_text())["restored"]
    return -1 if told is None else int(told)


def _generation(box: Box, number: int) -> list[str]:
    """Return the processes in the control group of a generation."""
    group = f"/sys/fs/cgroup/*/system.slice/{_UNIT}/everstep-*-gen-{number}/cgroup.procs"
    return box.run("sh", "-c", f"cat {group} 2>/dev/null", check=False).split()
