"""A rank that is stopped is judged, and its job trains on, under the units as they are shipped.

Two booted machines, unchanged scripts with and without a recorder of their collectives; and each
program that a daemon starts, in its sandbox.
"""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fakes.waits import crowding, wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, can_boot
from real.booted_fleet import PYTHON
from real.booted_pair import HOME, Pair, booted_pair
from real.sandbox import denies_containers

pytest.importorskip("torch")
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_EXAMPLE = "everstep-job.service"
_PATIENCE_S = 150.0
# As a rule after 5 s, and each test prints its figure: two processors that others use as well may
# take longer, but not as long as `core.stall_timeout_s`, 120, or as a job that is not looked at.
_JUDGED_S = 30.0
# Three minutes as a rule: what takes twice as long is not the machine.
_ALL_S = 360.0


@dataclass(frozen=True, slots=True)
class _Job:
    """A job: the machines with its ranks, and its script."""

    members: tuple[str, ...]
    script: str = "printing_ddp.py"


# One that spans both machines, one of each machine alone, and one that no recorder tells about.
_JOBS = {
    "llm": _Job(("node-a", "node-b")),
    "llm-a": _Job(("node-a",)),
    "llm-b": _Job(("node-b",)),
    "sums": _Job(("node-a", "node-b"), "printing_sums.py"),
}
_OURS = """\
[Service]
WorkingDirectory=/{home}
Environment=GLOO_SOCKET_IFNAME=eth0
# The machines have no folder in common, where the launchers of a job would find it.
Environment=EVERSTEP_JOB_TOKEN=token-of-{job}
ExecStart=
ExecStart={python} -c "import sys; from everstep.entry import main; sys.exit(main())" run \
    --job {job} --nnodes {nodes} --nproc-per-node {ranks} -- \
    {python} /opt/source/tests/real/{script} 100000
"""
# What no log of a daemon says that may do all that it does.
_REFUSED = re.compile(r"EPERM|[Oo]peration not permitted|PermissionError|Traceback|was refused")


@pytest.fixture(scope="module")
def begun_s() -> float:
    return time.monotonic()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, begun_s: float) -> Iterator[Pair]:
    with booted_pair(tmp_path_factory.mktemp("pair")) as made:
        for job, told in _JOBS.items():
            for name in told.members:
                _install_job(made.boxes[name], job)
        try:
            yield made
        finally:
            print(made.logs(*map(_unit, _JOBS))[-6_000:])


def _unit(job: str) -> str:
    return f"job-{job}.service"


def _install_job(box: Box, job: str) -> None:
    box.install(_unit(job), (REPOSITORY / "examples/systemd" / _EXAMPLE).read_text())
    folder = box.root / "etc/systemd/system" / f"{_unit(job)}.d"
    folder.mkdir()
    told, nodes = _JOBS[job], len(_JOBS[job].members)
    ours = _OURS.format(
        home=HOME, python=PYTHON, job=job, nodes=nodes, ranks=2 // nodes, script=told.script
    )
    (folder / "ours.conf").write_text(ours)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "--no-block", _unit(job))


@pytest.mark.parametrize("job", _JOBS)
def test_a_stopped_rank_of_an_unchanged_script_is_judged_and_its_job_trains_on(
    pair: Pair, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    last = pair.boxes[_JOBS[job].members[-1]]
    # So many that the launchers have learned how long nothing may happen: where no rank prints its
    # steps, as on the second node of a job, that takes 40 looks at its collectives.
    wait_until(lambda: _steps(pair, job) > 400, _PATIENCE_S, "no 400 steps")
    *_, rank = _ranks(last, job)
    before, stopped_ns = _steps(pair, job), time.time_ns()
    last.run("kill", "-STOP", rank)
    wait_until(lambda: _group(last, job, 2), _PATIENCE_S, "no second generation")
    # It begins at step 0 again: a script that saves nothing.
    wait_until(lambda: _steps(pair, job) > before + 20, _PATIENCE_S, "no new step")
    judged_s = _judged_s(pair, job, stopped_ns)
    with capsys.disabled():
        print(f"\n{job}: judged {judged_s:.1f} s after its rank was stopped")
    assert judged_s < _JUDGED_S * crowding()
    why = pair.everstep("why", job)
    assert "Its process is stopped" in why, why
    assert "the judge failed" not in why, why


def test_no_daemon_was_refused_anything_and_no_judge_failed(pair: Pair) -> None:
    # The judges are tried 15 s after a start, too.
    said = pair.logs("everstep-agent", "everstep-controller")
    assert [line for line in said.splitlines() if _REFUSED.search(line)] == []
    assert "JudgeFailed" not in pair.everstep("findings")


def test_all_of_it_took_minutes(
    pair: Pair, begun_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    took_s = time.monotonic() - begun_s
    with capsys.disabled():
        print(f"\nall of it took {took_s:.0f} s")
    assert took_s < _ALL_S * crowding(), f"{took_s:.0f} s with {len(pair.boxes)} machines"


def _judged_s(pair: Pair, job: str, stopped_ns: int) -> float:
    """Return the seconds until it was known that a rank is stopped. The machines share a clock."""
    lines = pair.everstep("events", "--json", "--limit", "1000", "--subject", job).splitlines()
    judged = [
        int(told["at_ns"])
        for told in map(json.loads, lines)
        if told["reason"] == "HangJudged" and "is stopped" in told["message"]
    ]
    return (min(at_ns for at_ns in judged if at_ns > stopped_ns) - stopped_ns) / 1e9


def _steps(pair: Pair, job: str) -> int:
    return len(re.findall(r"\bstep \d+ loss ", pair.logs(_unit(job))))


def _ranks(box: Box, job: str) -> list[str]:
    """Return the ranks of the first generation, which were started by their script's name."""
    is_script = f"tr '\\0' ' ' </proc/$1/cmdline | grep '{_JOBS[job].script} 100000'"
    first = _group(box, job, 1)
    return [pid for pid in first if box.run("sh", "-c", is_script, "sh", pid, check=False)]


def _group(box: Box, job: str, generation: int) -> list[str]:
    """Return the processes in the control group of a generation."""
    group = f"/sys/fs/cgroup/*/system.slice/{_unit(job)}/everstep-*-gen-{generation}/cgroup.procs"
    return box.run("sh", "-c", f"cat {group} 2>/dev/null", check=False).split()
