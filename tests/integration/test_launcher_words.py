"""What `everstep run` says of itself: that it has joined, that it waits, who ended its job."""

import sys
from pathlib import Path

from everstep_common.endings import by_user_on
from everstep_common.launcher_messages import End, Notice
from everstep_common.rank_messages import Refused
from everstep_common.reports import RankExited
from integration.test_trainer_launcher import WAIT, launch
from integration.trainer_job import joined_job


def test_whom_the_controller_refuses_has_not_joined(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        job.agent.after_join = Refused("job x belongs to another user; choose another --job name")
        socket = str(tmp_path / "agent.sock")
        token = {"EVERSTEP_JOB_TOKEN": job.agent.vault.token}
        other = launch("run", "--job", "x", "--socket", socket, "--", "true", **token)
    assert (other.returncode, other.stderr) == (
        1,
        "everstep: refused: job x belongs to another user; choose another --job name\n",
    )


def test_that_it_has_joined_is_said_before_what_it_waits_for(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        job.agent.tell_launcher(Notice("1 of 2 nodes have joined"))
        _, _, errors = job.end()
    assert errors.splitlines()[:2] == [
        "everstep: job test: joined on node-1",
        "everstep: 1 of 2 nodes have joined",
    ]


def test_of_a_job_that_its_user_ended_elsewhere_no_failure_is_called_the_first(
    tmp_path: Path,
) -> None:
    script = "raise ConnectionError('Connection closed by peer')"
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=1)
        job.agent.expect(RankExited)
        job.stop(1)
        job.agent.tell_launcher(End(False, by_user_on("node-2")))
        _, errors = job.launcher.communicate(timeout=30)
    assert job.launcher.returncode == 1
    assert "ConnectionError: Connection closed by peer" in errors  # as the rank wrote it
    assert errors.splitlines()[-2:] == [
        "everstep: rank 0 of generation 1 exited with code 1; the job did not end by that",
        "everstep: job test was ended by its user on node-2",
    ]
