"""The controller is moved between two booted machines, by the letter of the page that says how."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_daemons
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot() or shutil.which("openssl") is None,
        reason=f"needs root, openssl and {', '.join(NEEDS)} (apt: systemd-container dbus)",
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_PAGE = REPOSITORY / "docs/moving-the-controller.md"
_BACKING_UP = REPOSITORY / "docs/operations.md"
_NAME = "control.cluster.example"
_ADDRESSES = ("10.77.0.1", "10.77.0.2")
_NODES = ("node-old", "node-new")
_EVERSTEP = (PYTHON, "-c", "import sys; from everstep.entry import main; sys.exit(main())")
_TLS = """
[tls]
ca = "/etc/everstep/tls/ca.pem"
certificate = "/etc/everstep/tls/{name}.pem"
key = "/etc/everstep/tls/{name}.key"
"""
_LOSSES = "srv/losses.tsv"
_TRAIN = (
    "/opt/source/examples/train_numpy.py --steps 1000000 --step-seconds-min 0.05"
    f" --losses /{_LOSSES}"
)
_PATIENCE_S = 90.0
_STEPS_AFTER = 40


def _commands(heading: str, page: Path = _PAGE) -> list[str]:
    """Return what a page has one type below a heading, block by block."""
    (section,) = re.findall(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S
    )
    return re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Sequence[Box]]:
    """Boot two machines that reach each other, with an agent on each and the controller on one."""
    _make_certificates(tmp_path / "tls")
    with contextlib.ExitStack() as stack:
        both = []
        for name, folder in zip(("moveold", "movenew"), ("a", "b"), strict=True):
            (tmp_path / folder).mkdir()
            both.append(stack.enter_context(booted(tmp_path / folder, f"everstep-{name}")))
        for box in both:
            stack.callback(_show_log, box)
        _connect(both)
        for place, box in enumerate(both):
            _install(box, place, tmp_path / "tls")
        both[0].run("systemctl", "enable", "--now", "everstep-controller")
        for box in both:
            box.run("systemctl", "start", "everstep-agent")
        yield both


def _show_log(box: Box) -> None:
    print(box.run("journalctl", "--no-pager", "--lines=150", check=False))


def _make_certificates(folder: Path) -> None:
    script = str(REPOSITORY / "systemd/certificates.sh")
    roles = ("controller", _NAME, "agent", _NODES[0], "agent", _NODES[1], "operator", "alice")
    subprocess.run(["sh", script, str(folder), *roles], check=True, capture_output=True)


def _connect(both: Sequence[Box]) -> None:
    """Join the networks of two machines."""
    ends = [f"mv{box.leader}" for box in both]
    subprocess.run(
        ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True
    )
    for box, end, address in zip(both, ends, _ADDRESSES, strict=True):
        subprocess.run(["ip", "link", "set", end, "netns", str(box.leader)], check=True)
        box.run("ip", "link", "set", end, "name", "eth9")
        box.run("ip", "address", "add", f"{address}/24", "dev", "eth9")
        box.run("ip", "link", "set", "eth9", "up")
        _point(box, _ADDRESSES[0])


def _point(box: Box, address: str) -> None:
    """Let the controller's name have an address."""
    (box.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{address} {_NAME}\n")


def _install(box: Box, place: int, tls: Path) -> None:
    """Install both daemons as shipped, with certificates, and start none of them."""
    install_daemons(box, ("agent", "controller"))
    node, address, etc = _NODES[place], _ADDRESSES[place], box.root / "etc/everstep"
    mine = ["ca.pem", f"{node}.pem", f"{node}.key", "alice.pem", "alice.key"]
    # The controller's own are where the controller is.
    for name in mine if place else [*mine, "controller.pem", "controller.key"]:
        shutil.copy(tls / name, etc / "tls" / name)
    box.run("sh", "-c", "chgrp everstep /etc/everstep/tls/*; chmod 640 /etc/everstep/tls/*")
    agent = (etc / "agent.toml").read_text()
    agent = re.sub(r"^controller = .*$", f'controller = "{_NAME}:7433"', agent, flags=re.M)
    top = f'node = "{node}"\nhost = "{address}"\nliveness_address = "{address}:7437"\n'
    (etc / "agent.toml").write_text(top + agent + _TLS.format(name=node))
    if place:
        (etc / "controller.toml").unlink()  # the page brings it
    else:
        shipped = (etc / "controller.toml").read_text()
        listens = re.sub(r"^listen = .*$", 'listen = "0.0.0.0:7433"', shipped, flags=re.M)
        (etc / "controller.toml").write_text(listens + _TLS.format(name="controller"))


def _everstep(box: Box, *words: str) -> str:
    told = {
        "EVERSTEP_CONTROLLER": f"{_NAME}:7433",
        "EVERSTEP_TLS_CA": "/etc/everstep/tls/ca.pem",
        "EVERSTEP_TLS_CERTIFICATE": "/etc/everstep/tls/alice.pem",
        "EVERSTEP_TLS_KEY": "/etc/everstep/tls/alice.key",
    }
    return box.run("env", *(f"{key}={value}" for key, value in told.items()), *_EVERSTEP, *words)


def _connected(box: Box, wanted: Sequence[str] = _NODES) -> bool | None:
    try:
        nodes = json.loads(_everstep(box, "nodes", "--json"))["nodes"]
    except (AssertionError, ValueError):
        return None
    there = {node["node"] for node in nodes if node["connected"]}
    return there == {*wanted}


def _step(box: Box) -> int:
    text = (box.root / _LOSSES).read_text() if (box.root / _LOSSES).exists() else ""
    return max((int(line.split("\t")[0]) for line in text.split("\n")[:-1]), default=-1)


def _train(box: Box) -> None:
    options = ["--job", "lone", "--nnodes", "1", "--nproc-per-node", "1"]
    options += ["--socket", "/run/everstep-agent/agent.sock"]
    run = (*_EVERSTEP, "run", *options, "--", PYTHON, *_TRAIN.split())
    box.run("systemd-run", "--unit=job", *run)
    wait_until(lambda: _step(box) > _STEPS_AFTER, _PATIENCE_S)


def _accounted_s(box: Box) -> float:
    told = json.loads(_everstep(box, "ettr", "lone", "--json"))
    return float(sum(one["time_ns"] for one in told["categories"])) / 1e9


def test_a_controller_that_is_moved_by_the_page_goes_on_with_its_job_and_its_time(
    boxes: Sequence[Box],
) -> None:
    old, new = boxes
    wait_until(partial(_connected, new), _PATIENCE_S)
    _train(new)
    wait_until(lambda: "running" in _everstep(new, "jobs"), _PATIENCE_S)
    before, began_s = json.loads(_everstep(new, "version", "--json")), time.monotonic()
    accounted_s = _accounted_s(new)

    # As where a controller ran before and its journal was moved away; the other test has no folder.
    new.run("mkdir", "/var/lib/everstep-controller")
    (pack,) = _commands("1. On the old machine")
    place, start = _commands("3. On the new machine")
    old.run("sh", "-e", "-c", pack)
    shutil.move(
        old.root / "root/everstep-controller.tar", new.root / "root/everstep-controller.tar"
    )
    new.run("sh", "-e", "-c", place)
    new.run("sh", "-e", "-c", start)
    for box in boxes:
        _point(box, _ADDRESSES[1])

    wait_until(partial(_connected, new), _PATIENCE_S)
    passed_s = time.monotonic() - began_s
    after = json.loads(_everstep(new, "version", "--json"))
    print(before, after)
    reached = _step(new)
    wait_until(lambda: _step(new) > reached + _STEPS_AFTER, _PATIENCE_S)
    (job,) = json.loads(_everstep(new, "jobs", "--json"))["jobs"]
    assert (job["generation"], job["state"]) == (1, "running")
    passed_s = time.monotonic() - began_s
    # Its time is what has passed; not the hours for which the new machine has been up.
    assert abs(_accounted_s(new) - accounted_s - passed_s) < 15
    assert "ControllerHalted" not in _everstep(new, "events", "--json", "--limit", "1000")
    assert not list((new.root / "root").glob("everstep-*"))


def _pack(old: Box, to: Path) -> None:
    """Pack the backup, with what is kept elsewhere, as the page packs a copy."""
    backup, etc = old.root / "var/backups/everstep/journal.sqlite", old.root / "etc/everstep"
    with tarfile.open(to, "w") as packed:
        packed.add(backup, "moved.sqlite")
        packed.add(f"{backup}.cluster", "moved.sqlite.cluster")
        for name in ("controller.toml", "tls/ca.pem", "tls/controller.pem", "tls/controller.key"):
            packed.add(etc / name, name)


def _run_until_said(box: Box, command: str, word: str, log: Path) -> None:
    """Run a command at a terminal's place, and type Ctrl-C when it has said a word."""
    entered = ["nsenter", "-t", str(box.leader), "-a", "--", "sh", "-e", "-c", command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            entered, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    try:
        wait_until(lambda: word in log.read_text(), _PATIENCE_S, f"without {word}")
    finally:
        print(log.read_text()[-4000:])
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=30)


def test_a_controller_whose_machine_is_gone_goes_on_from_its_backup_by_the_page(
    boxes: Sequence[Box], tmp_path: Path
) -> None:
    old, new = boxes
    wait_until(partial(_connected, new), _PATIENCE_S)
    _train(new)
    wait_until(lambda: "running" in _everstep(new, "jobs"), _PATIENCE_S)
    before = json.loads(_everstep(new, "version", "--json"))
    back_up, _ = _commands("Backing up and moving the controller", _BACKING_UP)
    old.run("sh", "-e", "-c", back_up)
    # The backup is older than what agents have seen: its controller would act on nothing.
    old.run("systemctl", "restart", "everstep-controller")
    wait_until(partial(_connected, new), _PATIENCE_S)
    known = json.loads(_everstep(new, "version", "--json"))
    old.run("ip", "link", "set", "eth9", "down")

    _pack(old, new.root / "root/everstep-controller.tar")
    place, start = _commands("3. On the new machine")
    (recover,) = _commands("The old machine is gone")
    new.run("sh", "-e", "-c", place)
    _point(new, _ADDRESSES[1])
    _run_until_said(new, recover, "RecoveryOver", tmp_path / "recover.log")
    wait_until(lambda: not _recovering(new), _PATIENCE_S, "without its end")
    new.run("sh", "-e", "-c", start)

    wait_until(partial(_connected, new, _NODES[1:]), _PATIENCE_S)
    after = json.loads(_everstep(new, "version", "--json"))
    print(before, known, after)
    assert after["controller"]["cluster_id"] == before["controller"]["cluster_id"]
    assert int(after["controller"]["term"]) > int(known["controller"]["term"])
    reached = _step(new)
    wait_until(lambda: _step(new) > reached + _STEPS_AFTER, _PATIENCE_S)
    (job,) = json.loads(_everstep(new, "jobs", "--json"))["jobs"]
    assert (job["generation"], job["state"]) == (1, "running")
    assert not list((new.root / "root").glob("everstep-*"))


def _recovering(box: Box) -> bool:
    return bool(box.run("pgrep", "--full", "everstep_controller.main recover", check=False))
