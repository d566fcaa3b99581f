"""Network source: Ethernet interfaces and bonds, in a rhythm and at once when a link changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from everstep_agent.detectors.links.bonds import BondDetector, BondReading
from everstep_agent.detectors.links.detector import LinkDetector
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.ethernet import EthernetDetector, EthernetLimits
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.detectors.links.limits import LinkLimits
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.detectors.readings.topology import PciPlace
from everstep_agent.probes.links.netlink import LinkEvents
from everstep_agent.probes.links.network import NetworkProbe
from everstep_agent.probes.links.pci import read_places
from everstep_agent.probes.worker import ProbeWorker
from everstep_agent.sources.link_readings import LinkReadings
from everstep_agent.sources.source import Source
from everstep_common.clock import StampClock
from everstep_common.judging.judgement import Judgement


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


LINK_INTERVAL_S = 1.0
# Interval of the counters: a finding takes two readings, and so comes within 10 s.
COUNTERS_INTERVAL_NS = 5_000_000_000
# Cards do not move while the machine runs, but some are bound to their driver late.
_PLACES_INTERVAL_NS = 60_000_000_000
# Kinds of interfaces that have a physical link, or stand for interfaces that have one.
_HEARD_KINDS = ("ethernet", "bond", "ipoib")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Settings of the network source: where links are read, and how they are judged."""

    sysfs: Path
    deadline_s: float
    dev: Path = Path("/dev")
    required: tuple[str, ...] = ()
    links: LinkLimits = field(default_factory=LinkLimits)
    infiniband: InfinibandLimits = field(default_factory=InfinibandLimits)
    ethernet: EthernetLimits = field(default_factory=EthernetLimits)
    overlay: LinkOverlay = field(default_factory=NoOverlay)


@dataclass(frozen=True, slots=True)
class _Reading:
    links: tuple[LinkReading, ...]
    counters: tuple[CountersReading, ...] | None
    bonds: tuple[BondReading, ...]
    places: dict[str, PciPlace] | None


class NetworkSource:
    """Source of interface states, every second, and their counters every few seconds."""

    def __init__(
        self,
        settings: NetworkSettings,
        readings: LinkReadings,
        counters: Counters,
        stamp: StampClock,
    ) -> None:
        required = [name for name in settings.required if "/" not in name]
        self._settings = settings
        self._readings = readings
        self._stamp = stamp
        self._probe = NetworkProbe(str(settings.sysfs), required)
        self._worker = ProbeWorker("network")
        self._links = LinkDetector(required, counters, settings.links)
        self._errors = EthernetDetector(counters, self._links.history, settings.ethernet)
        self._bonds = BondDetector()
        self._counters_due_ns = self._places_due_ns = 0
        self._required = frozenset(required)
        self._heard: frozenset[str] = frozenset(required)
        self._events = LinkEvents(self.hears)

    def hears(self, name: str) -> bool:
        """Return whether a change of this interface is worth a look at once."""
        return name in self._heard

    def source(self) -> Source:
        """Return it for the watch."""
        return Source(
            name="network",
            group="net",
            interval_s=LINK_INTERVAL_S,
            look=self._look,
            listen=self._events.listen,
            workers=(self._worker,),
        )

    async def _look(self) -> Sequence[Judgement]:
        now = self._stamp()
        reading = await self._worker.call(
            lambda: self._read(now.boot_ns), self._settings.deadline_s
        )
        overlay = self._settings.overlay
        links = overlay.links(reading.links)
        heard = (link.name for link in links if link.kind in _HEARD_KINDS)
        self._heard = self._required.union(heard)
        self._readings.take_interfaces(links)
        judgements = [
            *self._links.judge(links, now),
            *self._bonds.judge(reading.bonds),
        ]
        if reading.places is not None:
            self._places_due_ns = now.boot_ns + _PLACES_INTERVAL_NS
            self._readings.take_places(reading.places)
        if reading.counters is not None:
            self._counters_due_ns = now.boot_ns + COUNTERS_INTERVAL_NS
            counters = overlay.counters(reading.counters)
            self._readings.take_statistics(counters, self._events.deaf)
            judgements += self._errors.judge(counters, now)
        return judgements

    def _read(self, boot_ns: int) -> _Reading:
        links = self._probe.read()
        with_counters = boot_ns >= self._counters_due_ns
        with_places = boot_ns >= self._places_due_ns
        return _Reading(
            links,
            self._probe.read_counters() if with_counters else None,
            self._probe.read_bonds(),
            read_places(str(self._settings.sysfs)) if with_places else None,
        )
