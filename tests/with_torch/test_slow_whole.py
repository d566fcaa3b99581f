"""Who makes the others of a real job wait, as the command line tells it, and that nobody does."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from everstep_cli.client.admin import AdminError
from everstep_proto.generated import admin_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(900)
_PATIENCE_S = 400.0
_SCRIPT = Path(__file__).with_name("slow_job.py")
_SURE = 20


@contextmanager
def _training(factor: float) -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        fleet.launch_script([str(_SCRIPT), str(factor)], processes=2, nodes="2")
        yield fleet


def _judged(fleet: RealFleet) -> admin_pb2.Slowness:
    """Return what the controller tells of it; nothing before the job is known."""
    asked = admin_pb2.GetSlownessRequest(job=JOB)
    try:
        return fleet.admin.call(lambda stub: stub.GetSlowness, asked)
    except AdminError:
        return admin_pb2.Slowness()


def _slow(fleet: RealFleet) -> dict[str, Any]:
    told = fleet.everstep("job", JOB, "slow", "--json")
    assert told.returncode == 0, told.stderr
    return cast("dict[str, Any]", json.loads(told.stdout))


def test_a_rank_that_works_longer_is_named_and_what_it_costs() -> None:
    with _training(1.3) as fleet:
        fleet.until("the slow rank", _PATIENCE_S, lambda: bool(_judged(fleet).slow))
        told = _slow(fleet)
        assert [(one["kind"], one["name"], one["node"]) for one in told["slow"]] == [
            ("rank", "2", "node-2")
        ]
        assert told["slow"][0]["factor"] > 1.15
        assert not told["slow"][0].get("evidence")
        assert (told["ranks"], told["telling"]) == (4, 4)
        # Nothing shows that the node is at fault: people are told what they can do.
        assert "everstep drain node-2" in told["plan"]
        shown = fleet.everstep("job", JOB).stdout
        assert "rank 2" in shown
        assert "SlowJudged" in fleet.everstep("events", "--subject", JOB).stdout
        assert fleet.detail("node-2").summary.claims == []


@pytest.mark.long
def test_of_ranks_that_work_equally_long_nobody_is_named() -> None:
    with _training(1.0) as fleet:
        fleet.until(
            "enough comparisons",
            _PATIENCE_S,
            lambda: _judged(fleet).comparisons >= _SURE,
        )
        told = _slow(fleet)
        assert not told.get("slow")
        assert told["sentence"].startswith("Nobody is slow")
        assert "SlowJudged" not in fleet.everstep("events", "--subject", JOB).stdout
