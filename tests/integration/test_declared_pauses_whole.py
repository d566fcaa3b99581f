"""What a real script declares to be no step is where it belongs in its job's ledger."""

import json
from pathlib import Path

import pytest

from integration.real_fleet import JOB, running_fleet

_SCRIPT = Path(__file__).with_name("pausing_script.py")
_CATEGORIES = {
    "evaluation": "eval",
    "checkpoint": "ckpt.stall.persist",
    "operator": "user_pause",
}


@pytest.mark.timeout(240)
def test_evaluations_saves_and_pauses_are_in_the_ledger_to_a_tenth_of_a_second() -> None:
    with running_fleet("node-1") as fleet:
        diary = fleet.folder / "diary"
        options = ["--job", JOB, "--nnodes", "1", "--nproc-per-node", "1"]
        options += ["--socket", str(fleet.folder / "node-1" / "run" / "agent.sock")]
        fleet.start_launcher("node-1", *options, str(_SCRIPT), str(diary))
        launcher = fleet.launchers["node-1"]
        fleet.until("its end", 180, lambda: launcher.exit_code is not None)
        assert launcher.exit_code == 0, fleet.logs()
        ledger = fleet.ledger(JOB)
        told = {one.name: one.time_ns for one in ledger.categories}
        assert sum(told.values()) == ledger.wall_ns
        for name, spent_ns in json.loads(diary.read_text(encoding="ascii")).items():
            assert told[_CATEGORIES[name]] == pytest.approx(spent_ns, abs=1e8), told
