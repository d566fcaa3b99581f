"""Who comes last in a real job whose script is unchanged, as the command line tells it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

pytestmark = pytest.mark.timeout(900)
_PATIENCE_S = 300.0
_SCRIPT = Path(__file__).with_name("unchanged_job.py")
_SURE = 40


@contextmanager
def _training(how: str) -> Iterator[RealFleet]:
    with running_fleet("node-1", "node-2") as fleet:
        fleet.launch_script([str(_SCRIPT), how], processes=2, nodes="2")
        yield fleet


def _slow(fleet: RealFleet) -> dict[str, Any]:
    told = fleet.everstep("job", JOB, "slow", "--json")
    return json.loads(told.stdout) if told.returncode == 0 else {}


def _look(fleet: RealFleet) -> dict[str, Any]:
    return dict(_slow(fleet).get("collectives") or {})


def _is_enough(look: dict[str, Any]) -> bool:
    return int(look.get("collectives", 0)) >= _SURE


def _told_surely(fleet: RealFleet) -> dict[str, Any]:
    """Return what is told of a job once somebody is named in enough collectives; {} until then.

    The next answer may be of a part of the job in which the machine itself was busy.
    """
    told = _slow(fleet)
    look = dict(told.get("collectives") or {})
    return told if _is_enough(look) and _named(look) else {}


def _named(look: dict[str, Any]) -> list[int]:
    return [int(one.get("rank", 0)) for one in look.get("late", []) if one.get("nominated")]


def test_a_rank_that_works_longer_is_named_without_a_line_in_the_script() -> None:
    with _training("slow") as fleet:
        answers: list[dict[str, Any]] = []

        def is_told() -> bool:
            answers.append(_told_surely(fleet))
            return bool(answers[-1])

        fleet.until("the late rank", _PATIENCE_S, is_told)
        told = answers[-1]
        look = told["collectives"]
        assert _named(look) == [2]
        late = look["late"][0]
        assert (late["node"], late["group"]) == ("node-2", "default_pg")
        assert late["came_last"] > 0.7 * late["of"]
        assert late["wait_ms"] > 30
        assert told["sentence"].startswith("Rank 2 (node-2) comes last to ")
        # It nominates: nothing is known to be slow, and nothing is done.
        assert not told.get("slow")
        assert "SlowJudged" not in fleet.everstep("events", "--subject", JOB).stdout
        fleet.until(
            "the sentence",
            _PATIENCE_S,
            lambda: "comes last to" in fleet.everstep("job", JOB, "slow").stdout,
        )


@pytest.mark.long
@pytest.mark.parametrize("how", ["equal", "uneven"])
def test_nobody_is_named_where_nobody_is_slow(how: str) -> None:
    with _training(how) as fleet:
        fleet.until("enough collectives", _PATIENCE_S, lambda: _is_enough(_look(fleet)))
        look = _look(fleet)
        assert not _named(look)
        if how == "uneven":
            assert "the work is uneven" in look["sentence"]
