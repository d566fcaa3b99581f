"""200 steps of torch with a kill in every ten of them: the losses of a run that nothing befell."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")

from real.fault_world import FaultWorld, fault_world
from with_torch.job import train_alone
from with_torch.world import run_world

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(600)]
_SCRIPT = Path(__file__).parents[1] / "with_torch" / "gated_job.py"
_STEPS, _WINDOW, _RANKS = 200, 10, 3
_NODES = ("node-1", "node-2", "node-3", "node-4")
# In these a kill comes in any phase of a step, of its snapshot and of its replication.
_WITHIN_S = 0.3


def _rank(world: FaultWorld, name: str) -> None:
    world.kill_process(name)


def _node(world: FaultWorld, name: str) -> None:
    world.kill_node(name)


def _agent(world: FaultWorld, name: str) -> None:
    world.kill_agent(name)


def _agent_back(world: FaultWorld, name: str) -> None:
    world.kill_agent(name)
    world.revive(name)


def _launcher(world: FaultWorld, name: str) -> None:
    world.kill_launcher(name)


def _controller(world: FaultWorld, name: str) -> None:
    del name
    world.kill_controller()


_KILLS: list[Callable[[FaultWorld, str], None]] = [
    _rank,
    _rank,
    _node,
    _agent,
    _agent_back,
    _launcher,
    _controller,
]


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("ddp", 1),
        ("fsdp", 2),
        *(
            pytest.param(kind, n, marks=pytest.mark.long)
            for n in range(3, 6)
            for kind in ("ddp", "fsdp")
        ),
    ],
)
def test_a_kill_in_every_ten_steps_changes_no_loss_of_any_step(
    kind: str, seed: int, tmp_path: Path
) -> None:
    run_world(_RANKS, tmp_path, train_alone, kind, _STEPS, tmp_path / "alone.tsv")
    words = (tmp_path / "alone.tsv").read_text(encoding="ascii").split()
    wanted = {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}
    script = [_SCRIPT, "--kind", kind, "--steps", str(_STEPS)]
    options = ("--nnodes", str(_RANKS), "--snapshot-every", "1")
    rng = random.Random(seed)
    with fault_world(_NODES, script, *options) as world:
        world.gate(_WINDOW - 1)
        world.launch()
        for last in range(_WINDOW - 1, _STEPS - 1, _WINDOW):
            world.reached(last)
            world.revive(*world.down)
            kill, name = rng.choice(_KILLS), rng.choice(world.members())
            print(f"after step {last}: {kill.__name__} of {name}", flush=True)
            world.gate(last + _WINDOW)
            time.sleep(rng.uniform(0.0, _WITHIN_S))
            kill(world, name)
        world.ends_well(wanted)
