"""Scripts without the library that write down what each of their steps was, and what a ledger told.

What is before the first process of a script and after its last step, it does not know.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from everstep_proto.generated import admin_pb2
from everstep_sim.unchanged import ScriptHistory, TrueStep
from integration.real_fleet import RealFleet
from simulation.script_truth import by_what_a_script_knows, differences, lost_steps, true_totals

_SCRIPT = Path(__file__).with_name("self_saving_script.py")
_NOT_KNOWN = ("init.* before the processes", "gap")


@dataclass(frozen=True, slots=True)
class Compared:
    """A script's ledger, and what the script has written down; nanoseconds by category."""

    ledger: admin_pb2.Ledger
    history: ScriptHistory
    # By how much the machine was late in all, where it had other things to do.
    late_ns: int

    @property
    def told(self) -> Mapping[str, int]:
        """Return what the ledger has of what the script knows."""
        totals = {one.name: one.time_ns for one in self.ledger.categories}
        return _known(by_what_a_script_knows(totals))

    @property
    def true(self) -> Mapping[str, int]:
        """Return what the script has written down."""
        begun_ns = min(self.history.started_ns.values())
        return _known(true_totals(self.history, begun_ns, self.history.steps[-1].ended_ns))

    @property
    def wrong(self) -> Mapping[str, tuple[float, float]]:
        """Return the categories that are off by more than 2 % and 100 ms, in seconds."""
        return differences(self.told, self.true, self.late_ns)

    @property
    def steps(self) -> int:
        """Return how many steps count by what the script has written down."""
        return len(self.history.steps) - len(lost_steps(self.history.steps))


def launch_script(fleet: RealFleet, seed: int) -> None:
    """Start a script on the fleet's first node."""
    options = ["--job", f"script-{seed}", "--nnodes", "1", "--nproc-per-node", "1"]
    options += ["--socket", str(fleet.folder / "node-1" / "run" / "agent.sock")]
    options += [str(_SCRIPT), str(seed), str(fleet.folder)]
    fleet.start_launcher(f"node-1-{seed}", *options)


def run_scripts(fleet: RealFleet, count: int, within_s: float = 200) -> list[Compared]:
    """Run scripts beside one another to their end, and return what was told of each."""
    for seed in range(count):
        launch_script(fleet, seed)
    launchers = fleet.launchers.values()
    have_ended: Callable[[], bool] = lambda: all(one.exit_code is not None for one in launchers)  # noqa: E731
    fleet.until("all ends", within_s, have_ended)
    assert [one.exit_code for one in launchers] == [0] * count, fleet.logs()
    return [_compared(fleet, seed) for seed in range(count)]


def _compared(fleet: RealFleet, seed: int) -> Compared:
    history, late_ns = _history(fleet.folder / f"diary-{seed}")
    return Compared(fleet.ledger(f"script-{seed}"), history, late_ns)


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


def _known(found: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in found.items() if name not in _NOT_KNOWN}
