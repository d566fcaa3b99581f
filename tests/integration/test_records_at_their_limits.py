"""Every message of launchers and ranks with each field at its limits, beside another user's job.

A real controller, a real agent and a real job, each in processes of their own; and a hostile
launcher with its rank that says everything in each phase of its sessions. What their agent takes,
the controller can use, and the rest is refused at the socket; the other job loses no step.
"""

import os
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from everstep_cli.client.admin import list_nodes
from everstep_common.launcher_messages import FROM_LAUNCHER, Join
from everstep_common.rank_messages import FROM_TRAINER, Attach
from everstep_common.version import TRAINER_PROTOCOL, VERSION
from everstep_proto.generated import admin_pb2
from fakes.limit_messages import LimitCase, whole_cases
from integration.counting import launch
from integration.hostile_session import Hostile, HostileJob
from integration.real_fleet import JOB, RealFleet, running_fleet

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")

_SEED = 41
_GIBIBYTES = r"Reserve\.size_bytes = [24]\d{9}$"
_OURS = {"protocol": TRAINER_PROTOCOL, "version": VERSION, "token": "secret"}
# What one hostile message may add to the journal: a row for the record that it becomes, the word of
# the launcher that left after it, and what the controller decides and says of both.
_ROWS_EACH = 6


def _sample(kinds: tuple[type, ...], share: float, **known: object) -> list[LimitCase]:
    """Return a share of the cases of some kinds, in an order of the seed, mixed."""
    cases = []
    for kind in kinds:
        fields = {name: value for name, value in known.items() if name in kind.__annotations__}
        each = whole_cases(kind, _SEED, **fields)
        cases += each[: max(3, int(len(each) * share))]
    random.Random(_SEED).shuffle(cases)
    return cases


def _say_first(path: Path, share: float) -> int:
    """Say everything as the first message of a connection."""
    cases = _sample((*FROM_LAUNCHER, *FROM_TRAINER), share, job="first", **_OURS)
    for case in cases:
        connection = Hostile(path)
        connection.send(case.frame)
        connection.hear_out()
    return len(cases)


def _say_as_launcher(job: HostileJob, share: float, *, running: bool) -> int:
    """Say everything as a launcher that has joined; ``running``: and was told to start."""
    kinds = tuple(kind for kind in FROM_LAUNCHER if kind is not Join)
    generation = {"generation": job.running() and job.generation} if running else {}
    cases = _sample(kinds, share, **generation)
    for case in cases:
        launcher = job.running() if running else job.launcher()
        launcher.send(case.frame)
        if not case.is_readable:
            job.leave()
    job.leave()
    return len(cases)


def _say_as_rank(job: HostileJob, share: float) -> int:
    """Say everything as a rank that is attached and has memory."""
    cases = _sample(tuple(kind for kind in FROM_TRAINER if kind is not Attach), share)
    if share < 1:  # some GiB of memory, which a busy machine takes minutes to give
        cases = [case for case in cases if not re.match(_GIBIBYTES, case.name)]
    for case in cases:
        rank = job.rank()
        if rank is not None:
            rank.send(case.frame)
            rank.hear_out()
    job.leave()
    return len(cases)


def _rows(journal: Path) -> int:
    """Return how many rows the journal has, but for those of progress."""
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as opened:
        (count,) = opened.execute("SELECT COUNT(*) FROM event WHERE kind != 'JobProgressed'")
    return int(count[0])


def _is_unharmed(fleet: RealFleet) -> None:
    """Fail unless the other job goes on in its first generation, with every step saved."""
    before = fleet.job().step
    fleet.until("more steps", 60, lambda: fleet.job().step > before + 10)
    assert fleet.job().generation == 1, fleet.logs()
    assert (
        fleet.admin.call(
            lambda stub: stub.GetSnapshots, admin_pb2.GetSnapshotsRequest(job=JOB)
        ).cadence.skipped
        == 0
    ), fleet.logs()
    assert fleet.launchers["node-1"].exit_code is None
    (node,) = list_nodes(fleet.admin).nodes
    assert node.state == "healthy"
    findings = [line.message for line in fleet.findings()]
    assert not [one for one in findings if "cannot be used" in one or "stream" in one], findings
    log = fleet.agents["node-1"].log.read_text()
    assert len(re.findall(r"connected to the controller", log)) == 1
    assert "Traceback" not in log


@needs_root
@pytest.mark.parametrize(
    "share",
    [
        pytest.param(0.04, marks=pytest.mark.timeout(120)),
        pytest.param(1.0, marks=[pytest.mark.long, pytest.mark.timeout(3000)]),
    ],
)
def test_the_job_beside_a_user_who_says_anything_loses_no_step(share: float) -> None:
    with running_fleet("node-1") as fleet:
        launch(fleet, size=1 << 20, steps=1_000_000, step_seconds=0.1)
        fleet.until("the first steps", 60, lambda: fleet.job().step > 5)
        fleet.folder.chmod(0o711)
        path, before = fleet.folder / "node-1" / "run" / "agent.sock", _rows(fleet.journal)
        waits, runs = HostileJob(path, "waits", nodes=2), HostileJob(path, "runs")
        said = _say_first(path, share)
        said += _say_as_launcher(waits, share, running=False)
        said += _say_as_launcher(runs, share, running=True)
        said += _say_as_rank(runs, share)
        _is_unharmed(fleet)
        rows = _rows(fleet.journal) - before
        assert rows < _ROWS_EACH * (said + waits.joins + runs.joins), rows
        print(said, "messages,", waits.joins + runs.joins, "joins,", rows, "rows")
