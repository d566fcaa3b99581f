"""A job whose node is cut in one way while it stores its steps, and comes back; run by its test.

Runs in a network namespace of its own. Arguments: "deaf" or "mute", and what becomes of the
node's storage processes: "running", or "stopped" from before the cut until after it.
"""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from everstep_cli.demo import reaper
from integration.certified_places import certified_places
from integration.latest_watch import LatestWatch
from integration.real_fleet import JOB, RealFleet, running_fleet
from real.cut_network import Network, network

_PATIENCE_S = 90.0
_NODES = ("node-1", "node-2", "node-3")
_STEP_S = 0.04


class Stutter:
    """Lets the storage processes of a node work for moments only, and then no more.

    So every request takes long, and whatever comes next comes in the middle of one.
    """

    def __init__(self, fleet: RealFleet, name: str) -> None:
        self._agent = fleet.agents[name].process.pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stutter")
        self.stopped = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Let them go on."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        held = False
        while not self._over.wait(0.05 if not held else 0.002):
            held = not held
            self._signal(signal.SIGSTOP if held else signal.SIGCONT)
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in workers(self._agent):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            self.stopped += number == signal.SIGSTOP


def workers(agent: int) -> list[int]:
    """Return the storage processes of an agent."""
    below = reaper.descendants([agent], reaper.parents())
    return [pid for pid in below if b"storage/worker/main.py" in _line(pid)]


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def _fleet(cuts: Network, folder: Path) -> Iterator[RealFleet]:
    places, tls = certified_places(_NODES, folder, cuts.place)
    with running_fleet(*_NODES, places=places, tls=tls) as fleet:
        yield fleet


def play(way: str, children: str, folder: Path) -> None:
    """Cut the node that trains; let another take over; let the old one come back."""
    stored = folder / "stored"
    with network(*_NODES) as cuts, _fleet(cuts, folder) as fleet:
        with LatestWatch(stored / JOB) as watch:
            fleet.launcher_options = ("--persist", str(stored), "--persist-every", "5")
            train = Path(__file__).parents[2] / "examples" / "train_numpy.py"
            pace = ["--steps", "100000", "--step-seconds-min", str(_STEP_S)]
            fleet.launch_script([str(train), *pace], nodes="1")
            fleet.until("steps in storage", _PATIENCE_S, lambda: watch.newest.target[1] >= 10)
            _cut_and_heal(cuts, fleet, watch, way, children)
        began_after = {number: first - 1 for number, first in fleet.first_steps().items()}
        assert min(began_after) == 1 < max(began_after)
        watch.check(began_after)
        print(f"latest pointed to {len(watch.history)} steps in {watch.looks} looks")


def _cut_and_heal(
    cuts: Network, fleet: RealFleet, watch: LatestWatch, way: str, children: str
) -> None:
    (old,) = fleet.job().members
    with _stuttering(fleet, old) if children == "stopped" else nullcontext():
        (cuts.deafen if way == "deaf" else cuts.mute)(old)
        before = _computed(fleet)[0]
        fleet.until("both sides train", _PATIENCE_S, lambda: _both_train(fleet, before))
        fleet.until("the new side stores", _PATIENCE_S, lambda: _stored(watch, 2))
        cuts.heal()
    fleet.until("the old side is stopped", _PATIENCE_S, lambda: _stopped(fleet, old))
    reached = watch.newest.target[1]
    fleet.until("the new side goes on", _PATIENCE_S, lambda: watch.newest.target[1] >= reached + 15)
    assert fleet.job().state == "running"


@contextmanager
def _stuttering(fleet: RealFleet, name: str) -> Iterator[None]:
    stutter = Stutter(fleet, name)
    stutter.start()
    try:
        fleet.until("a stopped storage process", _PATIENCE_S, lambda: stutter.stopped > 0)
        yield
    finally:
        stutter.end()


def _computed(fleet: RealFleet) -> tuple[int, int]:
    """Return how many steps the old side and the new one have computed."""
    counts = {
        int(path.stem): path.read_bytes().count(b"\n")
        for path in (fleet.folder / "losses").glob("*.tsv")
    }
    old = counts.pop(1, 0)
    return old, sum(counts.values())


def _both_train(fleet: RealFleet, before: int) -> bool:
    old, new = _computed(fleet)
    # More than a second of steps of the old side, besides the time until the new one trains.
    return old > before + 30 and new > 5


def _stored(watch: LatestWatch, count: int) -> bool:
    return len([one for one in watch.history if one.target[0] > 1]) >= count


def _stopped(fleet: RealFleet, name: str) -> bool:
    rank = fleet.rank(name)
    return rank is None or reaper.environment(rank.pid).get("EVERSTEP_GENERATION") != "1"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="escut") as made:
        play(sys.argv[1], sys.argv[2], Path(made))
