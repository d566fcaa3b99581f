"""Two of four nodes are lost at once: what all ranks have alike comes from whoever has it still."""

import json
from functools import partial
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
_SCRIPT = Path(__file__).with_name("replaceable_job.py")
_PATIENCE_S = 300.0
# 32 ranks for 16 shares: ranks r and r + 16 save the same part of what is equal.
_RANKS_OF_NODE = 8
_NAMES = ("node-1", "node-2", "node-3", "node-4")


def _recoverable(fleet: RealFleet) -> int:
    return fleet.sheet(JOB).recoverable_step if fleet.job().state == "running" else -1


def _said(fleet: RealFleet, generation: int) -> list[dict[str, int | bool | None]]:
    """Return what all ranks of a generation said, in their order; empty until all have."""
    count = _RANKS_OF_NODE * len(fleet.job().members)
    folder = fleet.folder / "losses"
    paths = [folder / f"said-{generation}-{rank}.json" for rank in range(count)]
    texts = [path.read_text() if path.exists() else "" for path in paths]
    return [json.loads(text) for text in texts] if all(texts) else []


def _lose(fleet: RealFleet, names: list[str]) -> None:
    children = [(fleet.agents.pop(name), fleet.launchers.pop(name)) for name in names]
    for process in [one for pair in children for one in fleet.owned.below(*pair)]:
        reaper.kill(process)
    for child in [one for pair in children for one in pair]:
        child.process.wait(20)


def _goes_on(fleet: RealFleet, generation: int, before: int) -> bool:
    job = fleet.job()
    newer = job.generation > generation and job.state == "running"
    return newer and bool(_said(fleet, job.generation)) and _recoverable(fleet) > before


def test_a_private_part_without_a_copy_is_replaced_and_what_is_equal_comes_from_any_holder() -> (
    None
):
    with running_fleet(*_NAMES, core_lines=("loss_hold_s = 3.0",)) as fleet:
        fleet.launch_script([str(_SCRIPT)], _RANKS_OF_NODE, "2:4")
        fleet.until("steps", _PATIENCE_S, lambda: _recoverable(fleet) > 3)
        job = fleet.job()
        before = _recoverable(fleet)
        _lose(fleet, list(job.members[:2]))
        goes_on = partial(_goes_on, fleet, job.generation, before + 3)
        fleet.until("a new generation that saves", _PATIENCE_S, goes_on)
        ranks = _said(fleet, fleet.job().generation)
        assert len(ranks) == 2 * _RANKS_OF_NODE
        (step,) = {rank["restored"] for rank in ranks}
        assert isinstance(step, int)
        assert step >= before
        assert all(rank["whole"] for rank in ranks)
        # Both copies of the first node's ranks are gone: these have others' private parts.
        owners = [rank["owner"] for rank in ranks]
        assert set(owners) <= set(range(4 * _RANKS_OF_NODE))
        assert sum(owner != rank for rank, owner in enumerate(owners)) >= _RANKS_OF_NODE
