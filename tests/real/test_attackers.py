"""A job of one user beside an unprivileged attacker, who tries everything he can reach.

After each attack the job has lost no step and no generation, nothing of it was readable, and the
nodes are healthy. With TLS and without, at a socket and at a port.
"""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from everstep_agent.detectors.user_limits import NOT_AN_AGENT
from everstep_cli.demo.processes import Child
from integration.certified_places import certified_places, here
from integration.real_fleet import JOB
from real.attacker import ATTACKS
from real.attacks_on_files import ATTACKS_ON_FILES
from real.attacks_on_ports import ATTACKS_ON_PORTS
from real.attacks_on_sockets import ATTACKS_ON_SOCKETS
from real.attacks_target import Attack, Outcome, Target
from real.fault_world import FaultWorld, fault_world
from real.ordinary_user import BOB

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user"),
]

_NODES = ("n1", "n2")
_FOREVER = (Path(__file__).with_name("fault_job.py"), "--steps", 10**6, "--step-seconds", "0.05")
_OPTIONS = ("--nnodes", "2", "--nproc-per-node", "2", "--snapshot-every", "1")
_GROUPS = ("sockets", "ports", "files")
_ALL_SECONDS, _ONE_SECONDS = 10.0, 3.0
_STEPS_AFTER = 5


@pytest.fixture(scope="module", params=["TLS", "a socket", "a port"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FaultWorld]:
    """Two nodes, on which a job trains without an end."""
    places, tls = None, None
    if request.param == "TLS":
        places, tls = certified_places(_NODES, tmp_path_factory.mktemp("ca"), here)
    at_port = request.param == "a port"
    with fault_world(_NODES, _FOREVER, *_OPTIONS, places=places, tls=tls, at_port=at_port) as world:
        # Nobody may be saved by the mode of the folder that holds everything of a test.
        world.fleet.folder.chmod(0o755)
        world.launch()
        world.training()
        yield world


@pytest.mark.parametrize(
    "attacks", [ATTACKS_ON_SOCKETS, ATTACKS_ON_PORTS, ATTACKS_ON_FILES], ids=_GROUPS
)
def test_a_job_loses_nothing_to_another_user_of_its_node(
    world: FaultWorld, attacks: dict[str, Attack]
) -> None:
    _is_harmless(world, ",".join(attacks), _ALL_SECONDS)
    if attacks is ATTACKS_ON_SOCKETS:
        assert _users_refused(world) == {str(BOB.uid)}
    if attacks is ATTACKS_ON_PORTS:
        said = f"raised {NOT_AN_AGENT} on user/{BOB.uid}"
        assert world.fleet.agents[_NODES[0]].log.read_text().count(said) == 1


@pytest.mark.long
@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_a_job_loses_nothing_to_a_user_who_does_one_thing_only(
    world: FaultWorld, attack: str
) -> None:
    _is_harmless(world, attack, _ONE_SECONDS)


def _is_harmless(world: FaultWorld, attacks: str, seconds: float) -> None:
    before = world.fleet.step()
    with _attack(world, attacks, seconds) as attacker:
        world.until("the end of the attack", lambda: attacker.poll() is not None)
        said, errors = attacker.communicate()
    assert attacker.returncode == 0, errors
    outcome = Outcome(**json.loads(said))
    assert outcome.rounds > 0
    assert not outcome.succeeded, outcome.succeeded[:20]
    _lost_nothing(world, before)


def _lost_nothing(world: FaultWorld, before: int) -> None:
    """Return when the job has gone on in its generation, every step safe, on healthy nodes."""
    world.reached(max(before, world.fleet.step()) + _STEPS_AFTER)
    assert sorted(world.fleet.first_steps()) == [1]
    steps = sorted(world.fleet.losses())
    assert steps == list(range(len(steps)))
    world.until("healthy nodes", world.fleet.healthy)


@contextmanager
def _attack(world: FaultWorld, names: str, seconds: float) -> Iterator["subprocess.Popen[str]"]:
    target = json.dumps(asdict(_target(world)))
    with subprocess.Popen(
        [sys.executable, "-m", "real.attacker", names, str(seconds), target],
        env={"PYTHONPATH": ":".join(filter(None, sys.path)), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Within one session every process may continue every other one.
        start_new_session=True,
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def _target(world: FaultWorld) -> Target:
    fleet, node = world.fleet, _NODES[0]
    run = fleet.folder / node / "run"
    agent, launcher = fleet.agents[node], fleet.launchers[node]
    assert fleet.controller is not None
    data = [path for path in (fleet.folder / node).iterdir() if path.name != "kernel.log"]
    own = [fleet.folder / "token", fleet.secret, fleet.journal]
    private = [*own, *data, *run.iterdir()]
    return Target(
        uid=BOB.uid,
        run=str(run),
        private=tuple(str(path) for path in private if path.is_file()),
        controller=fleet.address,
        ports=_ports(agent),
        job=JOB,
        node=node,
        processes=(
            agent.process.pid,
            fleet.controller.process.pid,
            launcher.process.pid,
            *world.ranks(node),
        ),
    )


def _ports(agent: Child) -> dict[str, int]:
    """Return the ports of an agent by what listens there."""
    found = psutil.Process(agent.process.pid).net_connections()
    tcp = sorted(one.laddr.port for one in found if one.status == psutil.CONN_LISTEN)
    udp = [one.laddr.port for one in found if one.type.name == "SOCK_DGRAM"]
    metrics = _metrics_port(agent)
    (bulk,) = [port for port in tcp if port != metrics]
    return {"bulk": bulk, "metrics": metrics, "liveness": udp[0]}


def _users_refused(world: FaultWorld) -> set[str]:
    """Return the users whom the attacked agent has refused something, as Prometheus sees them."""
    port = _metrics_port(world.fleet.agents[_NODES[0]])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    (refusals,) = [family for family in families if family.name == "everstep_agent_user_refusals"]
    return {sample.labels["user"] for sample in refusals.samples}


def _metrics_port(agent: Child) -> int:
    lines = agent.log.read_text().splitlines()
    told = [line for line in lines if "metrics on " in line]
    return int(told[-1].rpartition(":")[2])
