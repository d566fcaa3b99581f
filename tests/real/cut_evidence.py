"""What a node says of a peer behind each kind of cut; run by its test in a network namespace."""

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from real.cut_network import Network, network

_NODE = Path(__file__).with_name("peer_node.py")
# The neighbour's address is asked for three times, a second apart, before it counts as not there.
_ROUNDS_OF_ARP = 5
# A kernel says a few times that something is unreachable, and again after a while (error_burst).
_ICMP_REST_S = 6.0
# The words that it has saved up are spent by then, with a probe a second.
_ICMP_SPENT_S = 9.0
_ROUNDS_OF_WATCHERS = 3


class Node:
    """A node in its namespace."""

    def __init__(self, cuts: Network, name: str) -> None:
        command = [*cuts.enter(name), sys.executable, str(_NODE), name, cuts.hosts[name]]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdin is not None
        self._out, self._in = self.process.stdout, self.process.stdin
        assert self._out.readline() == "ready\n"

    def evidence(self, peer: str, host: str) -> tuple[bool, str]:
        """Return what of a peer answers: its agent by UDP, and its port."""
        self._write(f"ask {peer} {host}\n")
        udp, tcp = json.loads(self._out.readline())
        return udp, tcp

    def watch(self, peer: str, host: str) -> None:
        """Have a peer probed once a second from now on."""
        self._write(f"watch {peer} {host}\n")

    def _write(self, line: str) -> None:
        self._in.write(line)
        self._in.flush()

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()


def play() -> None:
    """Cut a node in one way after the other, and compare what the other says of it."""
    with network("a", "b") as cuts, ExitStack() as stack:
        asker, peer = Node(cuts, "a"), Node(cuts, "b")
        stack.callback(asker.close)
        stack.callback(peer.close)

        def told(*rule: str) -> tuple[bool, str]:
            if rule:
                cuts.rule("b", *rule)
            try:
                return asker.evidence("b", cuts.hosts["b"])
            finally:
                cuts.heal()

        assert told() == (True, "accepted")
        assert told("ipproto", "udp", "blackhole") == (False, "accepted")
        assert told("ipproto", "tcp", "blackhole") == (True, "silent")
        assert told("blackhole") == (False, "silent")
        assert told("prohibit") == (False, "unreachable")
        time.sleep(_ICMP_REST_S)
        assert told("ipproto", "tcp", "prohibit") == (True, "unreachable")
        time.sleep(_ICMP_REST_S)
        # The probes of a watcher use up what the network says in a while: it is kept from them.
        asker.watch("b", cuts.hosts["b"])
        cuts.rule("b", "prohibit")
        time.sleep(_ICMP_SPENT_S)
        rounds = [asker.evidence("b", cuts.hosts["b"]) for _ in range(_ROUNDS_OF_WATCHERS)]
        assert (False, "silent") not in rounds, rounds
        cuts.heal()
        time.sleep(_ICMP_REST_S)
        cuts.unplug("b")
        # That its own kernel finds nobody there is silence, and no word of the network.
        rounds = [asker.evidence("b", cuts.hosts["b"]) for _ in range(_ROUNDS_OF_ARP)]
        assert set(rounds) == {(False, "silent")}, rounds
    print("told")


if __name__ == "__main__":
    play()
