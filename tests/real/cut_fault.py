"""A job one of whose nodes is cut off, and comes back; run by its test in a network namespace.

Arguments: "deaf", "mute" or "both", and the plan: "spare", "re-form" or "wait".
"""

import sys
import tempfile
from pathlib import Path

from integration.certified_places import certified_places
from real.cut_network import Network, network
from real.fault_books import check_books, safe_step
from real.fault_world import FaultWorld, alone, fault_world

_SCRIPT = Path(__file__).with_name("fault_job.py")
_STEPS = 60
_NODES = ("node-1", "node-2", "node-3", "node-4")
# Three nodes always see the fourth: the controller does not take the fault to be its own.
_OPTIONS = {
    "spare": ("--nnodes", "3"),
    "re-form": ("--nnodes", "2:4"),
    "wait": ("--nnodes", "4", "--policy", "wait"),
}


def play(way: str, plan: str, folder: Path) -> None:
    """Cut a node that trains, let the job go on as it can, and heal the network."""
    (folder / "alone").mkdir()
    wanted = alone(folder / "alone", [_SCRIPT, "--steps", str(_STEPS)])
    script = [_SCRIPT, "--steps", str(_STEPS), "--step-seconds", "0.05"]
    with network(*_NODES) as cuts:
        places, tls = certified_places(_NODES, folder, cuts.place)
        with fault_world(_NODES, script, *_OPTIONS[plan], places=places, tls=tls) as world:
            world.launch()
            world.training()
            safe = safe_step(world, stored=False)
            _cut(cuts, way, world.members()[-1])
            if plan == "wait":
                world.until("a job that waits", lambda: world.state() == "waiting_capacity")
            else:
                world.until("the next generation", lambda: _trains_again(world))
            cuts.heal()
            world.ends_well(wanted)
            check_books(world, ["node"], safe)
    print("recovered")


def _cut(cuts: Network, way: str, name: str) -> None:
    if way in ("deaf", "both"):
        cuts.deafen(name)
    if way in ("mute", "both"):
        cuts.mute(name)


def _trains_again(world: FaultWorld) -> bool:
    job = world.fleet.job()
    return job.generation > 1 and job.state == "running"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="escut") as made:
        play(sys.argv[1], sys.argv[2], Path(made))
