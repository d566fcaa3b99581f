"""What /metrics tells of the warm standbys of jobs; what each node has, its agent's page tells."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric

from everstep_controller.core.vault.messages import Standbys


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
