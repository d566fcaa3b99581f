"""The network: interfaces and InfiniBand ports."""

from collections.abc import Sequence
from pathlib import Path

from everstep_agent.detectors.judgement import Judgement
from everstep_agent.detectors.links import LinkDetector, LinkReading
from everstep_agent.inventory import NodeView
from everstep_agent.probes.network import read_links
from everstep_agent.source import Source
from everstep_agent.sources.threaded import threaded

LINK_INTERVAL_S = 1.0


def network_sources(
    sysfs: Path, detector: LinkDetector, view: NodeView, deadline_s: float
) -> tuple[Source, ...]:
    """Return the sources that tell of the network."""

    def judge(reading: tuple[LinkReading, ...]) -> Sequence[Judgement]:
        view.links = reading
        return detector.judge(reading)

    look = threaded("network", deadline_s, lambda: read_links(sysfs), judge)
    return (Source(name="network", group="net", interval_s=LINK_INTERVAL_S, look=look),)
