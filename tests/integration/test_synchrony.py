"""What a real server says of its standbys, and what a controller makes of it."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from everstep_controller.journal.postgres.connection import Place
from everstep_controller.journal.postgres.reader import PostgresReader
from everstep_controller.journal.synchrony import Replication
from fakes.controllers import ControllerProcess, environment, start_controller
from fakes.local_secret import SECRET_FILE
from fakes.postgres_server import PostgresServer, postgres_server
from fakes.waits import wait_until

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def told(url: str) -> Replication:
    with closing(PostgresReader(Place(url))) as reader:
        return reader.replication()


def test_any_user_is_told_whether_commits_are_synchronous_and_more_with_one_grant(
    server: PostgresServer,
) -> None:
    server.execute("create role plain login")
    url = server.url("postgres").replace("postgres@", "plain@")
    assert told(url) == Replication(f"127.0.0.1:{server.port}", "", "on")
    with server.standby("n2"):
        server.setting("synchronous_standby_names", "n2")
        seen = told(url)
        assert seen.is_synchronous
        assert [(one.name, one.sync_state, one.lag_bytes) for one in seen.standbys] == [
            ("n2", "", None)
        ]
        server.execute("grant pg_read_all_stats to plain")
        (standby,) = wait_until(
            lambda: [one for one in told(url).standbys if one.state == "streaming"]
        )
        assert (standby.name, standby.sync_state) == ("n2", "sync")
        assert standby.lag_bytes is not None
        server.execute("alter role plain set synchronous_commit = local")
        assert not told(url).is_synchronous


def metrics(running: ControllerProcess) -> str:
    address = f"http://127.0.0.1:{running.metrics_port}/metrics"
    with urllib.request.urlopen(address, timeout=30) as answer:
        return str(answer.read().decode())


def findings(running: ControllerProcess) -> str:
    """Return the controller's own findings of synchrony, as the command line shows them."""
    there = ["--controller", f"127.0.0.1:{running.port}", "--secret-file", str(SECRET_FILE)]
    asked = subprocess.run(
        [sys.executable, "-m", "everstep_cli.main", "findings", *there],
        env=environment() | {"COLUMNS": "300"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert asked.stdout or not asked.stderr, asked.stderr
    return asked.stdout if "JournalUnreplicated" in asked.stdout else ""


def test_a_standby_that_is_given_up_is_a_finding_until_it_is_back_and_after_a_restart(
    tmp_path: Path, server: PostgresServer
) -> None:
    url = server.url(server.new_database())
    with server.standby("n2"):
        server.setting("synchronous_standby_names", "n2")
        with start_controller(tmp_path, journal=url) as running:
            wait_until(lambda: "journal_synchronous 1.0" in metrics(running))
            server.setting("synchronous_standby_names", "")
            said = wait_until(lambda: findings(running), 60)
            assert "commits of the journal are on one server alone" in said
            assert "standbys: n2 (async)" in said
            assert 'everstep_controller_journal_standbys{sync_state="async"} 1.0' in (
                metrics(running)
            )
            assert running.terminate() == 0
        with start_controller(tmp_path, journal=url) as running:
            wait_until(lambda: findings(running), 60)
            server.setting("synchronous_standby_names", "n2")
            wait_until(lambda: not findings(running), 60)
            assert running.terminate() == 0
