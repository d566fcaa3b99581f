"""Cost of one look of each source, as JSON: µs of CPU in this process, and in its children.

Arguments: an agent's configuration, and how many blocks of looks. The node's clock is moved by a
source's interval for every look, so that it does what it does rarely as often as in an agent.
"""

import asyncio
import contextlib
import json
import os
import sys
import time
from pathlib import Path

from processes import children_cpu_s

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.memory import no_memory
from everstep_agent.monitoring.node_watch import NodeWatch
from everstep_agent.sources.source import Source
from everstep_common.clock import Stamp
from everstep_common.config import load
from everstep_common.judging.book import FindingBook

_FIRST_LOOKS = 6
# Sources that read more in every fifth or thirtieth look do so in every block.
_LOOKS = 30
# Between looks, so that a look finds the caches nearly as cold as one look a second does.
_PAUSE_S = 0.02
_SECOND_NS = 1_000_000_000


class Clock:
    """The node's clocks, moved by hand."""

    def __init__(self) -> None:
        self._now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def __call__(self) -> Stamp:
        """Return the moment."""
        return Stamp("boot", self._now_ns, self._now_ns)

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ns += int(seconds * _SECOND_NS)


async def look(source: Source, findings: Findings) -> tuple[float, float]:
    """Look once; return the seconds of CPU here and in children."""
    pid = os.getpid()
    children_s, own_s = children_cpu_s(pid), time.process_time()
    # A source that this machine does not let us read costs what it costs.
    with contextlib.suppress(OSError, ValueError):
        findings.report(await source.look())
        source.told()
    own_s = time.process_time() - own_s
    return own_s, children_cpu_s(pid) - children_s


async def block(source: Source, findings: Findings, clock: Clock, looks: int) -> list[float]:
    """Return the mean µs of a look, here and in children."""
    costs = []
    for _ in range(looks):
        await asyncio.sleep(_PAUSE_S)
        clock.move(source.interval_s)
        costs.append(await look(source, findings))
    return [sum(column) / looks * 1e6 for column in zip(*costs, strict=True)]


async def measure(config: AgentConfig, blocks: int) -> list[dict[str, object]]:
    """Measure one source after another."""
    clock = Clock()
    findings = Findings(FindingBook(CONDITIONS), lambda _: None, lambda _: None, clock)
    node = NodeWatch(config, findings, no_memory(), clock)
    measured: list[dict[str, object]] = []
    try:
        for source in node.watch.sources:
            await block(source, findings, clock, _FIRST_LOOKS)
            costs = [await block(source, findings, clock, _LOOKS) for _ in range(blocks)]
            own, children = zip(*costs, strict=True)
            measured.append(
                {
                    "name": source.name,
                    "interval_s": source.interval_s,
                    "own_us": own,
                    "children_us": children,
                }
            )
    finally:
        node.close()
    return measured


def main() -> None:
    """Measure and print."""
    config = load(AgentConfig, Path(sys.argv[1]))
    print(json.dumps(asyncio.run(measure(config, int(sys.argv[2])))))


if __name__ == "__main__":
    main()
