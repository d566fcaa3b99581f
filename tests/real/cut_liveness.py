"""A job of two nodes behind cuts that are no loss; run by its test in a network namespace.

Arguments: what is cut, and how often. Ranks step on in their first generation, and no node is lost.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from everstep_cli.client.admin import list_nodes
from everstep_proto.generated import admin_pb2
from integration.certified_places import certified_places
from integration.real_fleet import TRAINING, RealFleet, running_fleet
from real.cut_network import Network, network

_NODES = ("node-1", "node-2", "node-3")
_UDP = ("ipproto", "udp", "blackhole")
_PATIENCE_S = 90.0
_STEPS_AFTER = 20

Cut = Callable[[Network, str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A cut of or around a member of the job, and the finding that tells people of it."""

    cut: Cut
    lasts_s: float
    finding: str = ""


def _no_question_comes(cuts: Network, name: str) -> None:
    cuts.rule(name, *_UDP)


def _no_answer_leaves(cuts: Network, name: str) -> None:
    for other in _NODES:
        if other != name:
            cuts.rule(other, "from", cuts.hosts[name], *_UDP)


def _no_probe_anywhere(cuts: Network, _: str) -> None:
    for name in _NODES:
        cuts.rule(name, *_UDP)


def _controller_deaf(cuts: Network, _: str) -> None:
    cuts.deafen_controller()


CASES: Mapping[str, Case] = MappingProxyType(
    {
        "no question comes over UDP": Case(_no_question_comes, 25.0, "ProbesBlocked"),
        "no answer leaves over UDP": Case(_no_answer_leaves, 25.0, "ProbesBlocked"),
        "no UDP between any nodes": Case(_no_probe_anywhere, 25.0, "ProbesBlocked"),
        "the controller hears nobody": Case(_controller_deaf, 25.0),
    }
)


def play(case: Case, count: int, folder: Path) -> None:
    """Cut, look what comes of it, and heal, again and again."""
    with network(*_NODES) as cuts:
        places, tls = certified_places(_NODES, folder, cuts.place)
        with running_fleet(*_NODES, places=places, tls=tls) as fleet:
            script = [str(TRAINING), "--steps", "100000", "--step-seconds-min", "0.05"]
            fleet.launch_script(script, nodes="2")
            for _ in range(count):
                _steps_on(fleet)
                case.cut(cuts, list(fleet.job().members)[-1])
                time.sleep(case.lasts_s)
                _steps_on(fleet)
                cuts.heal()
                fleet.until("all nodes", _PATIENCE_S, lambda: _connected(fleet))
            assert list(fleet.first_steps()) == [1], fleet.logs()
            said = {
                event.reason
                for event in fleet.admin.stream(
                    lambda stub: stub.WatchEvents, admin_pb2.WatchEventsRequest(limit=5000)
                )
            }
            assert "NodeLost" not in said, fleet.logs()
            assert not case.finding or case.finding in said, sorted(said)
    print("nobody was lost")


def _steps_on(fleet: RealFleet) -> None:
    reached = fleet.step()
    fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > reached + _STEPS_AFTER)


def _connected(fleet: RealFleet) -> bool:
    return fleet.healthy() and all(node.connected for node in list_nodes(fleet.admin).nodes)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="escut") as made:
        play(CASES[sys.argv[1]], int(sys.argv[2]), Path(made))
