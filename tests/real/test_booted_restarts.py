"""Restarts of the shipped services under systemd: a job of two nodes goes on, nobody is lost."""

import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_agents, install_daemons
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
# Both nodes are in one container: the second one has the unit of the first, by another name.
_NODES = {"node-a": "everstep-agent", "node-b": "everstep-agent-b"}
_ALICE = 54330
_HOME = "srv/alice"
_EVERSTEP = (
    PYTHON,
    "-c",
    "import sys; from everstep.entry import main; sys.exit(main())",
)
# Each generation writes a file of its own.
_TRAIN = (
    f"exec {PYTHON} /opt/source/examples/train_numpy.py --steps 1000000 --step-seconds-min 0.05"
    f" --losses /{_HOME}/$EVERSTEP_GENERATION.tsv\n"
)
_STEPS_AFTER = 20
_PATIENCE_S = 120.0
_RESTARTS = {
    "systemctl restart": ("systemctl", "restart"),
    "SIGKILL": ("systemctl", "kill", "--kill-who=main", "--signal=KILL"),
}
# How often each service is restarted in each way.
_TIMES = [3, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(3000)])]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("restarts"), "everstep-restarts") as started:
        try:
            install_daemons(started, ("agent", "controller"))
            install_agents(started, _NODES)
            _start(started)
            _launch(started)
            yield started
        finally:
            print(started.run("journalctl", "--no-pager", "--lines=300", check=False))


def _start(box: Box) -> None:
    units = ("everstep-controller", *_NODES.values())
    box.run("systemctl", "start", "--no-block", *units)
    for unit in units:
        wait_until(partial(_active, box, unit), _PATIENCE_S)


def _launch(box: Box) -> None:
    """Start a job on both nodes, as services of a user."""
    (box.root / "opt/alice.conf").write_text(f'u alice {_ALICE} "A user" /{_HOME}\n')
    box.run("systemd-sysusers", "/opt/alice.conf")
    home = box.root / _HOME
    home.mkdir(parents=True)
    os.chown(home, _ALICE, _ALICE)
    (home / "train.sh").write_text(_TRAIN)
    for name, unit in _NODES.items():
        wait_until(partial(_listens, box, unit), _PATIENCE_S)
        user = ("--uid=alice", f"--property=WorkingDirectory=/{_HOME}")
        options = ["--job", "pair", "--nnodes", "2", "--nproc-per-node", "1"]
        options += ["--token-file", f"/{_HOME}/token", "--socket", f"/run/{unit}/agent.sock"]
        run = (*_EVERSTEP, "run", *options, "--", "sh", f"/{_HOME}/train.sh")
        box.run("systemd-run", f"--unit=job-{name}", *user, *run)
    wait_until(lambda: _step(box) > _STEPS_AFTER, _PATIENCE_S)


@pytest.mark.parametrize("times", _TIMES)
@pytest.mark.parametrize("way", list(_RESTARTS))
def test_a_job_of_two_nodes_goes_on_over_restarts_of_an_agent(
    box: Box, way: str, times: int
) -> None:
    for number in range(times):
        unit = list(_NODES.values())[number % 2]
        _goes_on(box, partial(box.run, *_RESTARTS[way], unit), unit)


@pytest.mark.parametrize("times", _TIMES)
@pytest.mark.parametrize("way", list(_RESTARTS))
def test_a_job_of_two_nodes_goes_on_over_restarts_of_the_controller(
    box: Box, way: str, times: int
) -> None:
    for _ in range(times):
        _goes_on(
            box, lambda: box.run(*_RESTARTS[way], "everstep-controller"), "everstep-controller"
        )


@pytest.mark.parametrize("away_s", [5.0, pytest.param(10.0, marks=pytest.mark.long)])
def test_a_job_of_two_nodes_goes_on_though_an_agent_is_away_for_a_while(
    box: Box, away_s: float
) -> None:
    def stop_and_start() -> None:
        box.run("systemctl", "stop", "everstep-agent-b")
        time.sleep(away_s)
        box.run("systemctl", "start", "everstep-agent-b")

    _goes_on(box, stop_and_start, "everstep-agent-b")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one after the other"])
def test_an_upgrade_of_all_agents_restarts_no_job_and_costs_it_no_step(
    box: Box, at_once: bool
) -> None:
    units = list(_NODES.values())
    before = _costs(box)
    for _ in range(10):
        for some in (units,) if at_once else ([unit] for unit in units):
            restart = partial(box.run, "systemctl", "restart", *some)
            _goes_on(box, restart, some[-1])
    job = json.loads(_everstep(box, "job", "pair", "--json"))
    after = _costs(box)
    print(
        f"20 restarts of an agent: {job['restarts']} of the job, {len(job['incidents'])} incidents"
    )
    assert (job["restarts"], job["incidents"]) == (0, [])
    assert not [name for name in after if name.startswith(("inc.", "lost."))]
    stalled_s = (after.get("ckpt.stall.memory", 0) - before.get("ckpt.stall.memory", 0)) / 1e9
    print(f"training stood still for a snapshot for {stalled_s:.2f} s meanwhile")


def _costs(box: Box) -> dict[str, int]:
    """Return where the time of the job went, in nanoseconds."""
    told = json.loads(_everstep(box, "ettr", "pair", "--json"))
    return {one["name"]: one["time_ns"] for one in told["categories"]}


def _goes_on(box: Box, restart: Callable[[], object], unit: str) -> None:
    """Restart a service; the ranks step on in their first generation, and no node is lost."""
    before = box.show(unit, "MainPID")
    restart()

    def restarted() -> bool:
        other = box.show(unit, "MainPID") not in (before, "0")
        return other and _active(box, unit)

    wait_until(restarted, _PATIENCE_S)
    reached = _step(box)
    wait_until(lambda: _step(box) > reached + _STEPS_AFTER, _PATIENCE_S)
    wait_until(lambda: _connected(box), _PATIENCE_S)
    assert [path.stem for path in _losses(box)] == ["1"]
    (job,) = json.loads(_everstep(box, "jobs", "--json"))["jobs"]
    assert (job["generation"], job["state"]) == (1, "running")
    said = _everstep(box, "events", "--json", "--limit", "5000")
    assert "NodeLost" not in said


def _active(box: Box, unit: str) -> bool:
    return box.show(unit, "ActiveState") == "active"


def _listens(box: Box, unit: str) -> bool:
    told = box.run("sh", "-c", f"test -S /run/{unit}/agent.sock && echo yes", check=False)
    return bool(told)


def _connected(box: Box) -> bool:
    try:
        nodes = json.loads(_everstep(box, "nodes", "--json"))["nodes"]
    except (AssertionError, ValueError):
        return False
    # This machine's own services may make a node suspect.
    fine = [node for node in nodes if node["connected"] and node["state"] in ("healthy", "suspect")]
    return len(fine) == len(_NODES)


def _everstep(box: Box, *words: str) -> str:
    return box.run(*_EVERSTEP, *words)


def _losses(box: Box) -> list[Path]:
    return sorted((box.root / _HOME).glob("*.tsv"))


def _step(box: Box) -> int:
    """Return the newest step that a rank has written down; -1: none."""
    lines = [line for path in _losses(box) for line in path.read_text().split("\n")[:-1]]
    return max((int(line.split("\t")[0]) for line in lines), default=-1)
