"""Metrics of a controller's role: whether it is active, and how far a standby is behind."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric


def role_metrics(
    *, is_active: bool, behind_events: int = 0, behind_s: float = 0.0
) -> Iterator[Metric]:
    """Yield them; of a controller whose journal is a file, too, which is always active."""
    yield GaugeMetricFamily(
        "everstep_controller_active",
        "1 for the controller that writes the journal and acts, 0 for one that stands by.",
        value=1.0 if is_active else 0.0,
    )
    yield GaugeMetricFamily(
        "everstep_controller_lag_events",
        "Events of the journal that this controller has not folded yet; 0 for the active one.",
        value=float(behind_events),
    )
    yield GaugeMetricFamily(
        "everstep_controller_lag_seconds",
        "For how long its state has not been that of the journal; 0 for the active one.",
        value=behind_s,
    )
