"""Link readings: the newest of interfaces and ports, combined for the rest of the agent."""

import logging
from collections.abc import Collection, Mapping, Sequence

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.topology import PciPlace, beside_the_rails
from everstep_agent.inventory.node_view import NodeView

logger = logging.getLogger(__name__)

_SHOWN = 3


class LinkReadings:
    """Newest readings of links, shown when both interfaces and ports were read."""

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self._interfaces: tuple[LinkReading, ...] | None = None
        self._ports: tuple[LinkReading, ...] | None = None
        self._beside: Collection[str] = ()

    def take_interfaces(self, interfaces: tuple[LinkReading, ...]) -> None:
        """Take a reading of every interface."""
        self._interfaces = interfaces
        self._blind("interfaces", _blind_states(interfaces))
        self._show()

    def take_ports(self, ports: tuple[LinkReading, ...]) -> None:
        """Take a reading of every port of an HCA."""
        before, self._ports = self._ports, ports
        if before is None or _addresses(before) != _addresses(ports):
            self._show_beside()
        self._blind("ports", _blind_states(ports))
        self._show()

    def take_places(self, places: Mapping[str, PciPlace]) -> None:
        """Take where every card sits."""
        self.view.places = places
        self._show_beside()

    def beside_the_rails(self) -> Collection[str]:
        """Return the ports that no accelerator is nearest to."""
        return self._beside

    def take_statistics(self, counters: Sequence[CountersReading], deaf: str) -> None:
        """Take what interfaces count; ``deaf`` says why link changes are only polled."""
        self.view.link_statistics = tuple(counters)
        self._blind("network", "; ".join(filter(None, (deaf, _blind_files(counters)))))

    def take_port_counters(self, counters: Sequence[CountersReading]) -> None:
        """Take what ports count."""
        self.view.port_counters = tuple(counters)
        self._blind("infiniband", _blind_files(counters))

    def _show_beside(self) -> None:
        self._beside = beside_the_rails(_addresses(self._ports or ()), self.view.places)

    def _show(self) -> None:
        if self._interfaces is not None and self._ports is not None:
            self.view.links = (*self._interfaces, *self._ports)

    def _blind(self, source: str, why: str) -> None:
        if self.view.blind.get(source, "") != why:
            self.view.blind[source] = why
            if why:
                logger.warning("%s: %s", source, why)


def _addresses(ports: Sequence[LinkReading]) -> dict[str, str]:
    return {port.name: port.pci for port in ports if port.pci}


def _blind_states(links: Sequence[LinkReading]) -> str:
    """Return which links are there and do not tell their state; empty when all do."""
    blind = [link.name for link in links if link.up is None and link.watched]
    return f"the state cannot be read of {', '.join(blind[:_SHOWN])}" if blind else ""


def _blind_files(readings: Sequence[CountersReading]) -> str:
    """Return which counters are there and cannot be read; empty when all can."""
    blind = [f"{reading.link}/{name}" for reading in readings for name in reading.blind]
    if not blind:
        return ""
    more = ", …" if len(blind) > _SHOWN else ""
    return f"{len(blind)} counters cannot be read: {', '.join(blind[:_SHOWN])}{more}"
