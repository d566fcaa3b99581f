"""Link sources: builds those of Ethernet and InfiniBand, with what they share."""

from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.sources.infiniband import InfinibandSource
from everstep_agent.sources.link_board import LinkBoard
from everstep_agent.sources.network import NetworkSettings, NetworkSource
from everstep_agent.sources.source import Source
from everstep_common.clock import StampClock


def link_sources(
    settings: NetworkSettings, view: NodeView, counters: Counters, stamp: StampClock
) -> tuple[Source, ...]:
    """Return the sources that tell of the network, Ethernet and InfiniBand."""
    board = LinkBoard(view)
    network = NetworkSource(settings, board, counters, stamp)
    infiniband = InfinibandSource(settings, board, counters, stamp)
    return network.source(), infiniband.source(network.hears)
