"""Metrics of the journal's replication, where it is in PostgreSQL."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from everstep_controller.journal.synchrony import Synchrony


def synchrony_metrics(seen: Synchrony | None) -> Iterator[Metric]:
    """Yield all series; without samples where nothing is known."""
    synchronous = GaugeMetricFamily(
        "everstep_controller_journal_synchronous",
        "1 while a commit of the journal is on a standby before it counts; missing with a file.",
    )
    standbys = GaugeMetricFamily(
        "everstep_controller_journal_standbys",
        "Standbys of the journal's database, by their sync_state; empty where it is not shown.",
        labels=["sync_state"],
    )
    lag = GaugeMetricFamily(
        "everstep_controller_journal_standby_lag_bytes",
        "What a standby has not yet on its disk; missing where it is not shown.",
        labels=["standby"],
    )
    if seen is not None:
        synchronous.add_metric([], seen.is_synchronous)
        connected = seen.replication.standbys
        for state, count in Counter(one.sync_state for one in connected).items():
            standbys.add_metric([state], count)
        for one in {one.name: one for one in connected}.values():
            if one.lag_bytes is not None:
                lag.add_metric([one.name], one.lag_bytes)
    yield from (synchronous, standbys, lag)
