"""A name that was used before: the next job of that name is another job."""

import signal
import sys

import pytest

from integration.real_fleet import JOB, RealFleet, running_fleet

_SLEEPS = "import time; time.sleep(600)"


@pytest.mark.timeout(180)
def test_a_job_that_ended_well_is_run_again_under_its_name() -> None:
    with running_fleet("node-1", "node-2") as fleet:
        for generation in (1, 2):
            fleet.launch(steps=5, step_s=0.05)
            fleet.until("the end", 60, lambda: _over(fleet))
            assert sorted(fleet.losses()) == list(range(5))
            assert (fleet.folder / "losses" / f"{generation}.tsv").exists()


def _over(fleet: RealFleet) -> bool:
    return all(child.process.poll() == 0 for child in fleet.launchers.values())


def _launch(fleet: RealFleet, *names: str) -> None:
    """Start a job of two nodes that makes no steps, and wait until its ranks run."""
    for name in names:
        fleet.start_launcher(
            name,
            *("--job", JOB, "--nnodes", "2"),
            *("--token-file", str(fleet.folder / "token")),
            *("--socket", str(fleet.folder / name / "run" / "agent.sock")),
            *("--", sys.executable, "-c", _SLEEPS),
        )
    fleet.until("ranks", 60, lambda: all(fleet.rank(name) for name in names))


@pytest.mark.timeout(240)
def test_a_launcher_that_hung_past_its_jobs_end_is_told_so_when_the_next_job_runs() -> None:
    with running_fleet("node-1", "node-2", "node-3") as fleet:
        _launch(fleet, "node-1", "node-2")
        late = fleet.launchers.pop("node-2")
        late.process.send_signal(signal.SIGSTOP)
        fleet.launchers["node-1"].process.send_signal(signal.SIGTERM)
        fleet.until("the end of the first job", 60, lambda: fleet.job().state == "ended")
        fleet.until("node-1 is left", 60, lambda: fleet.launchers["node-1"].exit_code is not None)
        _launch(fleet, "node-1", "node-3")
        late.process.send_signal(signal.SIGCONT)
        fleet.until("the late launcher's end", 60, lambda: late.process.poll() is not None)
        assert late.process.poll() == 1
        said = late.log.read_text(encoding="utf-8")
        assert "it ended while this launcher was away (ended by its user on node-1)" in said
        job = fleet.sheet(JOB)
        assert (list(job.summary.members), job.restarts) == (["node-1", "node-3"], 0)
        assert fleet.replay().returncode == 0
