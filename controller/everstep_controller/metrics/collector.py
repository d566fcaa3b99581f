"""Metrics of the controller: fleet, node states and jobs; per-device series are the agents'."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from everstep_common.endings import is_by_user
from everstep_common.reports import Standbys
from everstep_common.version import VERSION
from everstep_controller.core.fleet.incidents import (
    failures_of_job,
    incident_count,
    incidents_of_job,
)
from everstep_controller.core.jobs.unsaved import steps_at_risk
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.model.windows import WindowState
from everstep_controller.core.nodes import budgets, isolation_view, outage
from everstep_controller.core.planned.swaps import slow_parts
from everstep_controller.core.vault.snapshot_table import SnapshotNumbers
from everstep_controller.metrics.snapshot_metrics import snapshot_metrics

# A scrape that the event loop cannot answer in this time fails, and that is the alarm.
_ANSWER_S = 5.0


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of the shell itself, which the core's state has not."""

    streams: int
    stalls: int
    events: int
    rejected: int
    journal_full: bool
    # By the name of the driver.
    driver_failures: Mapping[str, int]
    driver_ages_s: Mapping[str, float]
    # Calls and streams without the secret of this machine.
    unauthenticated: int
    now_ns: int


class JobNumbers(Protocol):
    """Source of a job's snapshot numbers and standbys."""

    def numbers(self, job: str) -> SnapshotNumbers | None:
        """Return what can be said of a job's snapshots in numbers; None for no job."""
        ...

    def standbys(self, job: str) -> Mapping[str, Standbys]:
        """Return what waits on each node to become ranks of a job."""
        ...


class ControllerCollector(Collector):
    """Collector of /metrics: reads the state on the event loop, whichever thread asks."""

    def __init__(
        self,
        state: Callable[[], State],
        counts: Callable[[], Counts],
        snapshots: JobNumbers,
        loop: asyncio.AbstractEventLoop,
        more: Sequence[Callable[[], Iterable[Metric]]] = (),
    ) -> None:
        self._state = state
        self._counts = counts
        self._snapshots = snapshots
        self._loop = loop
        self._more = more

    def collect(self) -> Iterator[Metric]:
        """Yield all series."""

        async def read() -> list[Metric]:
            state, counts = self._state(), self._counts()
            return [
                *fleet_metrics(state, counts),
                *job_metrics(state, counts.now_ns),
                *self._snapshots_and_standbys(state, counts.now_ns),
                *(metric for source in self._more for metric in source()),
            ]

        yield from asyncio.run_coroutine_threadsafe(read(), self._loop).result(_ANSWER_S)

    def _snapshots_and_standbys(self, state: State, now_ns: int) -> Iterator[Metric]:
        running = [job.name for job in state.newest_jobs() if job.state is not JobState.ENDED]
        numbers = (self._snapshots.numbers(name) for name in running)
        yield from snapshot_metrics((one for one in numbers if one is not None), now_ns)
        yield from standby_metrics((name, self._snapshots.standbys(name)) for name in running)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"everstep_controller_{name}", text, value=value)


def fleet_metrics(state: State, counts: Counts) -> Iterator[Metric]:
    """Yield the series of the controller itself, of schedulers, nodes and windows."""
    yield from _controller(state, counts)
    yield from _drivers(state, counts)
    yield from _nodes(state)
    yield from _windows(state)


def _controller(state: State, counts: Counts) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "everstep_controller_build", "Version of the controller.", value={"version": VERSION}
    )
    yield _gauge("term", "Term of this controller; grows with every start.", state.term)
    yield _gauge("halted", "1 while the controller acts on nothing.", bool(state.halted))
    yield _gauge("streams", "Open streams of agents.", counts.streams)
    yield CounterMetricFamily(
        "everstep_controller_stalls",
        "Times that the event loop stood still for more than a second since this start.",
        value=counts.stalls,
    )
    yield _gauge("journal_full", "1 while the journal cannot be written.", counts.journal_full)
    yield _gauge(
        "automation_paused",
        "Nodes and jobs for which automation is paused, and the fleet.",
        len(state.paused),
    )
    held_back = budgets.held_back_count(state)
    yield _gauge(
        "isolations_held_back", "Nodes that are not isolated because of a budget.", held_back
    )
    yield _gauge(
        "isolations_per_hour", "Working nodes isolated in the last hour.", len(state.isolations_ns)
    )
    findings = len(state.findings) + len(state.rejected_records) + bool(held_back)
    findings += state.outage is not None
    yield _gauge(
        "agents_cut_off",
        "Agents that are away together, and told of by one finding: AgentsCutOff, or "
        "ControllerCutOff.",
        outage.cut_off_count(state),
    )
    yield _gauge("findings", "Open findings of the controller about itself.", findings)
    yield CounterMetricFamily(
        "everstep_controller_events", "Events taken since this start.", value=counts.events
    )
    yield CounterMetricFamily(
        "everstep_controller_events_rejected",
        "Events that the core could not take since this start.",
        value=counts.rejected,
    )
    yield CounterMetricFamily(
        "everstep_controller_unauthenticated_calls",
        "Calls refused since this start because they came without the secret of this machine.",
        value=counts.unauthenticated,
    )


def _drivers(state: State, counts: Counts) -> Iterator[Metric]:
    failures = CounterMetricFamily(
        "everstep_driver_failures",
        "Calls of an isolation driver since this start that failed, in part or as a whole.",
        labels=["driver"],
    )
    for driver, count in counts.driver_failures.items():
        failures.add_metric([driver], count)
    yield failures
    yield GaugeMetricFamily(
        "everstep_drivers_paused",
        "1 while no scheduler is told anything, by an operator's order.",
        value=bool(state.drivers_paused),
    )
    age = GaugeMetricFamily(
        "everstep_driver_reading_age_seconds",
        "Age of what is known of a scheduler; missing before it was read first.",
        labels=["driver"],
    )
    for driver, age_s in counts.driver_ages_s.items():
        age.add_metric([driver], age_s)
    yield age
    yield from _driver_lag(state, counts.now_ns)


def _driver_lag(state: State, now_ns: int) -> Iterator[Metric]:
    lag = GaugeMetricFamily(
        "everstep_driver_lag_seconds",
        "How long the oldest node waits that is not as it is wanted at a scheduler; 0 for none.",
        labels=["driver"],
    )
    waiting = GaugeMetricFamily(
        "everstep_driver_waiting_nodes",
        "Nodes that are not as they are wanted at a scheduler.",
        labels=["driver"],
    )
    for name, record in state.drivers.items():
        since_ns = isolation_view.waiting_since_ns(state, record)
        lag.add_metric([name], (now_ns - since_ns) / 1e9 if since_ns else 0)
        waiting.add_metric([name], len(isolation_view.waiting_of(state, record)))
    yield from (lag, waiting)


def _nodes(state: State) -> Iterator[Metric]:
    fleet = GaugeMetricFamily("everstep_nodes", "Nodes by state.", labels=["state"])
    numbers = Counter(node.state for node in state.nodes.values())
    for each in NodeState:
        fleet.add_metric([each.value], numbers[each])
    yield fleet
    states = GaugeMetricFamily(
        "everstep_node_state", "1 for the state that a node is in.", labels=["node", "state"]
    )
    claims = GaugeMetricFamily(
        "everstep_node_claim", "1 for each claim on a node.", labels=["node", "owner"]
    )
    findings = GaugeMetricFamily(
        "everstep_node_findings", "Open findings of a node.", labels=["node"]
    )
    connected = GaugeMetricFamily(
        "everstep_node_connected", "1 while the stream of a node's agent is open.", labels=["node"]
    )
    cut_off = GaugeMetricFamily(
        "everstep_node_cut_off",
        "1 while a node's agent is away with others, of which one finding tells.",
        labels=["node"],
    )
    for node in state.nodes.values():
        states.add_metric([node.name, node.state.value], 1)
        connected.add_metric([node.name], node.liveness.connected)
        if node.liveness.silence.held or outage.is_among(state, node.name):
            cut_off.add_metric([node.name], 1)
        findings.add_metric([node.name], len(node.health.findings))
        for claim in node.isolation.claims:
            claims.add_metric([node.name, claim.owner], 1)
    yield from (states, claims, findings, connected, cut_off)


def _windows(state: State) -> Iterator[Metric]:
    windows = GaugeMetricFamily(
        "everstep_maintenance_windows", "Maintenance windows by state.", labels=["state"]
    )
    numbers = Counter(window.state for window in state.windows.values())
    for each in (WindowState.PLANNED, WindowState.DRAINING, WindowState.BEGUN):
        windows.add_metric([each.value], numbers[each])
    yield windows


def job_metrics(state: State, now_ns: int) -> Iterator[Metric]:
    """Yield the series of all jobs that have not ended, by their names: a restart goes on in one.

    The id of a job is in a series of its own, to be joined with the others.
    """
    running, others = _with_series(state)
    yield _gauge(
        "jobs_without_series",
        f"Jobs of users who have more than {SERIES_PER_USER_MAX}: these have no series.",
        others,
    )
    ids = GaugeMetricFamily(
        "everstep_job_info", "1 for the id of the job that has a name now.", labels=["job", "id"]
    )
    for job in running:
        ids.add_metric([job.name, job.id], 1)
    yield ids
    states = GaugeMetricFamily(
        "everstep_job_state", "1 for the state that a job is in.", labels=["job", "state"]
    )
    for job in running:
        states.add_metric([job.name, job.state.value], 1)
    yield states
    for name, text, value in _JOB_GAUGES:
        family = GaugeMetricFamily(f"everstep_job_{name}", text, labels=["job"])
        for job in running:
            family.add_metric([job.name], value(job))
        yield family
    incidents = CounterMetricFamily(
        "everstep_job_incidents", "Incidents of a job, planned work among them.", labels=["job"]
    )
    failures = CounterMetricFamily(
        "everstep_job_failures", "Incidents of a job that nobody planned.", labels=["job"]
    )
    skipped = CounterMetricFamily(
        "everstep_job_snapshots_skipped",
        "Snapshots that were skipped because no slot was free, since the generation began.",
        labels=["job"],
    )
    restarts = CounterMetricFamily(
        "everstep_job_restarts", "Restarts since the job began.", labels=["job"]
    )
    time_s = GaugeMetricFamily(
        "everstep_job_time_seconds", "Where a job's time went.", labels=["job", "category"]
    )
    for job in running:
        incidents.add_metric([job.name], incident_count(job))
        failures.add_metric([job.name], failures_of_job(state, job))
        skipped.add_metric([job.name], job.snapshots_skipped)
        restarts.add_metric([job.name], job.recovery.restarts)
        for category, amount in job.ledger.totals(now_ns).items():
            time_s.add_metric([job.name, category], amount / 1e9)
    yield from (incidents, failures, skipped, restarts, time_s)
    yield _incident_costs(state, running, now_ns)
    yield _failed_jobs(state, now_ns)


def _incident_costs(state: State, jobs: Iterable[JobRecord], now_ns: int) -> Metric:
    """Return what incidents have cost by cause, of which there are twelve."""
    family = GaugeMetricFamily(
        "everstep_job_incident_node_seconds",
        "Node-seconds that the incidents of a job have cost, by cause; of those that are kept, 256 "
        "of a job.",
        labels=["job", "cause"],
    )
    for job in jobs:
        by_cause: Counter[str] = Counter()
        spent = job.ledger.node_ns_by_incident(now_ns)
        for incident in incidents_of_job(state, job):
            by_cause[incident.cause.value] += spent.get(incident.id, 0)
        for cause, amount in sorted(by_cause.items()):
            family.add_metric([job.name, cause], amount / 1e9)
    return family


def _failed_jobs(state: State, now_ns: int) -> Metric:
    """Return the newest jobs of their names that have failed lately: their other series end."""
    family = GaugeMetricFamily(
        "everstep_job_failed",
        "1 for an hour after a job has failed, unless somebody meant it to end.",
        labels=["job"],
    )
    of_user = Counter[int]()
    for job in state.newest_jobs():
        lately = job.state is JobState.ENDED and now_ns - job.since_ns < _FAILED_SHOWN_NS
        if not lately or job.ending.succeeded or is_by_user(job.ending.wanted):
            continue
        of_user[job.spec.uid] += 1
        if of_user[job.spec.uid] <= SERIES_PER_USER_MAX:
            family.add_metric([job.name], 1)
    return family


_FAILED_SHOWN_NS = 3_600_000_000_000
# So many jobs of one user have series of their own, the first ones: names are the user's to choose,
# and each is a hundred series that Prometheus keeps.
SERIES_PER_USER_MAX = 256


def _with_series(state: State) -> tuple[list[JobRecord], int]:
    """Return the jobs that are shown one by one, and how many others there are."""
    running = [job for job in state.newest_jobs() if job.state is not JobState.ENDED]
    shown, of_user = [], Counter[int]()
    for job in sorted(running, key=lambda one: one.created_ns):
        of_user[job.spec.uid] += 1
        if of_user[job.spec.uid] <= SERIES_PER_USER_MAX:
            shown.append(job)
    return shown, len(running) - len(shown)


def standby_metrics(jobs: Iterable[tuple[str, Mapping[str, Standbys]]]) -> Iterator[Metric]:
    """Yield all series, of jobs and what waits on each of their nodes."""
    count = GaugeMetricFamily(
        "everstep_job_standbys",
        "Warm standbys of a job on all nodes: ready, or being made.",
        labels=["job", "state"],
    )
    memory = GaugeMetricFamily(
        "everstep_job_standby_memory_bytes",
        "Memory that the warm standbys of a job take on all nodes.",
        labels=["job"],
    )
    without = GaugeMetricFamily(
        "everstep_job_nodes_without_standbys",
        "Nodes of a job whose warm standbys were given up: too large, or one died.",
        labels=["job"],
    )
    for job, nodes in jobs:
        each = nodes.values()
        count.add_metric([job, "ready"], sum(one.ready for one in each))
        count.add_metric([job, "making"], sum(one.making for one in each))
        memory.add_metric([job], sum(one.memory_bytes for one in each))
        without.add_metric([job], sum(bool(one.ended) for one in each))
    yield from (count, memory, without)


_JOB_GAUGES: tuple[tuple[str, str, Callable[[JobRecord], float]], ...] = (
    ("generation", "Generation of a job.", lambda job: job.generation.number),
    (
        "slow_parts",
        "Ranks and places of a job that make the others wait.",
        lambda job: len(slow_parts(job)),
    ),
    (
        "slow_ratio",
        "How many times longer the slowest of them worked than its peers when it was judged; 1 "
        "where nobody is slow.",
        lambda job: max((part.factor for part in slow_parts(job)), default=1.0),
    ),
    (
        "completed_step",
        "Newest step that all ranks completed; -1 before the first.",
        lambda job: _or(job.lineage.completed_step),
    ),
    (
        "recoverable_step",
        "Newest step that is recoverable without any one node; -1 without one.",
        lambda job: _or(job.lineage.recoverable_step),
    ),
    (
        "unsaved_steps",
        "Steps that a failure would cost now, for none after the recoverable one has become so for"
        " core.unsaved_max_s; 0 while newer ones do.",
        steps_at_risk,
    ),
    ("nodes", "Nodes that have ranks.", lambda job: len(job.generation.members)),
)


def _or(step: int | None) -> int:
    return -1 if step is None else step
