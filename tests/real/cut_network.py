"""Nodes in network namespaces of their own on one bridge, each of which can be cut in one way.

Used by scripts that run in a namespace of their own: nothing of it is left when that ends.
"""

import os
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fakes.waits import wait_until
from integration.real_fleet import Place

_OURS = "10.77.0.1"
# What is dropped is dropped when it comes in, in silence: the sender hears nothing of it.
_DROP = ("iif", "eth0")


class Network:
    """The controller's namespace is this process's own; every node has another."""

    def __init__(self, names: Sequence[str]) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self.hosts = {"controller": _OURS}
        for words in (
            "link set lo up",
            "link add br0 type bridge",
            f"addr add {_OURS}/24 dev br0",
            "link set br0 up",
        ):
            _run("ip", *words.split())
        _put_rules_before_local()
        for number, name in enumerate(names):
            self._add(name, number)

    def enter(self, name: str) -> tuple[str, ...]:
        """Return the command that runs another one in the namespace of a node."""
        if name == "controller":
            return ()
        return ("nsenter", f"--net=/proc/{self._holders[name].pid}/ns/net")

    def place(self, name: str, tls: str) -> Place:
        """Return where the processes of a node run."""
        return Place(self.hosts[name], self.enter(name), tls)

    def deafen(self, name: str) -> None:
        """Let a node hear nothing of anybody; everybody hears it."""
        self._drop(name, *_DROP)

    def mute(self, name: str) -> None:
        """Let nobody hear a node; it hears everybody."""
        for other in self.hosts:
            if other != name:
                device = "br0" if other == "controller" else "eth0"
                self._drop(other, "iif", device, "from", self.hosts[name])

    def deafen_controller(self) -> None:
        """Let the controller hear nobody; nodes hear one another."""
        self._drop("controller", "iif", "br0")

    def split(self, behind: Sequence[str]) -> None:
        """Let nothing pass between some nodes and the others, with whom the controller is."""
        near = [name for name in self.hosts if name not in behind]
        for here, there in ((near, behind), (behind, near)):
            for name in here:
                device = "br0" if name == "controller" else "eth0"
                for other in there:
                    self._drop(name, "iif", device, "from", self.hosts[other])

    def isolate(self, names: Collection[str]) -> None:
        """Let nothing pass between each of these and anybody else."""
        for here in self.hosts:
            device = "br0" if here == "controller" else "eth0"
            for other in self.hosts:
                if other != here and (here in names or other in names):
                    self._drop(here, "iif", device, "from", self.hosts[other])

    def rule(self, name: str, *what: str) -> None:
        """Have what comes in at a node treated so: ``("ipproto", "udp", "blackhole")``."""
        # Only a machine that forwards says by ICMP what it prohibits, as a router does.
        forward = "echo 1 > /proc/sys/net/ipv4/conf/eth0/forwarding"
        _run(*self.enter(name), "sh", "-c", forward)
        self._drop(name, *_DROP, *what[:-1], verdict=what[-1])

    def unplug(self, name: str) -> None:
        """Take a node's cable out; nobody remembers its hardware address."""
        _run(*self.enter(name), "ip", "link", "set", "eth0", "down")
        for other in self.hosts:
            if other != name:
                _run(*self.enter(other), "ip", "neigh", "flush", "all")

    def heal(self) -> None:
        """Let everybody hear everybody again."""
        for name in self.hosts:
            # A node has a rule for each of those whom it does not hear.
            remove = "while ip rule del pref 1 2> /dev/null; do :; done"
            _run(*self.enter(name), "sh", "-c", remove)

    def close(self) -> None:
        """End what holds the namespaces."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()

    def _drop(self, where: str, *what: str, verdict: str = "blackhole") -> None:
        _run(*self.enter(where), "ip", "rule", "add", "pref", "1", *what, verdict)

    def _add(self, name: str, number: int) -> None:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[name] = holder
        ours, theirs = (Path(f"/proc/{pid}/ns/net") for pid in (os.getpid(), holder.pid))
        wait_until(lambda: theirs.readlink() != ours.readlink())
        self.hosts[name] = host = f"10.77.0.{11 + number}"
        _run(*f"ip link add v{number} type veth peer name eth0 netns {holder.pid}".split())
        _run(*f"ip link set v{number} master br0 up".split())
        for words in (f"addr add {host}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _run(*self.enter(name), "ip", *words.split())
        _put_rules_before_local(*self.enter(name))


@contextmanager
def network(*names: str) -> Iterator[Network]:
    """Yield a network of these nodes."""
    made = Network(names)
    try:
        yield made
    finally:
        made.close()


def _put_rules_before_local(*enter: str) -> None:
    """Make room for rules that are asked before what is for this machine is delivered to it."""
    for words in ("add pref 10 lookup local", "del pref 0"):
        _run(*enter, "ip", "rule", *words.split())


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
