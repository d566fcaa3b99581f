"""The shipped controller drains at Slurm from within its unit's sandbox, on a booted machine."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot, enable, program
from real.sandbox import denies_containers
from real.slurm_cluster import missing

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]

_NODE = "gpu-0042"
# The user of the controller is SlurmUser: an AdminLevel needs a slurmdbd.
_CONF = f"""\
ClusterName=everstep
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=everstep-controller
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation=/var/lib/slurm-test
SlurmctldPidFile=/run/slurm-test/slurmctld.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
MpiDefault=none
SlurmdTimeout=65533
NodeName={_NODE} NodeHostname=localhost NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes={_NODE} Default=YES State=UP
"""
_MUNGED = """\
[Service]
ExecStart=/usr/sbin/munged --foreground --force
User=munge
RuntimeDirectory=munge
RuntimeDirectoryMode=0755
StateDirectory=munge
LogsDirectory=munge
LogsDirectoryMode=0700
StateDirectoryMode=0711
"""
_SLURMCTLD = """\
[Unit]
Requires=test-munged.service
After=test-munged.service
[Service]
ExecStart=/usr/sbin/slurmctld -D
User=everstep-controller
StateDirectory=slurm-test
RuntimeDirectory=slurm-test
"""
_DRIVER = "\n[drivers]\nread_interval_s = 1.0\n[drivers.slurm]\nenabled = true\n"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("box"), "everstep-slurm") as started:
        root = started.root
        programs = root / "opt/everstep/bin"
        programs.mkdir(parents=True)
        for name, module in (
            ("everstep-agent", "everstep_agent"),
            ("everstep-controller", "everstep_controller"),
            ("everstep", "everstep_cli"),
        ):
            (programs / name).write_text(program(module))
            (programs / name).chmod(0o755)
        for daemon in ("agent", "controller"):
            unit = REPOSITORY / "systemd" / f"everstep-{daemon}.service"
            shutil.copy(unit, root / "etc/systemd/system")
        started.run("systemd-sysusers", "/opt/source/systemd/sysusers.d/everstep.conf")
        started.run("systemd-tmpfiles", "--create", "/opt/source/systemd/tmpfiles.d/everstep.conf")
        for daemon in ("agent", "controller"):
            shutil.copy(REPOSITORY / "systemd" / f"{daemon}.toml", root / "etc/everstep")
        _append(root / "etc/everstep/agent.toml", "", before=f'node = "{_NODE}"\n')
        _append(root / "etc/everstep/controller.toml", _DRIVER)
        _install_slurm(started)
        started.run("systemctl", "start", "everstep-controller", "everstep-agent")
        yield started


def _append(file: Path, after: str, before: str = "") -> None:
    file.write_text(before + file.read_text() + after)


def _install_slurm(box: Box) -> None:
    folder = box.root / "etc/slurm"
    folder.mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(_CONF)
    key = box.root / "etc/munge/munge.key"
    key.parent.mkdir(exist_ok=True)
    key.write_bytes(os.urandom(1024))
    box.run("chown", "-R", "munge:munge", "/etc/munge")
    box.run("chmod", "0700", "/etc/munge")
    box.run("chmod", "0400", "/etc/munge/munge.key")
    box.install("test-munged.service", _MUNGED)
    box.install("test-slurmctld.service", _SLURMCTLD)
    enable(box, [])
    box.run("systemctl", "start", "test-munged.service", "test-slurmctld.service")
    wait_until(lambda: box.run("sinfo", "-h", check=False), 60.0, "no slurmctld")


@pytest.mark.timeout(600)
def test_the_sandbox_lets_slurms_programs_drain_and_release(box: Box) -> None:
    def reason() -> str:
        return box.run("sinfo", "-h", "-N", "-n", _NODE, "-t", "drain", "-o", "%E", check=False)

    def known() -> bool:
        return _NODE in box.run("/opt/everstep/bin/everstep", "nodes", check=False)

    try:
        wait_until(known, 120.0, "no node")
        box.run("/opt/everstep/bin/everstep", "isolate", _NODE, "--reason", "a fan")
        said = wait_until(lambda: reason(), 60.0, "no drain")
        assert said.startswith("everstep: operator operator: ")
        assert "a fan; everstep why NODE #" in said
        box.run("/opt/everstep/bin/everstep", "release", _NODE)
        wait_until(lambda: not reason(), 60.0, "drained")
    finally:
        print(box.run("journalctl", "--no-pager", "--lines=60", check=False))
