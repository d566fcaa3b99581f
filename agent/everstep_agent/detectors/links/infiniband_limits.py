"""InfiniBand limits: the thresholds for InfiniBand and RoCE counters that an operator may set."""

from dataclasses import dataclass

from everstep_common.setting import positive


@dataclass(frozen=True, slots=True, kw_only=True)
class InfinibandLimits:
    """The table ``[signals.infiniband]``: how many errors of a port are too many."""

    symbol_errors_per_s: float = positive(
        10.0, unit="1/s", help="Symbol errors in a second (NVSentinel)."
    )
    symbol_errors_per_hour: float = positive(
        120.0,
        unit="1/h",
        help="Symbol errors in an hour: what a bit error rate of 1e-12 allows (NVSentinel).",
    )
    link_recoveries_per_min: float = positive(
        5.0, unit="1/min", help="Retrainings of the link in a minute (NVSentinel)."
    )
    receive_errors_per_s: float = positive(
        10.0, unit="1/s", help="Damaged packets in a second (NVSentinel)."
    )
    discards_per_s: float = positive(
        100.0,
        unit="1/s",
        help="Packets in a second that the port discards (NVSentinel); congestion has some.",
    )
    misdirected_per_hour: float = positive(
        100.0,
        unit="1/h",
        help="Packets in an hour that are refused or cannot be forwarded (rdma-core).",
    )
    ack_timeouts_per_s: float = positive(
        1.0, unit="1/s", help="Acknowledgements in a second that do not come in time (NVSentinel)."
    )
    slow_restarts_per_s: float = positive(
        10.0, unit="1/s", help="Slow restarts of RoCE in a second (NVSentinel)."
    )
    transceiver_celsius_max: float = positive(
        80.0, unit="°C", help="Temperature of a transceiver at which NVIDIA's guide says alarm."
    )
    fatal_kept_s: float = positive(
        3600.0,
        unit="s",
        help="How long a buffer overrun or an integrity error stays open without another one: "
        "long enough for a job to put the link under load again.",
    )
    transport_kept_s: float = positive(
        600.0, unit="s", help="How long broken connections stay visible without another one."
    )
