"""A node that stood still during a recovery wakes up: nothing old is restored, told or run."""

import os
import signal
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from everstep_cli.demo.reaper import Identity
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB
from real.fault_world import FaultWorld, alone, fault_world

pytestmark = [pytest.mark.real, pytest.mark.timeout(280)]
_SCRIPT = Path(__file__).with_name("fault_job.py")
_STEPS = 100
# Where the ranks wait until the node stands still: a slow machine must not see the job end before.
_GATE = 20
# How many generations a plan on one node leaves to its agent alone: they are never used again.
_OWN_RESTARTS = 3


@pytest.mark.parametrize(
    "first",
    [
        "all at once",
        *(
            pytest.param(part, marks=pytest.mark.long)
            for part in ("the rank", "the launcher", "the agent")
        ),
    ],
)
def test_what_wakes_up_changes_nothing_of_the_next_generation(first: str, tmp_path: Path) -> None:
    script = [_SCRIPT, "--steps", str(_STEPS), "--step-seconds", "0.05"]
    # One node trains, so that the old rank goes on alone when it wakes up.
    stored = ("--persist", str(tmp_path / "stored"), "--persist-every", "1")
    with fault_world(("node-1", "node-2"), script, "--nnodes", "1", *stored) as world:
        world.gate(_GATE)
        world.launch()
        world.training()
        (old,) = world.members()
        parts = _parts(world, old)
        _signal(parts["all at once"], signal.SIGSTOP)
        try:
            world.gate(_STEPS)
            # The next generation stands still too, so that every step that is told is an old one.
            world.hold("warm-up")
            # That an agent does not answer is no word about ranks that nobody else steps with.
            world.fleet.admin.call(
                lambda stub: stub.Isolate,
                admin_pb2.IsolateRequest(node=old, reason="it stands still"),
            )
            world.until("the next generation", lambda: world.held() and _warming(world))
            restored = _known(world)
            computed = _computed(world)
            _signal(parts[first], signal.SIGCONT)
            if first == "the rank":
                world.until("old steps", lambda: _computed(world) > computed + 3)
        finally:
            _signal(parts["all at once"], signal.SIGCONT)
        world.until("the end of the old rank", lambda: not _alive(parts["the rank"]))
        world.fleet.admin.call(
            lambda stub: stub.Release, admin_pb2.ReleaseRequest(node=old, reason="it goes on")
        )
        # The launcher waits as a spare, of the newest generation.
        world.until("a spare", lambda: list(world.fleet.job().spares) == [old])
        assert _known(world) == restored
        assert world.members() != [old]
        _one_recovery(world)
        assert not _restorable(world)
        world.hold("")
        (tmp_path / "alone").mkdir()
        world.ends_well(alone(tmp_path / "alone", [_SCRIPT, "--steps", str(_STEPS)]))
        _one_recovery(world)


def _parts(world: FaultWorld, name: str) -> dict[str, list[Identity]]:
    """Return the processes of a node."""
    fleet = world.fleet
    agent = fleet.owned.below(fleet.agents[name])
    below = fleet.owned.below(fleet.launchers[name])
    # A rank that was a standby has the environment of one; what it has written down tells it apart.
    told = world.ranks(name)
    ranks = [one for one in below if one.pid in told]
    launcher = [one for one in below if one not in ranks]
    assert ranks
    assert launcher
    return {
        "all at once": [*agent, *below],
        "the rank": ranks,
        "the launcher": launcher,
        "the agent": agent,
    }


def _signal(processes: list[Identity], number: int) -> None:
    for process in filter(None, [one for one in processes if _alive([one])]):
        os.kill(process.pid, number)


def _alive(processes: list[Identity]) -> bool:
    return any(reaper.identify(one.pid) == one for one in processes)


def _warming(world: FaultWorld) -> bool:
    return world.state() == "warming"


def _known(world: FaultWorld) -> tuple[int, int, float]:
    """Return step and generation as the controller knows them, and how many steps count."""
    job = world.fleet.job()
    return job.step, job.generation, world.fleet.ledger(JOB).steps


def _computed(world: FaultWorld) -> int:
    """Return how many steps the first generation has computed."""
    return (world.folder / "1.tsv").read_bytes().count(b"\n")


def _one_recovery(world: FaultWorld) -> None:
    """Check that ranks were started once more, with no number that the old node may have used."""
    assert world.fleet.sheet(JOB).restarts == 1
    assert world.fleet.job().generation > 1 + _OWN_RESTARTS


def _restorable(world: FaultWorld) -> list[int]:
    """Return the steps of the first generation, after the restored one, that may be restored."""
    table = world.fleet.admin.call(
        lambda stub: stub.GetSnapshots, admin_pb2.GetSnapshotsRequest(job=JOB)
    )
    assert table.restore_step == table.step
    after = [one for one in table.steps if one.generation == 1 and one.step > table.step]
    return [one.step for one in after if one.state != "abandoned"]
