"""A real Slurm asks `everstep-agent check`: prolog and health check keep jobs from bad nodes."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_cli.demo.processes import OwnedProcesses
from real.ordinary_user import User
from real.ordinary_user import missing as no_user
from real.slurm_cluster import SlurmCluster, missing, running_cluster
from real.slurm_site import TIMEOUT_S, Site, running_site

pytestmark = [
    pytest.mark.long,
    pytest.mark.real,
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(bool(no_user()), reason=no_user()),
]

_USER = User(65534, 65534)
_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
# As in docs/operations.md, but for the node, of which there are several on this machine.
_CHECK = """\
export PYTHONPATH={path}
{python} -m everstep_agent.main check --config {folder}/$SLURMD_NODENAME.toml \
    --only kernel,gpu --fail-on critical --deadline 20 --nagios"""
_DRAIN = """\
line=$(
{check}
) || PATH=/usr/bin:/bin SLURM_CONF={folder}/slurm/slurm.conf \
    scontrol update nodename="$SLURMD_NODENAME" state=drain reason="$line"
"""
_PROLOG = (
    "Prolog={folder}/prolog",
    "PrologFlags=Alloc",
    "SchedulerParameters=batch_sched_delay=1,sched_interval=2,bf_interval=2,nohold_on_prolog_fail",
)
_DRIVER = """\
[drivers]
read_interval_s = 1.0
[drivers.slurm]
enabled = true
conf_file = "{folder}/slurm/slurm.conf"
"""
_HEALTH = ("HealthCheckProgram={folder}/health", "HealthCheckInterval=2")


def _check(folder: Path) -> str:
    path = os.pathsep.join(filter(None, sys.path))
    return _CHECK.format(path=shlex.quote(path), python=sys.executable, folder=folder)


def _install(path: Path, text: str) -> None:
    """Put a program in place at once: Slurm may run it at any time."""
    draft = path.with_suffix(".part")
    draft.write_text(f"#!/bin/sh\n{text}\n")
    draft.chmod(0o755)
    draft.rename(path)


def _break(context: Site, node: str) -> None:
    """Let a node's kernel say that it lost a GPU, and return when its agent knows."""
    with (context.fleet.folder / node / "kernel.log").open("a") as log:
        log.write(f"{_XID}\n")
    check = ("--only", "kernel,gpu", "--fail-on", "critical")
    context.fleet.until(
        "the finding", 60, lambda: context.fleet.check(node, *check).returncode == 2
    )


@pytest.mark.timeout(300)
def test_a_node_whose_prolog_fails_is_drained_and_the_job_runs_elsewhere() -> None:
    with running_site(3, _USER, _PROLOG) as context:
        _install(context.fleet.folder / "prolog", _check(context.fleet.folder))
        _break(context, "node1")
        line = shlex.join(context.step("--nnodes", "2", steps=60))
        log = context.batch("digits", line, "-N2")
        context.fleet.until(
            "drained", TIMEOUT_S, lambda: context.slurm.states()["node1"] == "drained"
        )
        success = "job digits-1 succeeded"
        context.fleet.until("the end", TIMEOUT_S, lambda: _text(log).count(success) == 2)
        assert sorted(context.job("digits-1").members) == ["node2", "node3"]
        assert "Prolog error" in _reason(context.slurm, "node1")
        assert sorted(context.fleet.losses()) == list(range(60))


@pytest.mark.timeout(300)
def test_a_prolog_and_the_slurm_driver_agree_on_a_node() -> None:
    with running_site(3, _USER, _PROLOG) as context:
        fleet, folder = context.fleet, context.fleet.folder
        _install(folder / "prolog", _check(folder))
        fleet.end_controller()
        fleet.core_lines = tuple(_DRIVER.format(folder=folder).splitlines())
        fleet.start_controller()
        fleet.until("healthy nodes", TIMEOUT_S, fleet.healthy)
        _break(context, "node1")
        fleet.until("drained", TIMEOUT_S, lambda: context.slurm.states()["node1"] == "drained")
        reason = _reason(context.slurm, "node1")
        assert reason.startswith("everstep: ")
        line = shlex.join(context.step("--nnodes", "2", steps=60))
        log = context.batch("digits", line, "-N2")
        success = "job digits-1 succeeded"
        fleet.until("the end", TIMEOUT_S, lambda: _text(log).count(success) == 2)
        # The prolog was never asked there, and drained no other node.
        assert _reason(context.slurm, "node1") == reason
        assert sorted(context.job("digits-1").members) == ["node2", "node3"]
        fleet.until(
            "idle nodes",
            TIMEOUT_S,
            lambda: set(context.slurm.states().values()) == {"drained", "idle"},
        )


@pytest.mark.timeout(300)
def test_a_health_check_drains_a_node_with_what_is_wrong_there() -> None:
    with running_site(2, _USER, _HEALTH) as context:
        folder = context.fleet.folder
        _install(folder / "health", _DRAIN.format(check=_check(folder), folder=folder))
        _break(context, "node2")
        context.fleet.until(
            "drained", TIMEOUT_S, lambda: context.slurm.states()["node2"] == "drained"
        )
        assert "XidFatal" in _reason(context.slurm, "node2")
        assert context.slurm.states()["node1"] == "idle"


@pytest.fixture(scope="module")
def sized() -> Iterator[SlurmCluster]:
    """A cluster whose node has 1000 MB, of which 400 are for the agent."""
    lines = ("SelectTypeParameters=CR_Core_Memory", "NodeName=DEFAULT MemSpecLimit=400")
    folder = Path(tempfile.mkdtemp(prefix="es"))
    folder.chmod(0o711)
    owned = OwnedProcesses(folder, keep=False)
    try:
        with running_cluster(owned, folder / "slurm", ["node1"], "#!/bin/sh\n", lines) as one:
            yield one
    finally:
        owned.close()


@pytest.mark.parametrize(
    ("asked", "granted"), [("600M", "600M"), ("0", "600M"), ("601M", None), ("900M", None)]
)
def test_no_job_gets_the_memory_that_is_for_snapshots(
    sized: SlurmCluster, asked: str, granted: str | None
) -> None:
    show = "scontrol show job $SLURM_JOB_ID"
    done = _srun(sized, f"--mem={asked}", "sh", "-c", show)
    if granted is None:
        assert done.returncode != 0
        assert "Requested node configuration is not available" in done.stderr
    else:
        assert f"mem={granted}," in done.stdout, done.stdout + done.stderr


def _srun(cluster: SlurmCluster, *line: str) -> "subprocess.CompletedProcess[str]":
    return cluster.run(*_USER.become, "srun", "-N1", *line)


def _reason(cluster: SlurmCluster, node: str) -> str:
    return cluster.run("sinfo", "-h", "-N", "-n", node, "-o", "%E").stdout


def _text(log: Path) -> str:
    return log.read_text(errors="replace") if log.exists() else ""
