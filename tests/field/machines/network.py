"""Network of the field: a bridge per rack, a trunk between them, and cuts of any machines from any.

Used in a network namespace of the field's own: nothing of it is left when that ends.
"""

import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import product
from pathlib import Path

from field.machines.site import PREFIX_BITS, RACKS, WORKSTATION_ADDRESS, Place, Site

_PATIENCE_S = 20.0
_WORKSTATION = "workstation"
# Rules that cut have this preference; rules before the table of local addresses see all that comes.
_CUT_PREFERENCE = "1"


class Network:
    """Every machine has a namespace that lives longer than what is booted in it."""

    def __init__(self, site: Site) -> None:
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        # By receiver and sender, how many cuts are between them now.
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._changing = threading.Lock()
        self._addresses = {one.name: one.address for one in site.places}
        self._addresses[_WORKSTATION] = WORKSTATION_ADDRESS
        _run("ip", "link", "set", "lo", "up")
        for number, _ in enumerate(RACKS):
            _run(*f"ip link add {_bridge(number)} type bridge".split())
            _run(*f"ip link set {_bridge(number)} up".split())
        _run(*["ip", "link", "add", "trunk0", "type", "veth", "peer", "name", "trunk1"])
        for number, _ in enumerate(RACKS):
            _run(*f"ip link set trunk{number} master {_bridge(number)} up".split())
        _run(*f"ip addr add {WORKSTATION_ADDRESS}/{PREFIX_BITS} dev {_bridge(0)}".split())
        for number, place in enumerate(site.places):
            self._add(place, number)

    def namespace(self, name: str) -> Path:
        """Return the file of a machine's network namespace."""
        return Path(f"/proc/{self._holders[name].pid}/ns/net")

    def cut(
        self, one_side: Iterable[str], other_side: Iterable[str], both_ways: bool = True
    ) -> Callable[[], None]:
        """Let nothing of one side reach the other, and with both ways nothing the other way.

        Return what heals this cut, and no other.
        """
        pairs = list(product(tuple(one_side), tuple(other_side)))
        pairs += [(receiver, sender) for sender, receiver in pairs if both_ways]
        deaf = [(receiver, sender) for sender, receiver in pairs if sender != receiver]
        self._change("add", deaf)
        return partial(self._change, "del", deaf)

    def close(self) -> None:
        """End what holds the namespaces, and remove the racks: the next round makes its own."""
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        for name in ("trunk0", *map(_bridge, range(len(RACKS)))):
            subprocess.run(["ip", "link", "del", name], check=False)

    def _change(self, change: str, deaf: Iterable[tuple[str, str]]) -> None:
        for receiver, sender in deaf:
            rule = ("from", self._addresses[sender], "iif", "eth0", "blackhole")
            words = ("ip", "rule", change, "pref", _CUT_PREFERENCE, *rule)
            with self._changing:
                before = self._cuts[receiver, sender]
                after = before + (1 if change == "add" else -1)
                if not before or not after:
                    _run(*self._enter(receiver), *words)
                self._cuts[receiver, sender] = after

    def _enter(self, name: str) -> tuple[str, ...]:
        return ("nsenter", f"--net={self.namespace(name)}")

    def _add(self, place: Place, number: int) -> None:
        holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self._holders[place.name] = holder
        ours = Path(f"/proc/{os.getpid()}/ns/net").readlink()
        deadline = time.monotonic() + _PATIENCE_S
        while self.namespace(place.name).readlink() == ours:
            assert time.monotonic() < deadline, f"{place.name} has no network namespace"
            time.sleep(0.01)
        bridge = _bridge(RACKS.index(place.rack))
        _run(*f"ip link add v{number} type veth peer name eth0 netns {holder.pid}".split())
        _run(*f"ip link set v{number} master {bridge} up".split())
        enter = self._enter(place.name)
        for words in (
            f"addr add {place.address}/{PREFIX_BITS} dev eth0",
            "link set eth0 up",
            "link set lo up",
            "rule add pref 10 lookup local",
            "rule del pref 0",
        ):
            _run(*enter, "ip", *words.split())


def _bridge(number: int) -> str:
    return f"rack{number}"


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
