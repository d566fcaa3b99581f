"""`everstep run` as process 1 of a pod: another PID namespace than the agent's, and no root."""

import json
import os
import signal
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from everstep_cli.demo.reaper import Identity
from integration.real_fleet import JOB, Place, running_fleet
from real.fault_world import alone
from real.ordinary_user import ALICE, missing
from real.pod import first_process, pod_world
from real.sandbox import denies_pods
from real.user_world import SCRIPT, UserWorld, own_number

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(bool(denies_pods()), reason=denies_pods()),
]

_STEPS = 80
_TRAINING = (SCRIPT, "--steps", _STEPS)
_COUNTING = Path(__file__).parents[1] / "integration" / "counting_job.py"
_SIZE = 128 * 1024 * 1024
_ALONE = ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")


@pytest.mark.timeout(300)
def test_a_job_in_pods_loses_ranks_and_pods_and_no_step(tmp_path: Path) -> None:
    wanted = alone(tmp_path, _TRAINING)
    options = ("--nnodes", "2", "--nproc-per-node", "2", "--snapshot-every", "1")
    with pod_world(["n1", "n2"], _TRAINING, *options) as world:
        world.gate(5)
        world.launch()
        world.training()
        assert own_number(first_process(world.fleet.launchers["n1"])) == 1
        rank = world.ranks("n1")[0]
        assert own_number(rank) != rank
        assert "memfd:everstep-" in Path(f"/proc/{rank}/maps").read_text()
        os.kill(rank, signal.SIGKILL)
        _runs(world, 2)
        _lose_pod(world, "n2")
        world.launch("n2")
        _runs(world, 3)
        world.gate(_STEPS)
        world.ends_well(wanted)
        assert {path.stat().st_uid for path in world.folder.glob("rank-*")} == {ALICE.uid}


@pytest.mark.timeout(300)
def test_the_spare_takes_the_place_of_a_pod_that_is_evicted(tmp_path: Path) -> None:
    wanted = alone(tmp_path, _TRAINING)
    options = ("--nnodes", "2", "--nproc-per-node", "2", "--snapshot-every", "1")
    nodes = ["n1", "n2", "n3"]
    with pod_world(nodes, _TRAINING, *options, "--on-sigterm", "leave") as world:
        world.gate(5)
        world.launch()
        world.until("a spare", lambda: bool(world.fleet.job().spares))
        world.training()
        evicted, other = world.members()
        (spare,) = world.fleet.job().spares
        container = world.fleet.launchers[evicted]
        os.kill(first_process(container), signal.SIGTERM)
        world.until("its end", lambda: container.exit_code is not None)
        assert container.exit_code == 128 + signal.SIGTERM
        world.down.add(evicted)
        _runs(world, 2)
        world.gate(_STEPS)
        world.ends_well(wanted)
        assert {*world.members()} == {spare, other}


def test_slots_are_larger_than_a_containers_shared_memory(tmp_path: Path) -> None:
    options = ("--nnodes", "1", "--nproc-per-node", "1", "--snapshot-every", "1")
    with pod_world(["n1"], (), *options) as world:
        losses = world.folder / "losses"
        world.script = [str(_COUNTING), "--size", str(_SIZE), "--steps", "20", "--losses"]
        world.script = [*world.script, str(losses)]
        world.launch()
        launcher = world.fleet.launchers["n1"]
        world.until("the end", lambda: launcher.exit_code is not None)
        assert launcher.exit_code == 0, world.said("n1")
        said = json.loads((world.folder / "said-losses-0.json").read_text())
        assert said == {"restored": None, "unsaved": 0, "whole": True, "ended": True}


@pytest.mark.timeout(300)
def test_ranks_of_a_launcher_that_hangs_in_its_pod_are_killed_in_its_place(tmp_path: Path) -> None:
    # A script that does not attach: only its launcher says which process it is, by its own number.
    options = ("--nnodes", "2", "--nproc-per-node", "1", "--standby", "none")
    with pod_world(["n1", "n2"], (), *options) as world:
        world.script = ["-c", "import time; print('step 1'); time.sleep(600)"]
        world.launch()
        first = {name: _rank(world, name, None) for name in ("n1", "n2")}
        world.until("it runs", lambda: world.state() == "running")
        hung = first_process(world.fleet.launchers["n1"])
        os.kill(hung, signal.SIGSTOP)
        reaper.kill(first["n2"])
        world.until("its death", lambda: reaper.identify(first["n1"].pid) != first["n1"])
        assert f"killing its ranks: processes {first['n1'].pid}\n" in _agent_log(world, "n1")
        os.kill(hung, signal.SIGCONT)
        for name, before in first.items():
            _rank(world, name, before)
        # As the kubelet ends a pod.
        for name in first:
            os.kill(first_process(world.fleet.launchers[name]), signal.SIGTERM)
        codes = [world.fleet.launchers[name] for name in first]
        world.until("the end", lambda: all(child.exit_code is not None for child in codes))
        assert {child.exit_code for child in codes} <= {0, 1, 128 + signal.SIGTERM}
        assert 128 + signal.SIGTERM in {child.exit_code for child in codes}


def test_an_agent_that_cannot_see_who_asks_says_what_to_do() -> None:
    places = {"n1": Place(enter=_ALONE)}
    with running_fleet("n1", places=places) as fleet:
        fleet.places = {}
        socket = fleet.folder / "n1" / "run" / "agent.sock"
        token = ("--token-file", str(fleet.folder / "token"))
        fleet.start_launcher("n1", "--job", JOB, "--socket", str(socket), *token, "--", "true")
        launcher = fleet.launchers["n1"]
        fleet.until("its end", 60, lambda: launcher.exit_code is not None)
        assert launcher.exit_code == 1
        assert "in a pod with hostPID: true" in launcher.log.read_text()


def _runs(world: UserWorld, generation: int) -> None:
    """Let a generation that is there, or comes, make steps, and return when they are safe."""
    first, last = world.fleet.first_steps, max(world.fleet.losses()) + 10
    world.gate(last)
    world.until(f"generation {generation}", lambda: max(first(), default=0) >= generation)
    world.reached(last)


def _lose_pod(world: UserWorld, name: str) -> None:
    """Kill process 1 of a pod, and so all of it, as the kernel does when its memory is used up."""
    container = world.fleet.launchers[name]
    os.kill(first_process(container), signal.SIGKILL)
    world.until("its end", lambda: container.exit_code is not None)


def _rank(world: UserWorld, name: str, before: Identity | None) -> Identity:
    """Return the rank of a node when there is one that is not that of before."""
    found: list[Identity] = []

    def runs() -> bool:
        rank = world.fleet.rank(name)
        found[:] = [rank] if rank and rank != before and own_number(rank.pid) > 1 else []
        return bool(found)

    world.until(f"a rank on {name}", runs)
    return found[0]


def _agent_log(world: UserWorld, name: str) -> str:
    return world.fleet.agents[name].log.read_text(errors="replace")
