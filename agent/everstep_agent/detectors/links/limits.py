"""Link limits: when a link counts as down, dropped or flapping, as an operator may set it."""

from dataclasses import dataclass

from everstep_common.setting import positive


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """The table ``[signals.links]``: when a link counts as down, dropped or flapping."""

    down_s: float = positive(
        5.0,
        unit="s",
        help="How long a port that carries RDMA may stay down before that is fatal; a switch port "
        "that renegotiates is back sooner, and the communication library still waits.",
    )
    vanished_s: float = positive(
        30.0,
        unit="s",
        help="How long an interface or card may be gone before it counts as down: a driver that is "
        "reloaded takes its cards away and brings them back one after another (NVSentinel).",
    )
    drop_s: float = positive(
        240.0,
        unit="s",
        help="Down for so long, a link has dropped: what renegotiates is back within 4 min (gpud).",
    )
    drop_kept_s: float = positive(
        600.0,
        unit="s",
        help="How long a drop stays visible after the link is back; gpud also keeps it for 10 min.",
    )
    flap_down_s: float = positive(
        25.0, unit="s", help="A return after at least so long counts as a flap (gpud)."
    )
    flap_returns: int = positive(
        3, help="So many returns within flap_window_s make a flapping link (gpud)."
    )
    flap_window_s: float = positive(
        86_400.0,
        unit="s",
        help="Within which returns are counted: a day, as Azure's checks count lost carriers.",
    )
    losses_per_hour: int = positive(
        3,
        help="So many losses of the link in an hour, however short, make a flapping link "
        "(NVSentinel).",
    )
    flap_quiet_s: float = positive(
        3600.0, unit="s", help="A link that was not lost for so long flaps no more."
    )
    bounce_quiet_s: float = positive(
        600.0,
        unit="s",
        help="How long a loss stays visible that was over before the link was polled.",
    )
    peers_min: int = positive(
        3, help="How many peers of the same build it takes to compare a link with them."
    )
