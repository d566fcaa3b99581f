"""The shipped controller drains at Slurm from within its unit's sandbox, on a booted machine."""

import os
from collections.abc import Iterator

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, Box, booted, can_boot, enable
from real.booted_fleet import PYTHON, install_daemons
from real.sandbox import denies_containers
from real.slurm_accounting import missing

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
_CONF = f"""\
ClusterName=everstep
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
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
_DBD_CONF = """\
DbdHost=localhost
SlurmUser=slurm
AuthType=auth/munge
PidFile=/run/slurmdbd-test/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StorageUser=root
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
_DATABASE = """\
[Service]
Type=notify
User=slurm
StateDirectory=database
ExecStartPre=/usr/bin/mariadb-install-db --no-defaults --datadir=/var/lib/database \
    --auth-root-authentication-method=normal
ExecStart=/usr/sbin/mariadbd --no-defaults --datadir=/var/lib/database \
    --innodb-log-file-size=8M --innodb-buffer-pool-size=32M \
    --bind-address=127.0.0.1 --socket=/var/lib/database/socket
"""
_SLURMDBD = """\
[Service]
ExecStart=/usr/sbin/slurmdbd -D
User=slurm
RuntimeDirectory=slurmdbd-test
"""
_SLURMCTLD = """\
[Service]
ExecStart=/usr/sbin/slurmctld -D
User=slurm
StateDirectory=slurm-test
RuntimeDirectory=slurm-test
"""
_DAEMONS = {
    "test-munged": _MUNGED,
    "test-database": _DATABASE,
    "test-slurmdbd": _SLURMDBD,
    "test-slurmctld": _SLURMCTLD,
}
_UNITS = [f"--unit={name}" for name in (*_DAEMONS, "everstep-controller", "everstep-agent")]
# By the letter of docs/slurm.md, but for the question whether it is meant.
_RIGHTS = "sacctmgr --immediate add user everstep-controller account=root adminlevel=Administrator"
_LOG = "var/log/test-kernel.log"
_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
_DRIVER = "[drivers]\nread_interval_s = 1.0\n[drivers.slurm]\nenabled = true\n"
_EVERSTEP = "import sys; from everstep.entry import main; sys.exit(main())"
_CONTROLLER = "unix:/run/everstep-controller/controller.sock"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("box"), "everstep-slurm") as started:
        root = started.root
        log = root / _LOG
        log.write_text("")
        try:
            install_daemons(started, ("agent", "controller"))
            _install_slurm(started)
            etc = root / "etc/everstep"
            agent = (etc / "agent.toml").read_text()
            (etc / "agent.toml").write_text(f'node = "{_NODE}"\nkernel_log = "/{_LOG}"\n{agent}')
            controller = (etc / "controller.toml").read_text()
            enforced = controller.replace("[core]\n", '[core]\nenforce = ["XidFatal"]\n')
            (etc / "controller.toml").write_text(f"{enforced}\n{_DRIVER}")
            started.run("systemctl", "start", "everstep-controller", "everstep-agent")
            yield started
        finally:
            print(started.run("journalctl", "--no-pager", "--lines=80", *_UNITS, check=False))


def _install_slurm(box: Box) -> None:
    # Slurm resolves no name, and no address either, where nothing but the loopback is configured.
    box.run("ip", "link", "add", "test0", "type", "bridge")
    box.run("ip", "address", "add", "10.66.9.1/24", "dev", "test0")
    box.run("ip", "link", "set", "test0", "up")
    folder = box.root / "etc/slurm"
    folder.mkdir(exist_ok=True)
    (folder / "slurm.conf").write_text(_CONF)
    (folder / "slurmdbd.conf").write_text(_DBD_CONF)
    (folder / "slurmdbd.conf").chmod(0o600)
    key = box.root / "etc/munge/munge.key"
    key.parent.mkdir(exist_ok=True)
    key.write_bytes(os.urandom(1024))
    box.run("chown", "slurm", "/etc/slurm/slurmdbd.conf")
    box.run("chown", "-R", "munge:munge", "/etc/munge")
    box.run("chmod", "0700", "/etc/munge")
    box.run("chmod", "0400", "/etc/munge/munge.key")
    for name, text in _DAEMONS.items():
        box.install(f"{name}.service", text)
    enable(box, [])
    box.run("systemctl", "start", "test-munged", "test-database", "test-slurmdbd")
    known = ("sacctmgr", "--noheader", "show", "user", "root")
    wait_until(lambda: box.run(*known, check=False), 60.0, "no slurmdbd")
    box.run("sacctmgr", "--immediate", "add", "cluster", "everstep")
    box.run(*_RIGHTS.split())
    box.run("systemctl", "start", "test-slurmctld")
    wait_until(lambda: box.run("sinfo", "-h", check=False), 60.0, "no slurmctld")


def _everstep(box: Box, *words: str) -> str:
    environment = (f"EVERSTEP_CONTROLLER={_CONTROLLER}", "COLUMNS=200")
    return box.run("env", *environment, PYTHON, "-c", _EVERSTEP, *words, check=False)


@pytest.mark.timeout(600)
def test_an_xid_is_a_drain_by_the_shipped_unit_whose_user_is_an_administrator(box: Box) -> None:
    def reason() -> str:
        return box.run("sinfo", "-h", "-N", "-n", _NODE, "-t", "drain", "-o", "%E|%u", check=False)

    wait_until(lambda: "NodeHealthy" in _everstep(box, "events"), 120.0, "no healthy node")
    _everstep(box, "isolate", _NODE, "--reason", "a fan")
    said = wait_until(reason, 60.0, "no drain")
    assert said.startswith("everstep: operator operator: "), said
    _everstep(box, "release", _NODE, "--reason", "a new fan")
    wait_until(lambda: not reason(), 60.0, "drained")
    with (box.root / _LOG).open("a") as log:
        log.write(f"{_XID}\n")
    said = wait_until(reason, 120.0, "no drain")
    assert said.startswith("everstep: XidFatal automation: "), said
    assert said.endswith("|everstep-controller"), said
    assert box.show("everstep-controller", "User") == "everstep-controller"
    assert "IsolationDriverFailed" not in _everstep(box, "findings")
