"""Two booted machines with a cable between them: the shipped units, mTLS, a user without rights."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fakes.waits import wait_until
from real.booted_box import REPOSITORY, Box, booted
from real.booted_fleet import PYTHON, install_daemons

# The first has the controller, too.
HOSTS: Mapping[str, str] = {"node-a": "10.78.0.1", "node-b": "10.78.0.2"}
USER, HOME = "alice", "srv/alice"
_UID = 54330
_CONTROLLER = f"{HOSTS['node-a']}:7433"
_TLS = """
[tls]
ca = "/etc/everstep/tls/ca.pem"
certificate = "/etc/everstep/tls/{name}.pem"
key = "/etc/everstep/tls/{name}.key"
"""
_SOCKET = '"unix:/run/everstep-controller/controller.sock"'
_PATIENCE_S = 120.0
# What an operator's shell has on the machine of the controller.
_OPERATOR = (
    *("env", f"EVERSTEP_CONTROLLER={_CONTROLLER}", "EVERSTEP_TLS_CA=/root/tls/ca.pem"),
    *("EVERSTEP_TLS_CERTIFICATE=/root/tls/root.pem", "EVERSTEP_TLS_KEY=/root/tls/root.key"),
    *("COLUMNS=200", PYTHON, "-c", "import sys; from everstep.entry import main; sys.exit(main())"),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """The machines by name."""

    boxes: Mapping[str, Box]

    def everstep(self, *words: str, check: bool = True) -> str:
        """Return what a command of an operator prints."""
        return self.boxes["node-a"].run(*_OPERATOR, *words, check=check)

    def logs(self, *units: str) -> str:
        """Return what units wrote on both machines."""
        named = [f"--unit={unit}" for unit in units]
        command = ("journalctl", "--no-pager", "--output=cat", *named)
        return "\n".join(box.run(*command, check=False) for box in self.boxes.values())


@contextlib.contextmanager
def booted_pair(folder: Path) -> Iterator[Pair]:
    """Yield both, with agents that are connected; end them on the way out."""
    with contextlib.ExitStack() as stack:
        spaces = stack.enter_context(_cable())
        boxes = {
            name: stack.enter_context(booted(_made(folder / name), f"everstep-{name[-1]}", space))
            for name, space in spaces.items()
        }
        made = Pair(boxes)
        try:
            _install(made, folder / "tls")
            wait_until(lambda: _all_connected(made), _PATIENCE_S, "without both agents")
            yield made
        finally:
            print(made.everstep("nodes", check=False))
            print(made.logs("everstep-agent", "everstep-controller")[-12_000:])


@contextlib.contextmanager
def _cable() -> Iterator[dict[str, Path]]:
    """Yield a network namespace for each machine, and between them a pair of interfaces."""
    holders = [subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) for _ in HOSTS]
    spaces = [Path(f"/proc/{one.pid}/ns/net") for one in holders]
    try:
        ours = Path("/proc/self/ns/net").readlink()
        for space in spaces:
            wait_until(lambda space=space: space.readlink() != ours)  # type: ignore[misc]
        cable = f"link add eth0 type veth peer name eth0 netns {holders[1].pid}"
        _ip(spaces[0], cable)
        for space, host in zip(spaces, HOSTS.values(), strict=True):
            for words in (f"addr add {host}/24 dev eth0", "link set eth0 up", "link set lo up"):
                _ip(space, words)
        yield dict(zip(HOSTS, spaces, strict=True))
    finally:
        for holder in holders:
            holder.kill()
            holder.wait()


def _ip(space: Path, words: str) -> None:
    subprocess.run(["nsenter", f"--net={space}", "ip", *words.split()], check=True)


def _install(pair: Pair, tls: Path) -> None:
    agents = [word for name in HOSTS for word in ("agent", name)]
    words = ("controller", HOSTS["node-a"], *agents, "operator", "root")
    script = REPOSITORY / "systemd/certificates.sh"
    subprocess.run(["sh", script, tls, *words], check=True, capture_output=True)
    for name, box in pair.boxes.items():
        is_first = name == next(iter(HOSTS))
        install_daemons(box, ("agent", "controller") if is_first else ("agent",))
        (box.root / "etc/hosts").write_text("".join(f"{HOSTS[one]} {one}\n" for one in HOSTS))
        box.run("hostname", name)
        _give_certificate(box, tls, name, "agent")
        _set(box, "agent", {_SOCKET: f'"{_CONTROLLER}"'}, _agent(name))
        if is_first:
            _give_certificate(box, tls, "controller", "controller")
            _set(box, "controller", {_SOCKET: f'"{_CONTROLLER}"'}, "")
            shutil.copytree(tls, box.root / "root/tls")
            box.run("systemctl", "start", "--no-block", "everstep-controller")
        box.run("systemctl", "start", "--no-block", "everstep-agent")
        _add_user(box)


def _agent(name: str) -> str:
    return f'node = "{name}"\ndomain = "{name}"\nhost = "{HOSTS[name]}"\n'


def _set(box: Box, daemon: str, changed: Mapping[str, str], first: str) -> None:
    """Edit the shipped settings of a daemon."""
    path = box.root / f"etc/everstep/{daemon}.toml"
    text = path.read_text()
    for old, new in changed.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(first + text + _TLS.format(name=daemon))


def _give_certificate(box: Box, tls: Path, name: str, daemon: str) -> None:
    folder = box.root / "etc/everstep/tls"
    shutil.copy(tls / "ca.pem", folder)
    shutil.copy(tls / f"{name}.pem", folder / f"{daemon}.pem")
    shutil.copy(tls / f"{name}.key", folder / f"{daemon}.key")
    files = [f"/etc/everstep/tls/{one}" for one in ("ca.pem", f"{daemon}.pem", f"{daemon}.key")]
    box.run("chown", "root:everstep", *files)
    box.run("chmod", "640", *files)


def _add_user(box: Box) -> None:
    path = box.root / "opt/user.conf"
    path.write_text(f'u {USER} {_UID} "A user" /{HOME}\n')
    box.run("systemd-sysusers", "/opt/user.conf")
    home = box.root / HOME
    home.mkdir(parents=True)
    os.chown(home, _UID, _UID)


def _all_connected(pair: Pair) -> bool:
    told = pair.everstep("nodes", check=False)
    return all(name in told for name in HOSTS)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
