"""A whole node stands still while another one takes its place, and wakes up: nothing changes."""

import os
import signal
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from integration.counting import PATIENCE_S, check_stored, launch, said
from integration.latest_watch import LatestWatch
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(280)
_NODES = ("node-1", "node-2", "node-3")


def _signal(fleet: RealFleet, name: str, number: int) -> None:
    """Reach every process of a node: its agent, the launcher, the rank, what stores steps."""
    for process in fleet.owned.below(fleet.agents[name], fleet.launchers[name]):
        os.kill(process.pid, number)


def _gone(fleet: RealFleet, name: str) -> bool:
    """Return whether the node runs nothing of the first generation any more."""
    rank = fleet.rank(name)
    return rank is None or reaper.environment(rank.pid).get("EVERSTEP_GENERATION") != "1"


@pytest.mark.parametrize(
    "wakes", ["during the recovery", pytest.param("after it", marks=pytest.mark.long)]
)
def test_a_node_that_stood_still_changes_no_byte_of_the_next_generation(
    tmp_path: Path, wakes: str
) -> None:
    stored = tmp_path / "stored"
    with running_fleet(*_NODES) as fleet, LatestWatch(stored / JOB) as watch:
        fleet.launcher_options = ("--persist", str(stored), "--persist-every", "4")
        launch(fleet, nodes="2", size=1 << 22, step_seconds=0.05)
        fleet.until("stored steps", PATIENCE_S, lambda: watch.newest.target[1] >= 8)
        old = fleet.job().members[1]
        _signal(fleet, old, signal.SIGSTOP)
        try:
            fleet.until("a recovery", PATIENCE_S, lambda: fleet.job().generation > 1)
            if wakes == "after it":
                fleet.until("new steps", PATIENCE_S, lambda: watch.newest.target[0] > 1)
        finally:
            _signal(fleet, old, signal.SIGCONT)
        fleet.until("the end of the old one", PATIENCE_S, lambda: _gone(fleet, old))
        fleet.until("new steps", PATIENCE_S, lambda: watch.newest.target[0] > 1)
        reached = watch.newest.target[1]
        fleet.until("more steps", PATIENCE_S, lambda: watch.newest.target[1] >= reached + 20)
        ranks = said(fleet)
        assert all(rank["whole"] for rank in ranks.values()), ranks
        for generation in {number for number, _ in ranks if number > 1}:
            assert ranks[generation, 0]["restored"] == ranks[generation, 1]["restored"]
        began_after = {number: first - 1 for number, first in fleet.first_steps().items()}
    watch.check(began_after)
    assert check_stored(stored) >= 2
