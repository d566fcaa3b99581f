"""Jobs of an ordinary user under a real Slurm: nodes lost, jobs preempted and signalled."""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.worker.step_listing import list_steps
from real.ordinary_user import User
from real.ordinary_user import missing as no_user
from real.slurm_cluster import missing
from real.slurm_site import TIMEOUT_S, running_site

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(bool(no_user()), reason=no_user()),
]

# Slurm wants an account; this one has a group of nobody, no home and no shell.
_USER = User(65534, 65534)
_NAME, _FIRST = "digits", "digits-1"
_FREEZER = Path("/sys/fs/cgroup/freezer")
_PREEMPTION = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=REQUEUE",
    "PartitionName=all Nodes=ALL Default=YES State=UP PriorityTier=1",
    "PartitionName=urgent Nodes=ALL State=UP PriorityTier=9 PreemptMode=OFF",
)


@contextmanager
def _groups() -> Iterator[list[str]]:
    """Yield the lines that have Slurm track processes by control groups; leave no group behind."""
    before = set(_FREEZER.glob("slurm*"))
    try:
        probe = _FREEZER / "everstep-slurm"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        pytest.skip(f"the sandbox denies: {error}")
    try:
        yield ["ProctrackType=proctrack/cgroup"]
    finally:
        for top in set(_FREEZER.glob("slurm*")) - before:
            inner = sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True)
            for folder in (*inner, top):
                folder.rmdir()


@pytest.mark.timeout(300)
def test_an_ordinary_users_job_goes_on_within_its_allocation_when_a_node_is_lost() -> None:
    with _groups() as lines, running_site(3, _USER, lines) as context:
        line = context.step("--job", _NAME, "--nnodes", "2")
        user = context.submit("user", [line[0], "-N3", *line[1:]])
        context.fleet.until("a spare", TIMEOUT_S, lambda: bool(context.job(_NAME).spares))
        context.until_step(_NAME, 20)
        lost, other = context.job(_NAME).members
        (spare,) = context.job(_NAME).spares
        safe = context.recoverable(_NAME)
        context.lose(lost)
        assert user.process.wait(TIMEOUT_S) == 0, user.log.read_text()
        context.fleet.until("the end", TIMEOUT_S, lambda: context.job(_NAME).state == "ended")
        assert {*context.job(_NAME).members} == {spare, other}
        assert sorted(context.fleet.losses()) == list(range(200))
        assert context.fleet.first_steps()[2] > safe
        made = [context.home / "token", *(context.fleet.folder / "losses").iterdir()]
        assert {path.stat().st_uid for path in made} == {_USER.uid}


@pytest.mark.timeout(300)
def test_a_preempted_job_stores_its_step_and_goes_on_when_it_is_requeued() -> None:
    with running_site(2, _USER, _PREEMPTION) as context:
        steps = context.home / "steps"
        options = ("--nnodes", "2", "--persist", str(steps), "--persist-every", "1000000")
        log = context.batch(
            _NAME, shlex.join(context.step(*options, steps=400)), "-p", "all", "-N2"
        )
        context.until_step(_FIRST, 20)
        safe, urgent = context.recoverable(_FIRST), context.fleet.folder / "urgent"
        urgent.touch()
        wait = f"while [ -e {urgent} ]; do sleep 0.1; done"
        more = ["srun", "-p", "urgent", "-N2", "--exclusive", "sh", "-c", wait]
        root = context.slurm.submit("urgent", more, {})
        context.fleet.until("its end", TIMEOUT_S, lambda: context.job(_FIRST).state == "ended")
        # Its time from the signal on is nobody's fault.
        incident = context.fleet.ledger(_FIRST).incidents[-1]
        assert incident.cause == "user", incident
        stored = _latest(steps)
        assert stored >= safe, log.read_text()
        urgent.unlink()
        assert root.process.wait(TIMEOUT_S) == 0, root.log.read_text()
        context.fleet.until("success", 2 * TIMEOUT_S, lambda: "succeeded" in log.read_text())
        assert "of the job that was cancelled" in log.read_text()
        starts = context.fleet.first_steps()
        assert starts[max(starts)] > safe
        assert sorted(context.fleet.losses()) == list(range(400))
        state = "squeue", "-h", "-j", "1", "-o", "%T"
        context.fleet.until(
            "the end", TIMEOUT_S, lambda: not context.slurm.run(*state).stdout.strip()
        )


@pytest.mark.timeout(300)
def test_a_signal_that_ends_no_allocation_ends_the_step_with_its_code() -> None:
    with running_site(1, _USER) as context:
        line = context.step("--job", _NAME, steps=9_999_999)
        user = context.submit("user", [line[0], "-N1", *line[1:]])
        context.fleet.until(
            "steps", TIMEOUT_S, lambda: max(context.fleet.losses(), default=0) >= 20
        )
        (number,) = context.slurm.jobs()
        context.slurm.run("scancel", "--signal=TERM", f"{number}.0")
        # srun tells its task's own code: that of SIGTERM.
        assert user.process.wait(TIMEOUT_S) == 128 + signal.SIGTERM, user.log.read_text()
        assert f"job {_NAME} was ended by its user on node1" in user.log.read_text()
        context.fleet.until("its end", TIMEOUT_S, lambda: context.job(_NAME).state == "ended")
        assert context.fleet.ledger(_NAME).incidents[-1].cause == "user"


def _latest(folder: Path) -> int:
    """Return the newest whole step that storage has of the job."""
    seen = list_steps(FolderBackend(str(folder), _FIRST), None)
    assert seen.latest is not None
    assert seen.latest.target is not None
    return seen.latest.target.step
