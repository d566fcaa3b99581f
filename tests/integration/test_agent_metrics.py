"""The metrics page over real HTTP, and what the agent must not import."""

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading, NvlinkReading
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.jobs.metrics import JobsMetrics
from everstep_agent.metrics.collector import (
    AgentCounts,
    MetricSources,
    NodeCollector,
    prometheus_text,
)
from everstep_agent.metrics.server import MetricsServer
from everstep_agent.persistence.outbox import OutboxCounts
from everstep_agent.probes.links.infiniband import InfinibandProbe
from everstep_agent.probes.links.network import NetworkProbe
from everstep_agent.probes.machine.host import HostProbe
from everstep_agent.probes.machine.storage import StorageProbe
from everstep_agent.probes.own_cost import AgentCost
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, Severity
from fakes.sysfs import FakeNode

_ROOT = Path(__file__).resolve().parents[2]


def _sources(sysfs: Path) -> MetricSources:
    network, infiniband = NetworkProbe("/sys"), InfinibandProbe(str(FakeNode(sysfs).root))
    links = (*network.read(), *infiniband.read())
    gpu = GpuReading(
        index=0,
        uuid="GPU-1",
        name="H100",
        pci="0000:3b:00.0",
        temperature_c=40.0,
        ecc_corrected=3,
        clock_reasons=0x40,
        nvlinks=(NvlinkReading(link=3, active=True, replays=7),),
    )
    view = NodeView(
        host=HostProbe().read(),
        disks=StorageProbe(Path("/proc"), Path("/sys")).read().disks,
        links=links,
        link_statistics=network.read_counters(),
        port_counters=infiniband.read_counters(),
        gpus=GpusReading(driver="570", gpus=(gpu,)),
        own_cost=AgentCost(processes=2, cpu_s=1.5, private_bytes=1 << 24),
    )
    finding = Finding(component="c", condition="XidFatal", severity=Severity.FATAL, message="m")
    counts = AgentCounts(
        connected=True,
        streams=1,
        outbox=OutboxCounts(1, 2, 3),
        orders_refused=0,
        gpu_probe_replaced=0,
        xids={79: 1},
        connections_with_descriptors={1000: 2},
        refusals={(65534, "connection_rate"): 7},
        log_lines_dropped=3,
        sockets_closing=0,
    )
    jobs = JobsMetrics(**{spec.name: 1 for spec in dataclasses.fields(JobsMetrics)})
    open_findings = (BookEntry(finding, Stamp("boot", 1, 2)),)
    return MetricSources(view, lambda: counts, lambda: open_findings, lambda: jobs)


def metrics_page(sysfs: Path) -> bytes:
    """Return the page of an agent that has something of everything."""
    return prometheus_text(NodeCollector(_sources(sysfs)).collect())


def test_the_page_tells_findings_gpus_links_and_xids(tmp_path: Path) -> None:
    page = metrics_page(tmp_path / "sys").decode()
    assert 'everstep_node_xid_errors_total{xid="79"} 1.0' in page
    assert 'everstep_agent_connections_with_descriptors_total{user="1000"} 2.0' in page
    labels = 'component="c",condition="XidFatal",injected="false",severity="fatal"'
    assert f"everstep_node_finding_open{{{labels}}} 1.0" in page
    assert "everstep_node_gpu_temperature_celsius" in page
    labels = 'gpu="0",kind="corrected",pci="0000:3b:00.0",scope="volatile",uuid="GPU-1"'
    assert f"everstep_node_gpu_ecc_errors_total{{{labels}}} 3.0" in page
    assert 'everstep_node_infiniband_symbol_error_total{link="mlx5_7/1"} 0.0' in page
    assert 'everstep_node_link_received_bytes_total{link="' in page


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("GET /metrics HTTP/1.1", b"200"),
        ("GET /other HTTP/1.1", b"404"),
        ("POST /metrics HTTP/1.1", b"405"),
    ],
)
def test_the_server_answers_get_metrics_only(request_line: str, status: bytes) -> None:
    async def scenario() -> None:
        server = MetricsServer(lambda: b"page\n")
        port = await server.open("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"{request_line}\r\nHost: x\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        server.close()
        assert answer.split(b" ")[1] == status

    asyncio.run(scenario())


def test_the_agent_imports_nothing_heavy() -> None:
    code = (
        "import everstep_agent.daemon, everstep_agent.metrics.collector, sys; print(*sys.modules)"
    )
    paths = os.pathsep.join(str(_ROOT / part) for part in ("agent", "common", "proto"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    heavy = {"numpy", "torch", "rich", "click", "pynvml", "cryptography", "msgspec"}
    assert not heavy & set(done.stdout.split())
