"""Assembly of the pages that are served over HTTP."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import Metric

from everstep_controller.api.server import ListenError
from everstep_controller.assembly.acting import Acting
from everstep_controller.assembly.fleet import Fleet
from everstep_controller.assembly.foundation import Foundation
from everstep_controller.assembly.serving import Serving
from everstep_controller.assembly.watches import Watches
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.metrics.collector import ControllerCollector, Counts
from everstep_controller.metrics.evidence_ages import EvidenceAges
from everstep_controller.metrics.role_metrics import role_metrics
from everstep_controller.metrics.synchrony_metrics import synchrony_metrics
from everstep_controller.metrics.webhook_metrics import webhook_metrics
from everstep_controller.web.metrics_server import MetricsServer
from everstep_controller.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Pages:
    """What is served over HTTP."""

    metrics: MetricsServer | None = None

    @property
    def metrics_port(self) -> int:
        """Return the port of /metrics; 0 where it is not served."""
        return self.metrics.port if self.metrics is not None else 0

    async def stop(self) -> None:
        """Stop serving."""
        if self.metrics is not None:
            await asyncio.to_thread(self.metrics.stop)


def start_pages(
    config: ControllerConfig,
    base: Foundation,
    acting: Acting,
    fleet: Fleet,
    serving: Serving,
    watches: Watches,
    webhooks: Webhooks,
) -> Pages:
    """Serve the pages that are configured. Raises ListenError."""
    ages = EvidenceAges()
    base.runtime.listen(ages.note_event)
    replication = watches.synchrony
    more = (
        ages.metric,
        lambda: webhook_metrics(webhooks.statuses()),
        lambda: role_metrics(is_active=True),
        lambda: synchrony_metrics(replication.newest if replication else None),
    )
    return Pages(_start_metrics(config, base, acting, fleet, serving, more))


def _start_metrics(
    config: ControllerConfig,
    base: Foundation,
    acting: Acting,
    fleet: Fleet,
    serving: Serving,
    more: Sequence[Callable[[], Iterable[Metric]]],
) -> MetricsServer | None:
    """Serve /metrics where that is configured. Raises ListenError."""
    if not config.metrics:
        return None

    def counts() -> Counts:
        return Counts(
            streams=len(fleet.sessions),
            stalls=acting.targets.timers.stalls,
            events=base.runtime.events_taken,
            rejected=base.runtime.events_rejected,
            journal_full=base.journal.full is not None,
            driver_failures=acting.targets.drivers.failed_calls,
            driver_ages_s={
                name: reading.age_s for name, reading in acting.targets.drivers.readings().items()
            },
            unauthenticated=serving.guard.refused if serving.guard else 0,
            now_ns=base.runtime.now_ns(),
        )

    collector = ControllerCollector(
        base.state, counts, acting.targets.vault, asyncio.get_running_loop(), more
    )
    try:
        return MetricsServer(config.metrics, config.tls, collector)
    except OSError as error:
        raise ListenError(
            f"metrics: {config.metrics} cannot be listened on: {error.strerror or error}; "
            "'ss -ltnp' shows who uses the port"
        ) from error
