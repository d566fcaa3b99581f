"""Odd numbers of nodes: whichever is lost, its job goes on from the recoverable step."""

import json
from functools import partial

import pytest

from everstep_cli.demo import reaper
from integration.counting import PATIENCE_S, launch, said
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def _recoverable(fleet: RealFleet) -> int:
    told = fleet.everstep("snapshots", JOB, "--json")
    step = json.loads(told.stdout)["recoverable_step"] if told.returncode == 0 else None
    return -1 if step is None else int(step)


def _lose(fleet: RealFleet, name: str) -> None:
    for process in fleet.owned.below(fleet.agents[name], fleet.launchers[name]):
        reaper.kill(process)
    for child in (fleet.agents.pop(name), fleet.launchers.pop(name)):
        child.process.wait(20)


def _goes_on(fleet: RealFleet, generation: int, count: int) -> bool:
    """Return whether all ranks of a newer generation have restored, and trained on."""
    newest = max((number for number, _ in said(fleet)), default=0)
    began = [rank for number, rank in said(fleet) if number == newest]
    return newest > generation and len(began) == count and fleet.job().state == "running"


@pytest.mark.parametrize(
    ("count", "index"), [(count, index) for count in (3, 5) for index in range(count)]
)
def test_whichever_node_is_lost_the_recoverable_step_is_restored_bit_for_bit(
    count: int, index: int
) -> None:
    names = tuple(f"node-{number}" for number in range(count + 1))
    with running_fleet(*names) as fleet:
        launch(fleet, nodes=str(count), size=1 << 16, step_seconds=0.1)
        fleet.until("steps", PATIENCE_S, lambda: _recoverable(fleet) > 5)
        generation, before = fleet.job().generation, _recoverable(fleet)
        _lose(fleet, fleet.job().members[index])
        fleet.until("a new generation", PATIENCE_S, partial(_goes_on, fleet, generation, count))
        ranks = said(fleet)
        newest = max(number for number, _ in ranks)
        restored = {ranks[newest, rank]["restored"] for rank in range(count)}
        assert len(restored) == 1, restored
        assert (restored.pop() or -1) >= before
        assert all(rank["whole"] for rank in ranks.values())
        fleet.until("more steps", PATIENCE_S, lambda: _recoverable(fleet) > before + 5)
