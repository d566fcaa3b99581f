"""Every query of the boards finds something in a real Prometheus that scrapes a real fleet."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from boards.files import BOARDS, FOLDER
from boards.panels import Query
from fakes.waits import wait_until
from integration.real_fleet import TRAINING, RealFleet, running_fleet
from real.daemons import fetch, free_port, running
from real.promtool import promtool

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        shutil.which("prometheus") is None, reason="Prometheus is not installed (apt: prometheus)"
    ),
]
RULES = FOLDER.parents[1] / "prometheus"
_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus.\n"
# What this machine has not, or what the fleet of this test does not do.
_NONE_HERE = re.compile(r"everstep_node_(gpu|mount|link)_|everstep_webhook_")
_NODES = ("node-1", "node-2", "node-3")


def _asked(query: Query) -> str:
    """Return a query as Grafana asks it, of the time since the test began."""
    expr = query.expr.replace("$__range", "1h").replace(":5m]", ":1s]")
    return expr.replace("$job", "train").replace("$node", "node-3").replace("$price", "1")


_QUERIES = sorted(
    {_asked(query) for board in BOARDS for p in board.panels() for query in p.queries}
)


def test_promtool_takes_each_query_as_a_rule(tmp_path: Path) -> None:
    rules = [{"record": f"board:{n}", "expr": one} for n, one in enumerate(_QUERIES)]
    path = tmp_path / "rules.yml"
    # JSON is YAML.
    path.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    assert promtool("check", "rules", str(path)) == (0, f"{len(rules)} rules found")


def test_promtool_takes_the_recording_rules() -> None:
    code, said = promtool("check", "rules", str(RULES / "recording-rules.yml"))
    assert code == 0, said


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of a Prometheus; the job that it has seen has failed once and trains."""
    folder = tmp_path_factory.mktemp("boards")
    ports = {name: free_port() for name in (*_NODES, "controller")}
    program = Path(__file__).parents[1] / "integration" / "isolation_program.py"
    with running_fleet(
        *_NODES, metrics_ports=ports, core_lines=(_driver(program, folder / "site.json"),)
    ) as fleet:
        fleet.launcher_options = ("--persist", str(folder / "stored"))
        port = free_port()
        with running(_server(folder, port, ports), folder / "prometheus.log"):
            _fail_once(fleet, port)
            _fall_off(fleet)
            wait_until(lambda: _values(port, "everstep:job_mtbf:seconds"), 120)
            wait_until(lambda: _values(port, "everstep_job_stored_step"), 120)
            yield port


def _driver(program: Path, site: Path) -> str:
    argv = json.dumps([sys.executable, str(program), str(site), "well"])
    return f"[drivers.command]\nargv = {argv}\n[drivers]\nread_interval_s = 2.0"


def _server(folder: Path, port: int, ports: dict[str, int]) -> list[str]:
    """Return the command of a Prometheus that looks each second, at the rules too."""
    recording = (RULES / "recording-rules.yml").read_text(encoding="utf-8")
    (folder / "rules.yml").write_text(recording.replace("interval: 30s", "interval: 1s"))
    targets = [
        {"targets": [f"127.0.0.1:{number}"], "labels": {"instance": f"{name}:7435"}}
        for name, number in ports.items()
    ]
    config = {
        "global": {"scrape_interval": "1s"},
        "rule_files": [str(folder / "rules.yml")],
        "scrape_configs": [
            {"job_name": "everstep", "honor_labels": True, "static_configs": targets}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    return [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/tsdb",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def _fail_once(fleet: RealFleet, port: int) -> None:
    """Train on two nodes, kill a rank once Prometheus has seen the job well, and train on."""
    script = [str(TRAINING), "--steps", "100000", "--step-seconds-min", "0.05"]
    fleet.launch_script(script, nodes="2")
    fleet.until("training", 120, lambda: fleet.job().state == "running" and fleet.step() > 20)
    wait_until(lambda: _values(port, "everstep_job_failures_total == 0"), 60)
    rank = next(filter(None, map(fleet.rank, _NODES)))
    os.kill(rank.pid, signal.SIGKILL)
    again = fleet.job().generation + 1
    fleet.until("a restart", 120, lambda: _trains(fleet, again))


def _trains(fleet: RealFleet, generation: int) -> bool:
    job = fleet.job()
    return job.state == "running" and job.generation >= generation


def _fall_off(fleet: RealFleet) -> None:
    """Have a GPU of the spare fall off its bus, so that automation withholds the node."""
    with (fleet.folder / "node-3" / "kernel.log").open("a") as log:
        log.write(_XID)
    fleet.until("a claim", 60, lambda: bool(fleet.detail("node-3").summary.claims))


def test_every_query_finds_something(prometheus: int) -> None:
    asked = [query for query in _QUERIES if not _NONE_HERE.search(query)]
    empty: list[str] = []

    def all_found() -> bool:
        empty[:] = [query for query in asked if not _values(prometheus, query)]
        return not empty

    with contextlib.suppress(AssertionError):
        wait_until(all_found, 60)
    assert empty == []
    assert len(asked) >= 75


def _values(port: int, query: str) -> list[object]:
    """Return what a query finds; raises AssertionError where Prometheus refuses it."""
    answer = json.loads(fetch(f"http://127.0.0.1:{port}/api/v1/query?query={quote(query)}"))
    assert answer["status"] == "success"
    return list(answer["data"]["result"])


_LISTED = re.compile(r"^\| `(everstep_\w+)`", re.MULTILINE)
_PARTS = re.compile(r"_(bucket|sum|count|created)$")


def test_every_series_that_is_scraped_is_in_the_list_of_metrics(prometheus: int) -> None:
    page = (FOLDER.parents[2] / "docs/metrics.md").read_text(encoding="utf-8")
    # What is called NAME there has the name of the kernel's counter.
    listed = {one.replace("NAME", r"\w+") for one in _LISTED.findall(page)}
    pattern = re.compile("|".join(sorted(listed)))
    answer = json.loads(fetch(f"http://127.0.0.1:{prometheus}/api/v1/label/__name__/values"))
    found = {_PARTS.sub("", one) for one in answer["data"] if one.startswith("everstep_")}
    assert len(found) > 100
    assert [one for one in sorted(found) if not pattern.fullmatch(one)] == []
