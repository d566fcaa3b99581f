"""A real Prometheus scrapes both daemons, and promtool has nothing to say about their pages."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from fakes.waits import wait_until
from integration.test_agent_metrics import metrics_page
from real.daemons import fetch, fleet, free_port, running

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Prometheus is not installed (apt: prometheus)"
    ),
]


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with fleet(tmp_path_factory.mktemp("fleet")) as addresses:
        for address in addresses.values():
            wait_until(lambda address=address: fetch(f"http://{address}/metrics"))  # type: ignore[misc]
        yield addresses


@pytest.mark.parametrize("daemon", ["agent", "controller"])
def test_promtool_finds_nothing_to_improve(targets: dict[str, str], daemon: str) -> None:
    assert _improvements(fetch(f"http://{targets[daemon]}/metrics")) == (0, b"", b"")


def test_promtool_finds_nothing_to_improve_where_an_agent_has_something_of_everything(
    tmp_path: Path,
) -> None:
    assert _improvements(metrics_page(tmp_path / "sys")) == (0, b"", b"")


def _improvements(page: bytes) -> tuple[int, bytes, bytes]:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60, check=False
    )
    return checked.returncode, checked.stdout, checked.stderr


@pytest.mark.parametrize("daemon", ["agent", "controller"])
def test_every_metric_carries_the_name_of_the_product(targets: dict[str, str], daemon: str) -> None:
    page = fetch(f"http://{targets[daemon]}/metrics").decode()
    names = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE ")}
    assert len(names) >= 5
    assert {name for name in names if not name.startswith("everstep_")} == set()


def test_prometheus_scrapes_agent_and_controller(targets: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "prometheus.yml"
    jobs = [
        {"job_name": name, "static_configs": [{"targets": [address]}]}
        for name, address in targets.items()
    ]
    # JSON is YAML.
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
    port = free_port()
    server = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with running(server, tmp_path / "prometheus.log"):
        for job in targets:
            up = wait_until(lambda job=job: _value(port, f'up{{job="{job}"}} == 1'))  # type: ignore[misc]
            assert up == 1
            series = f'count({{job="{job}",__name__=~"everstep_.*"}})'
            assert wait_until(lambda series=series: _value(port, series)) > 5  # type: ignore[misc]


def _value(port: int, query: str) -> float | None:
    answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"))
    result = answer["data"]["result"]
    return float(result[0]["value"][1]) if result else None
