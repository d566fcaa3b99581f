"""An old journal and jobs that it does not know as they are: begun, or ended, since the backup."""

import signal
import sys

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet
from integration.test_controller_recover import acts, copy_journal, put_back

NODES = ("node-1", "node-2")
_SLEEPS = "import time; time.sleep(600)"


def _launch(fleet: RealFleet) -> None:
    """Start a job whose script knows nothing of Everstep, and wait until its ranks run."""
    for name in NODES:
        fleet.start_launcher(
            name,
            *("--job", JOB, "--nnodes", "2"),
            *("--token-file", str(fleet.folder / "token")),
            *("--socket", str(fleet.folder / name / "run" / "agent.sock")),
            *("--", sys.executable, "-c", _SLEEPS),
        )
    fleet.until("ranks", 60, lambda: all(fleet.rank(name) for name in NODES))
    fleet.until("a job that runs", 60, lambda: fleet.job().generation > 0)


def _restore(fleet: RealFleet, backup: str) -> None:
    """Put a backup back and rebuild it from the agents, as the pages say."""
    fleet.end_controller(signal.SIGTERM)
    put_back(fleet.folder / backup, fleet.journal)
    fleet.start_controller("recover")
    fleet.until("the end of the recovery", 60, lambda: acts(fleet))
    fleet.end_controller(signal.SIGINT)
    fleet.start_controller()
    fleet.until("a controller", 60, lambda: acts(fleet))


@pytest.mark.timeout(420)
def test_a_script_that_it_does_not_know_begins_again_and_one_that_has_ended_since_has_ended() -> (
    None
):
    with running_fleet(*NODES) as fleet:
        copy_journal(fleet.journal, fleet.folder / "first.sqlite")
        _launch(fleet)
        begun = fleet.job().generation
        _restore(fleet, "first.sqlite")
        fleet.until("a newer generation", 90, lambda: fleet.job().generation > begun)
        fleet.until("its ranks", 60, lambda: all(fleet.rank(name) for name in NODES))
        assert "starts without a snapshot" in " ".join(fleet.everstep("events").stdout.split())

        copy_journal(fleet.journal, fleet.folder / "second.sqlite")
        for name in NODES:
            fleet.launchers[name].process.send_signal(signal.SIGTERM)
        fleet.until("its end", 60, lambda: fleet.job().state == "ended")
        ended = fleet.job().reason
        _restore(fleet, "second.sqlite")
        fleet.until("its end again", 60, lambda: fleet.job().state == "ended")
        assert fleet.job().reason.startswith(f"{ended} (it has ended already, as the agent of node")
