"""Steps of torch with a kill in every ten of them: the losses of a run that nothing befell."""

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from real.fault_world import FaultWorld, fault_world
from with_torch.job import train_alone
from with_torch.world import run_world

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
_SCRIPT = Path(__file__).parents[1] / "with_torch" / "gated_job.py"
_WINDOW, _RANKS = 10, 3
_NODES = ("node-1", "node-2", "node-3", "node-4")
# About two steps: a kill comes in any phase of one, of its snapshot and of its replication.
_WITHIN_S = 0.05
# As long as a recovery takes on two quiet cores: a second kill comes in any of its stages.
_RECOVERY_S = 6.0
# A step that waited this long at the gate has copies, or it never will.
_COPIED_S = 1.0


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


_Kill = Callable[[FaultWorld, str], None]
_KILLS: tuple[_Kill, ...] = (_rank, _node, _agent, _agent_back, _launcher, _controller)
# Two nodes that lose their memory within one recovery lose what only they had.
_NO_MEMORY_LOST: tuple[_Kill, ...] = (_rank, _launcher, _controller)
# 30 steps are two kills, 70 are six, one of each kind, and 200 are nineteen.
_LONG = [
    pytest.param(kind, seed, 200, soon, marks=pytest.mark.long)
    for soon in (False, True)
    for seed in (3, 4, 5)
    for kind in ("ddp", "fsdp")
]


@pytest.mark.parametrize(
    ("kind", "seed", "steps", "soon"),
    [("ddp", 1, 70, False), ("fsdp", 2, 30, False), *_LONG],
)
def test_a_kill_in_every_ten_steps_changes_no_loss_of_any_step(
    kind: str, seed: int, steps: int, soon: bool, tmp_path: Path
) -> None:
    wanted = _without_faults(kind, steps, tmp_path)
    script = [_SCRIPT, "--kind", kind, "--steps", str(steps)]
    rng = random.Random(seed)
    with fault_world(_NODES, script, "--nnodes", str(_RANKS), "--snapshot-every", "1") as world:
        world.gate(_WINDOW - 1)
        world.launch()
        kills, ran = _kills(rng), dict[int, int]()
        for last in range(_WINDOW - 1, steps - 1, _WINDOW):
            _safe(world, last)
            world.revive(*world.down)
            ran[last] = world.fleet.job().generation
            _kill_after(world, last, next(kills), rng)
            if soon:
                time.sleep(rng.uniform(0.0, _RECOVERY_S))
                _strike(world, "and then", rng.choice(_NO_MEMORY_LOST), rng.choice(_NODES))
                world.revive(*world.down)
            world.gate(last + _WINDOW)
        world.computed(steps - 1)
        world.ends_well(wanted)
        _nothing_repeated(ran, world.folder)


def _safe(world: FaultWorld, last: int) -> None:
    """Return when this step is recoverable without any one node.

    A node that is lost after it, while the ranks wait for the gate, may leave one copy of a part:
    then the next generation begins from that step, and only its own next one is safe. Ranks that
    found no slot while the controller was away leave out steps by themselves, each its own: then a
    later one is the next that they have in common. So they get one more step a second. A rank whose
    agent is away goes on, and has no storage here that it could write to: so its agent comes back.
    """
    gate, opened = last, time.monotonic()

    def safe() -> bool:
        nonlocal gate, opened
        job, now = world.fleet.job(), time.monotonic()
        if job.step < gate:
            opened = now
        elif job.state == "warming" or (job.state == "running" and now - opened > _COPIED_S):
            if job.state == "running":
                world.revive(*world.down)
            gate, opened = gate + 1, now
            world.gate(gate)
        return world.recoverable() >= last

    world.until(f"step {last}", safe)


def _kills(rng: random.Random) -> Iterator[_Kill]:
    """Yield kinds of kills for ever, in a random order, each as often as the others."""
    while True:
        yield from rng.sample(_KILLS, len(_KILLS))


def _without_faults(kind: str, steps: int, folder: Path) -> dict[int, str]:
    """Return the losses of a run without Everstep around it."""
    to = folder / "alone.tsv"
    run_world(_RANKS, folder, train_alone, kind, steps, to)
    words = to.read_text(encoding="ascii").split()
    return {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}


def _kill_after(world: FaultWorld, last: int, kill: _Kill, rng: random.Random) -> None:
    """Kill in one of the ten steps after this one; the ranks make none after it yet."""
    name, amid = rng.choice(world.members()), last + rng.randint(1, _WINDOW - 1)
    world.gate(amid)
    world.computed(amid - 1)
    time.sleep(rng.uniform(0.0, _WITHIN_S))
    _strike(world, f"in step {amid}", kill, name)


def _strike(world: FaultWorld, when: str, kill: _Kill, name: str) -> None:
    print(f"{when}: {kill.__name__} of {name}", flush=True)
    kill(world, name)


def _nothing_repeated(ran: dict[int, int], folder: Path) -> None:
    """Check that no generation began before a step that was recoverable when an older one ran."""
    begun: dict[int, int] = {}
    for path in folder.glob("*-*.tsv"):
        generation, text = int(path.stem.split("-")[0]), path.read_text(encoding="ascii")
        if text:
            begun[generation] = min(int(text.split()[0]), begun.get(generation, 1 << 62))
    for last, generation in ran.items():
        early = {number for number, first in begun.items() if number > generation and first <= last}
        assert not early, (last, early, begun)
