"""Cuts around the controller, in a network namespace: a job of two nodes steps on behind them.

Arguments: how many of six nodes the controller hears, how many cuts there are, and with "lost" the
job is behind them also where those are taken for lost. With at most half heard nobody is lost, and
no step is made twice; with more, those behind the cut are lost and nobody else. A job of these is
to be stopped then and waits for nodes, but steps on: when all of it is heard again, its stop is
withdrawn. Run by its test; ten cuts by hand:

    unshare --net .venv/bin/python tests/real/cut_controller.py 2 10
    unshare --net .venv/bin/python tests/real/cut_controller.py 4 10 lost
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from everstep_cli.client.admin import list_nodes
from everstep_proto.generated import admin_pb2
from integration.certified_places import certified_places
from integration.real_fleet import TRAINING, RealFleet, running_fleet
from real.cut_network import Network, network

NODES = tuple(f"node-{number}" for number in range(1, 7))
_SCRIPT = (str(TRAINING), "--steps", "1000000", "--step-seconds-min", "0.05")
# Longer than a silence and the transport's keepalive: both ends have given their streams up.
_LASTS_S = 22.0
_PATIENCE_S = 60.0
_STEPS_AFTER = 20
_FINDING = "ControllerCutOff"
_WITHDRAWN = "its stop is withdrawn"


def play(heard: int, count: int, folder: Path, *, lost_members: bool) -> None:
    """Cut and heal again and again, and print what came of each cut."""
    near, behind = NODES[:heard], NODES[heard:]
    few = heard * 2 <= len(NODES)
    members = behind[-2:] if few or lost_members else near[-2:]
    with network(*NODES) as cuts:
        places, tls = certified_places(NODES, folder, cuts.place)
        with running_fleet(*NODES, places=places, tls=tls) as fleet:
            for name in members:
                fleet.launch_on(name, _SCRIPT, nodes="2")
            for number in range(1, count + 1):
                _cut_once(fleet, cuts, behind, few=few, withdrawn=lost_members)
                steps = fleet.step()
                print(f"cut {number}: {heard} of {len(NODES)} heard, at step {steps}", flush=True)
            events = list(
                fleet.admin.stream(
                    lambda stub: stub.WatchEvents, admin_pb2.WatchEventsRequest(limit=5000)
                )
            )
            told = Counter(event.reason for event in events)
            withdrawn = sum(_WITHDRAWN in event.message for event in events)
            assert list(fleet.first_steps()) == [1], fleet.logs()
            assert fleet.first_steps()[1] == 0, fleet.first_steps()
            lost = told["NodeLost"]
            assert lost == (0 if few else count * len(behind)), (told, fleet.logs())
            assert bool(told[_FINDING]) == few, told
            assert withdrawn == (count if lost_members else 0), (withdrawn, fleet.logs())
            # Both members write each step down; one that was made again would stand there twice.
            print(f"heard {heard} of {len(NODES)}: {lost} lost, 0 stopped, 0 steps thrown away")
            print(f"stops withdrawn: {withdrawn}")


def _cut_once(
    fleet: RealFleet, cuts: Network, behind: tuple[str, ...], *, few: bool, withdrawn: bool
) -> None:
    _steps_on(fleet)
    cuts.split(behind)
    begun_s = time.monotonic()
    if not few:
        fleet.until("losses", _PATIENCE_S, lambda: set(behind) <= _in_state(fleet, "lost"))
        print(f"lost after {time.monotonic() - begun_s:.1f} s", flush=True)
    while time.monotonic() - begun_s < _LASTS_S:
        time.sleep(0.2)
        gone = _in_state(fleet, "lost")
        assert gone <= (set() if few else set(behind)), gone
    if few:
        assert _FINDING in _found(fleet), fleet.logs()
    _steps_on(fleet)
    if withdrawn:
        assert fleet.job().state == "waiting_capacity", fleet.logs()
    cuts.heal()
    fleet.until("all nodes", _PATIENCE_S, lambda: _all_back(fleet))
    fleet.until("the job", _PATIENCE_S, lambda: fleet.job().state == "running")


def _in_state(fleet: RealFleet, state: str) -> set[str]:
    return {node.node for node in list_nodes(fleet.admin).nodes if node.state == state}


def _all_back(fleet: RealFleet) -> bool:
    nodes = list_nodes(fleet.admin).nodes
    # A stream that ends with every cut makes a node suspect for a while, and no more.
    well = all(node.connected and node.state != "lost" and not node.doubt for node in nodes)
    return well and _FINDING not in _found(fleet)


def _found(fleet: RealFleet) -> set[str]:
    return {one.condition for one in fleet.findings()}


def _steps_on(fleet: RealFleet) -> None:
    reached = fleet.step()
    fleet.until("steps", _PATIENCE_S, lambda: fleet.step() > reached + _STEPS_AFTER)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="escut") as made:
        heard_nodes, cuts_made, *more = sys.argv[1:]
        play(int(heard_nodes), int(cuts_made), Path(made), lost_members="lost" in more)
