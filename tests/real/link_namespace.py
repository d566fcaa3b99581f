"""Runs in a network namespace of its own: real interfaces, the kernel's messages, our sources.

Prints one JSON document: what was raised and cleared, in order, with the seconds since the change.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.node_watch import link_sources
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.sources.network import NetworkSettings
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually

# So long that whatever is found is found because the kernel told of it.
_NEVER_S = 3600.0


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Scene:
    """Both ends of a pair of interfaces, and a watch on one of them."""

    def __init__(self, sysfs: Path) -> None:
        subprocess.run(["mount", "-t", "sysfs", "sysfs", str(sysfs)], check=True)
        for words in ("link add one type veth peer name two", "link set one up", "link set two up"):
            _ip(*words.split())
        self.said: list[tuple[str, float]] = []
        self.looks = 0
        self._changed = time.monotonic()
        self.view = NodeView()
        settings = NetworkSettings(sysfs=sysfs, deadline_s=20.0, required=("one",))
        sources = link_sources(settings, self.view, Counters(), self._stamp)
        findings = Findings(FindingBook(CONDITIONS), self._record, lambda _: None, self._stamp)
        self.watch = Watch([replace(one, interval_s=_NEVER_S) for one in sources], findings)

    def _stamp(self) -> Stamp:
        self.looks += 1
        return Stamp("boot-1", time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 10**15, 0)

    def _record(self, record: fleet_pb2.Record) -> None:
        took = time.monotonic() - self._changed
        if record.HasField("finding_raised"):
            self.said.append((f"+{record.finding_raised.finding.condition}", took))
        else:
            self.said.append((f"-{record.finding_cleared.condition}", took))

    def set(self, up: bool) -> None:
        """Take the other end up or down, which takes the carrier."""
        self._changed = time.monotonic()
        _ip("link", "set", "two", "up" if up else "down")

    async def until(self, so: Callable[[], bool]) -> None:
        """Wait until something holds. Raises TimeoutError."""
        await eventually(so)

    def is_up(self, up: bool) -> bool:
        """Return whether the newest reading says so of the watched interface."""
        links = [link for link in self.view.links or () if link.name == "one"]
        return [link.up for link in links] == [up]

    def heard(self, what: str) -> bool:
        """Return whether a condition was raised ("+") or cleared ("-")."""
        return what in [condition for condition, _ in self.said]


async def play(scene: Scene) -> None:
    """Take the link down and up three times, then make interfaces that nobody watches."""
    watching = asyncio.create_task(scene.watch.run())
    await scene.until(lambda: scene.is_up(True))
    for _ in range(3):
        scene.set(False)
        await scene.until(lambda: scene.is_up(False))
        scene.set(True)
        await scene.until(lambda: scene.is_up(True))
    await scene.until(lambda: scene.heard("+LinkFlapping"))
    before = scene.looks
    for number in range(10):
        _ip("link", "add", f"c{number}", "type", "veth", "peer", "name", f"d{number}")
    await asyncio.sleep(0.5)
    strangers = scene.looks - before
    for _ in range(10):
        await scene.watch.probe_now(["net"])
    watching.cancel()
    print(json.dumps({"said": scene.said, "looks_for_strangers": strangers}))


if __name__ == "__main__":
    asyncio.run(play(Scene(Path(sys.argv[1]))))
