"""The ledger of real scripts without the library, against what each has written down itself."""

import json
from pathlib import Path

import pytest

from everstep_proto.generated import admin_pb2
from everstep_sim.unchanged import ScriptHistory, TrueStep
from integration.real_fleet import RealFleet, running_fleet
from simulation.script_truth import by_what_a_script_knows, differences, lost_steps, true_totals

_SCRIPT = Path(__file__).with_name("self_saving_script.py")
_SEEDS = range(5)
# What is before its first process and after its last step, a script does not know.
_NOT_KNOWN = ("init.* before the processes", "gap")


def _launch(fleet: RealFleet, seed: int) -> None:
    options = ["--job", f"script-{seed}", "--nnodes", "1", "--nproc-per-node", "1"]
    options += ["--socket", str(fleet.folder / "node-1" / "run" / "agent.sock")]
    options += [str(_SCRIPT), str(seed), str(fleet.folder)]
    fleet.start_launcher(f"node-1-{seed}", *options)


def _history(diary: Path) -> tuple[ScriptHistory, int]:
    """Return what a script has written down, and by how much the machine was late in all."""
    history, late_ns = ScriptHistory(), dict[int, int]()
    for line in diary.read_text(encoding="ascii").splitlines():
        generation, what, *told = json.loads(line)
        if what == "started":
            made_ns, began_ns = told
            # A standby was made long before it became the rank of this generation.
            killed_ns = history.killed_ns.get(generation - 1, 0)
            history.started_ns[generation] = made_ns if made_ns >= killed_ns else began_ns
        elif what == "begun":
            history.first_begun_ns[generation] = told[0]
        elif what == "killed":
            history.killed_ns[generation] = told[0]
        elif what == "late":
            late_ns[generation] = told[0]
        else:
            history.steps.append(TrueStep(generation, *told))
    return history, sum(late_ns.values())


def _told(ledger: admin_pb2.Ledger) -> dict[str, int]:
    found = by_what_a_script_knows({one.name: one.time_ns for one in ledger.categories})
    return {name: amount for name, amount in found.items() if name not in _NOT_KNOWN}


def _true(history: ScriptHistory) -> dict[str, int]:
    begun_ns, ended_ns = min(history.started_ns.values()), history.steps[-1].ended_ns
    found = true_totals(history, begun_ns, ended_ns)
    return {name: amount for name, amount in found.items() if name not in _NOT_KNOWN}


@pytest.mark.timeout(300)
def test_each_category_is_what_five_scripts_have_written_down_of_themselves() -> None:
    with running_fleet("node-1") as fleet:
        for seed in _SEEDS:
            _launch(fleet, seed)
        launchers = fleet.launchers.values()
        fleet.until("all ends", 200, lambda: all(one.exit_code is not None for one in launchers))
        assert [one.exit_code for one in launchers] == [0] * len(_SEEDS), fleet.logs()
        for seed in _SEEDS:
            history, late_ns = _history(fleet.folder / f"diary-{seed}")
            ledger = fleet.ledger(f"script-{seed}")
            assert (len(history.killed_ns), ledger.failures) == (2, 2), fleet.logs()
            told, true = _told(ledger), _true(history)
            assert differences(told, true, late_ns) == {}, (seed, late_ns, told, true)
            lost = lost_steps(history.steps)
            assert ledger.steps == len(history.steps) - len(lost)
            counted_ns = sum(true.get(name, 0) for name in ("productive", "slow.unattributed"))
            error = abs(ledger.ettr_time - counted_ns / ledger.wall_ns)
            assert error < 0.01 + late_ns / ledger.wall_ns
