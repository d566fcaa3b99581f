"""Metrics of webhooks: what was sent and what was not, and how far each is behind."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from everstep_controller.webhooks.sender import WebhookStatus


def webhook_metrics(statuses: Iterable[WebhookStatus]) -> Iterator[Metric]:
    """Yield all series."""
    events = CounterMetricFamily(
        "everstep_webhook_events",
        "Events of a webhook since this start: sent, in a digest, or given up.",
        labels=["webhook", "outcome"],
    )
    failures = CounterMetricFamily(
        "everstep_webhook_failures",
        "Requests of a webhook since this start that were not accepted.",
        labels=["webhook"],
    )
    lag = GaugeMetricFamily(
        "everstep_webhook_lag_lines",
        "Lines of the event list that a webhook has not come to.",
        labels=["webhook"],
    )
    failing = GaugeMetricFamily(
        "everstep_webhook_failing",
        "1 while a webhook fails for so long that people should look: WebhookFailed.",
        labels=["webhook"],
    )
    for one in statuses:
        outcomes = (("sent", one.sent), ("digest", one.digested), ("given_up", one.given_up))
        for outcome, count in outcomes:
            events.add_metric([one.name, outcome], count)
        failures.add_metric([one.name], one.failed)
        lag.add_metric([one.name], one.lag)
        failing.add_metric([one.name], bool(one.trouble))
    yield from (events, failures, lag, failing)
