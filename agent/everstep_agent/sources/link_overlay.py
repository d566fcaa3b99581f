"""Link overlay: where an injected fault changes the readings of links before they are judged."""

from typing import Protocol

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import LinkReading


class LinkOverlay(Protocol):
    """Overlay that changes what was read of links before it is judged."""

    def links(self, links: tuple[LinkReading, ...]) -> tuple[LinkReading, ...]:
        """Return the states to judge."""
        ...

    def counters(self, readings: tuple[CountersReading, ...]) -> tuple[CountersReading, ...]:
        """Return the counters to judge."""
        ...


class NoOverlay:
    """Overlay that changes nothing."""

    def links(self, links: tuple[LinkReading, ...]) -> tuple[LinkReading, ...]:
        """See LinkOverlay."""
        return links

    def counters(self, readings: tuple[CountersReading, ...]) -> tuple[CountersReading, ...]:
        """See LinkOverlay."""
        return readings
