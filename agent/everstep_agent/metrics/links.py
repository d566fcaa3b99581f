"""Link metrics: state, speed, and the counters of interfaces and ports."""

from collections.abc import Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.inventory.node_view import NodeView

# Counted in units of four octets (InfiniBand architecture, PortCountersExtended).
_WORDS = {"port_xmit_data": "transmitted_bytes", "port_rcv_data": "received_bytes"}
_WORD_BYTES = 4
_BYTES = {"tx_bytes": "transmitted_bytes", "rx_bytes": "received_bytes"}
# Series must not grow without bound on a node with hundreds of interfaces.
_LINKS_MAX = 64


def link_metrics(view: NodeView) -> Iterator[Metric]:
    """Yield every metric family of links."""
    yield from _states(view)
    yield from _counters("link", view.link_statistics)
    yield from _counters("infiniband", view.port_counters)


def _states(view: NodeView) -> Iterator[Metric]:
    labels = ["link", "kind"]
    up = GaugeMetricFamily("everstep_node_link_up", "The link is up.", labels=labels)
    speed = GaugeMetricFamily(
        "everstep_node_link_speed_bytes", "Speed in bytes per second.", labels=labels
    )
    for link in view.links or ():
        if link.up is not None:
            up.add_metric([link.name, link.kind], link.up)
        if link.speed_bits_per_s:
            speed.add_metric([link.name, link.kind], link.speed_bits_per_s / 8)
    yield from (up, speed)


def _counters(kind: str, readings: Sequence[CountersReading]) -> Iterator[Metric]:
    shown = readings[:_LINKS_MAX]
    for counter in dict.fromkeys(name for reading in shown for name in reading.values):
        name = _WORDS.get(counter) or _BYTES.get(counter) or counter.lower()
        factor = _WORD_BYTES if counter in _WORDS else 1
        family = CounterMetricFamily(
            f"everstep_node_{kind}_{name}", f"The kernel's counter {counter}.", labels=["link"]
        )
        for reading in shown:
            if (value := reading.values.get(counter)) is not None:
                family.add_metric([reading.link], value * factor)
        yield family
