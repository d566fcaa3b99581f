"""A controller stands by for another one on two booted machines, under the shipped units."""

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from fakes.postgres_server import binaries
from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_daemons
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(420),
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot() or shutil.which("openssl") is None or binaries() is None,
        reason=f"needs root, openssl, PostgreSQL and {', '.join(NEEDS)}",
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_CONTROLLERS = ("ctl-1.cluster.example", "ctl-2.cluster.example")
_ADDRESSES = ("10.78.0.1", "10.78.0.2")
_NODES = ("node-1", "node-2")
_EVERSTEP = (PYTHON, "-c", "import sys; from everstep.entry import main; sys.exit(main())")
_TLS = """
[tls]
ca = "/etc/everstep/tls/ca.pem"
certificate = "/etc/everstep/tls/{name}.pem"
key = "/etc/everstep/tls/{name}.key"
"""
_LOSSES = "srv/losses.tsv"
_PATIENCE_S = 120.0
_STEPS_AFTER = 40


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Sequence[Box]]:
    """Boot two machines with an agent and a controller each; the second has the database."""
    _make_certificates(tmp_path / "tls")
    with contextlib.ExitStack() as stack:
        both = []
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            both.append(stack.enter_context(booted(tmp_path / name, f"everstep-standby{name}")))
        for box in both:
            stack.callback(_show_log, box)
        _connect(both)
        _start_database(both[1])
        for place, box in enumerate(both):
            _install(box, place, tmp_path / "tls")
        for box in both:
            box.run("systemctl", "start", "everstep-controller")
        for box in both:
            box.run("systemctl", "start", "everstep-agent")
        yield both


def _show_log(box: Box) -> None:
    print(box.run("journalctl", "--no-pager", "--lines=200", check=False))


def _make_certificates(folder: Path) -> None:
    script = str(REPOSITORY / "systemd/certificates.sh")
    for name in _CONTROLLERS:
        subprocess.run(["sh", script, str(folder), "controller", name], check=True)
        for kind in ("pem", "key"):
            (folder / f"controller.{kind}").rename(folder / f"{name}.{kind}")
    roles = ("agent", _NODES[0], "agent", _NODES[1], "operator", "alice")
    subprocess.run(["sh", script, str(folder), *roles], check=True)


def _connect(both: Sequence[Box]) -> None:
    """Join the networks of two machines, which know each other's names."""
    ends = [f"sb{box.leader}" for box in both]
    subprocess.run(
        ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]], check=True
    )
    known = "".join(f"{one} {name}\n" for one, name in zip(_ADDRESSES, _CONTROLLERS, strict=True))
    for box, end, address in zip(both, ends, _ADDRESSES, strict=True):
        subprocess.run(["ip", "link", "set", end, "netns", str(box.leader)], check=True)
        box.run("ip", "link", "set", end, "name", "eth9")
        box.run("ip", "address", "add", f"{address}/24", "dev", "eth9")
        box.run("ip", "link", "set", "eth9", "up")
        (box.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{known}")


def _start_database(box: Box) -> None:
    """Run a server that takes whoever comes from the two machines."""
    found = binaries()
    assert found is not None
    box.run("install", "-d", "-o", "postgres", "/srv/postgres")
    as_user = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--")
    box.run(
        *as_user, str(found / "initdb"), "--pgdata=/srv/postgres", "--auth=trust",
        "--username=everstep", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync",
    )  # fmt: skip
    (box.root / "srv/postgres/pg_hba.conf").write_text(
        "local all all trust\nhost all all 10.78.0.0/24 trust\n"
    )
    box.run(
        "systemd-run", "--unit=database", "--property=User=postgres", str(found / "postgres"),
        "-D", "/srv/postgres", "--listen_addresses=*", "--unix_socket_directories=/tmp",
        "--fsync=off",
    )  # fmt: skip
    psql = (str(found / "psql"), "--host=/tmp", "--username=everstep", "postgres", "--command")
    wait_until(lambda: _worked(box, *psql, "create database everstep"), _PATIENCE_S)


def _worked(box: Box, *command: str) -> bool:
    with contextlib.suppress(AssertionError):
        box.run(*command)
        return True
    return False


def _install(box: Box, place: int, tls: Path) -> None:
    """Install both daemons as shipped, with certificates, and start none of them."""
    install_daemons(box, ("agent", "controller"))
    node, own, etc = _NODES[place], _CONTROLLERS[place], box.root / "etc/everstep"
    mine = [f"{name}.{kind}" for name in (node, own, "alice") for kind in ("pem", "key")]
    for name in ("ca.pem", *mine):
        shutil.copy(tls / name, etc / "tls" / name)
    box.run("sh", "-c", "chgrp everstep /etc/everstep/tls/*; chmod 640 /etc/everstep/tls/*")
    agent = (etc / "agent.toml").read_text()
    both = json.dumps([f"{name}:7433" for name in _CONTROLLERS])
    agent = re.sub(r"^controller = .*$", f"controller = {both}", agent, flags=re.M)
    address = _ADDRESSES[place]
    top = f'node = "{node}"\nhost = "{address}"\nliveness_address = "{address}:7437"\n'
    (etc / "agent.toml").write_text(top + agent + _TLS.format(name=node))
    shipped = (etc / "controller.toml").read_text()
    kept = re.sub(r"^(listen|journal) = .*\n", "", shipped, flags=re.M)
    (etc / "controller.toml").write_text(
        'listen = "0.0.0.0:7433"\nrole = "standby"\n'
        f'address = "{own}:7433"\n'
        f'journal = "postgresql://everstep@{_ADDRESSES[1]}/everstep?sslmode=disable"\n'
        + kept
        + _TLS.format(name=own)
    )


def _everstep(box: Box, *words: str) -> str:
    told = {
        "EVERSTEP_CONTROLLER": ",".join(f"{name}:7433" for name in _CONTROLLERS),
        "EVERSTEP_TLS_CA": "/etc/everstep/tls/ca.pem",
        "EVERSTEP_TLS_CERTIFICATE": "/etc/everstep/tls/alice.pem",
        "EVERSTEP_TLS_KEY": "/etc/everstep/tls/alice.key",
    }
    return box.run("env", *(f"{key}={value}" for key, value in told.items()), *_EVERSTEP, *words)


def _roles(box: Box) -> dict[str, bool] | None:
    """Return which controllers are listed, and which of them is active."""
    try:
        told = json.loads(_everstep(box, "controllers", "--json"))["controllers"]
    except (AssertionError, ValueError, KeyError):
        return None
    return {one["address"].partition(":")[0]: one["active"] for one in told}


def _is_active(box: Box, place: int) -> bool:
    wanted = {name: at == place for at, name in enumerate(_CONTROLLERS)}
    return _roles(box) == wanted


def _connected(box: Box) -> set[str]:
    try:
        nodes = json.loads(_everstep(box, "nodes", "--json"))["nodes"]
    except (AssertionError, ValueError):
        return set()
    return {node["node"] for node in nodes if node["connected"]}


def _step(box: Box) -> int:
    text = (box.root / _LOSSES).read_text() if (box.root / _LOSSES).exists() else ""
    return max((int(line.split("\t")[0]) for line in text.split("\n")[:-1]), default=-1)


def _trains_on(box: Box) -> None:
    reached = _step(box)
    wait_until(lambda: _step(box) > reached + _STEPS_AFTER, _PATIENCE_S)


def _train(box: Box) -> None:
    options = ["--job", "lone", "--nnodes", "1", "--nproc-per-node", "1"]
    options += ["--socket", "/run/everstep-agent/agent.sock"]
    script = ["/opt/source/examples/train_numpy.py", "--steps", "1000000"]
    script += ["--step-seconds-min", "0.05", "--losses", f"/{_LOSSES}"]
    box.run("systemd-run", "--unit=job", *_EVERSTEP, "run", *options, "--", PYTHON, *script)
    _trains_on(box)


def test_a_job_trains_on_through_a_hand_over_and_a_machine_that_nothing_reaches(
    boxes: Sequence[Box],
) -> None:
    first, second = boxes
    wait_until(lambda: _connected(second) == {*_NODES}, _PATIENCE_S)
    active = next(at for at in (0, 1) if _is_active(second, at))
    _train(second)

    if active == 1:
        _everstep(second, "controller", "handover", "--reason", "the other machine")
    wait_until(partial(_is_active, second, 0), _PATIENCE_S)
    wait_until(lambda: _connected(second) == {*_NODES}, _PATIENCE_S)
    _trains_on(second)

    first.run("ip", "link", "set", "eth9", "down")
    wait_until(lambda: (_roles(second) or {}).get(_CONTROLLERS[1]) is True, _PATIENCE_S)
    wait_until(lambda: "node-2" in _connected(second), _PATIENCE_S)
    _trains_on(second)

    first.run("ip", "link", "set", "eth9", "up")
    wait_until(partial(_is_active, second, 1), _PATIENCE_S)
    wait_until(lambda: _connected(second) == {*_NODES}, _PATIENCE_S)
    _everstep(second, "controller", "handover", "--reason", "back again")
    wait_until(partial(_is_active, second, 0), _PATIENCE_S)
    wait_until(lambda: _connected(second) == {*_NODES}, _PATIENCE_S)
    _trains_on(second)

    (job,) = json.loads(_everstep(second, "jobs", "--json"))["jobs"]
    assert (job["generation"], job["state"]) == (1, "running")
    for box in boxes:
        said = box.run("journalctl", "--no-pager", "--unit=everstep-controller")
        assert "Traceback" not in said
        assert "Operation not permitted" not in said
    # The machine that nothing reached was lost for as long, and nobody else.
    assert "node-2 is lost" not in _everstep(first, "events")
