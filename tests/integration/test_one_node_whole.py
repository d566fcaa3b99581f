"""A job on one node with a spare, all of it real: the node is lost, the spare goes on."""

import json
from functools import partial

import pytest

from everstep_cli.demo import reaper
from integration.counting import PATIENCE_S, launch, said
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def _recoverable(fleet: RealFleet) -> int:
    told = fleet.everstep("snapshots", JOB, "--json")
    step = json.loads(told.stdout)["recoverable_step"] if told.returncode == 0 else None
    return -1 if step is None else int(step)


def _lose(fleet: RealFleet, name: str) -> None:
    for process in fleet.owned.below(fleet.agents[name], fleet.launchers[name]):
        reaper.kill(process)
    for child in (fleet.agents.pop(name), fleet.launchers.pop(name)):
        child.process.wait(20)


def _goes_on(fleet: RealFleet, lost: str) -> bool:
    job = fleet.job()
    newest = max((generation for generation, _ in said(fleet)), default=0)
    return list(job.members) != [lost] and newest == job.generation and job.state == "running"


def test_the_spare_goes_on_from_the_replica_that_it_kept() -> None:
    with running_fleet("node-0", "node-1") as fleet:
        launch(fleet, nodes="1", size=1 << 16, step_seconds=0.1)
        fleet.until("steps", PATIENCE_S, lambda: _recoverable(fleet) > 5)
        before, (lost,) = _recoverable(fleet), fleet.job().members
        _lose(fleet, lost)
        fleet.until("the spare trains", PATIENCE_S, partial(_goes_on, fleet, lost))
        ranks = said(fleet)
        newest = max(number for number, _ in ranks)
        assert (ranks[newest, 0]["restored"] or -1) >= before
        assert all(rank["whole"] for rank in ranks.values())
        fleet.until("more steps", PATIENCE_S, lambda: _recoverable(fleet) > before + 5)
