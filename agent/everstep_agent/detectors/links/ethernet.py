"""Ethernet detector: what the statistics of an interface say."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.links.errors import CountersReading, ErrorCounters, ErrorRule
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.findings import Mode, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment
from everstep_common.setting import positive


@dataclass(frozen=True, slots=True, kw_only=True)
class EthernetLimits:
    """The table ``[signals.ethernet]``: how many errors of an interface are too many."""

    errors_per_s: float = positive(
        10.0,
        unit="1/s",
        help="Damaged packets in a second; the limit that NVSentinel has for InfiniBand.",
    )
    checksum_errors_per_hour: float = positive(
        120.0,
        unit="1/h",
        help="Frames in an hour with a wrong checksum: as many as InfiniBand allows symbol errors.",
    )
    drops_per_s: float = positive(
        100.0,
        unit="1/s",
        help="Packets in a second that the host or the card drops. Some are always dropped: those "
        "of protocols that nobody listens to.",
    )


def rules(limits: EthernetLimits) -> tuple[ErrorRule, ...]:
    """Return what is judged of the statistics of an interface."""
    return (
        ErrorRule(
            condition="EthernetErrors",
            counters=("rx_errors", "tx_errors"),
            limit=limits.errors_per_s,
            what="packets arrive or leave damaged",
            source="as for InfiniBand (NVSentinel's NIC monitor)",
            mode=Mode.ADVISE,
        ),
        ErrorRule(
            condition="EthernetChecksumErrors",
            counters=("rx_crc_errors",),
            limit=limits.checksum_errors_per_hour,
            window_s=3600.0,
            what="frames arrive with a wrong checksum: a cable or transceiver fails",
            source="ours, as for symbol errors of InfiniBand",
            mode=Mode.ADVISE,
        ),
        ErrorRule(
            condition="EthernetDrops",
            counters=("rx_dropped", "tx_dropped", "rx_missed_errors", "rx_fifo_errors"),
            limit=limits.drops_per_s,
            what="packets are dropped: the host does not keep up",
            source="as for discards of InfiniBand (NVSentinel's NIC monitor)",
            action=SuggestedAction.WATCH,
        ),
    )


CONDITIONS = tuple(rule.declared() for rule in rules(EthernetLimits()))


class EthernetDetector:
    """Detector over the statistics of every Ethernet interface."""

    def __init__(
        self, counters: Counters, history: LinkHistory, limits: EthernetLimits | None = None
    ) -> None:
        self._errors = ErrorCounters(rules(limits or EthernetLimits()), {}, counters)
        self._counters = counters
        self._history = history

    def judge(self, readings: Sequence[CountersReading], now: Moment) -> Iterable[Judgement]:
        """Judge one reading of the statistics of all interfaces that are watched."""
        for reading in readings:
            yield from self._errors.judge(reading.link, self._errors.grow(reading, now), now)
            if (losses := reading.values.get("carrier_down_count")) is not None:
                name = f"link/{reading.link}/carrier_down_count"
                growth = self._counters.add_reading(name, losses, now)
                if not growth.reset:
                    yield from self._history.lost(reading.link, growth.count, now)
