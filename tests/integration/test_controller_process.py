import asyncio
import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_common.reports import FindingRaised
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import Reported
from everstep_controller.journal.codec import decode_event
from everstep_controller.journal.port import StoredEvent
from everstep_controller.journal.sqlite.journal import SqliteBackend, SqliteJournal
from everstep_controller.replay import replay
from fakes.agent_stream import agent_stream
from fakes.controllers import controller_command, environment, start_controller
from fakes.inherited_signals import ignored, ignoring
from fakes.local_secret import SECRET_FILE, SECRET_LINE
from fakes.ports import reserved_port

pytestmark = pytest.mark.timeout(90)

RECORDS = 600


async def stream_until(port: int, first: int, acknowledged: int) -> tuple[int, int]:
    """Send findings without waiting; return the last one acknowledged and the last one sent."""
    async with agent_stream(port, "node-1") as agent:
        welcome = await agent.hello()
        reached = max(welcome.acknowledged, first - 1)

        async def send() -> None:
            for sequence in range(first, RECORDS + 1):
                await agent.finding(sequence)

        sending = asyncio.create_task(send())
        while reached < acknowledged:
            reached = (await agent.wait_for("ack")).ack.sequence
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        return welcome.acknowledged, reached


def journaled(folder: Path) -> list[int]:
    store = SqliteJournal(folder / "journal.sqlite", read_only=True)
    events = [decode_event(stored.kind, stored.body) for stored in store.events(0)]
    store.close()
    found = [event for event in events if isinstance(event, Reported)]
    return [event.origin.sequence for event in found if isinstance(event.report, FindingRaised)]


def test_a_kill_in_the_middle_of_a_stream_loses_and_repeats_no_record(tmp_path: Path) -> None:
    with reserved_port() as port, contextlib.ExitStack() as ends:
        running = ends.enter_context(start_controller(tmp_path, port))
        reached = 0
        for goal in (RECORDS // 4, RECORDS // 2):
            _, reached = asyncio.run(stream_until(port, reached + 1, goal))
            running.kill()
            assert set(range(1, reached + 1)) <= set(journaled(tmp_path))
            running = ends.enter_context(start_controller(tmp_path, port))
        known, _ = asyncio.run(stream_until(port, reached + 1, RECORDS))
        assert known >= reached
        assert running.terminate() == 0
    assert journaled(tmp_path) == list(range(1, RECORDS + 1))
    assert replay(SqliteBackend(tmp_path / "journal.sqlite"), Core).differences == ()


def test_metrics_are_served_and_a_stop_is_clean(tmp_path: Path) -> None:
    with start_controller(tmp_path) as running:
        address = f"http://127.0.0.1:{running.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            text = answer.read().decode()
        assert "everstep_controller_term 1.0" in text
        assert running.terminate() == 0


def test_a_controller_in_the_background_of_a_script_hears_no_ctrl_c(tmp_path: Path) -> None:
    with ignoring(signal.SIGINT), start_controller(tmp_path) as running:
        assert ignored(running.process.pid) == {signal.SIGINT}
        assert running.terminate() == 0


def test_a_second_controller_on_the_same_journal_is_refused(tmp_path: Path) -> None:
    with start_controller(tmp_path):
        second = subprocess.run(
            controller_command("--config", str(tmp_path / "controller.toml")),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert second.returncode == 1
    assert "another controller" in second.stderr


def test_an_open_address_without_certificates_is_a_configuration_error(tmp_path: Path) -> None:
    file = tmp_path / "controller.toml"
    file.write_text('listen = "0.0.0.0:7433"\nmetrics = "nowhere"\nsamples_window = 0\n')
    refused = subprocess.run(
        controller_command("--config", str(file)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert refused.returncode == 78
    assert "set ca, certificate and key" in refused.stderr
    assert "metrics: expected host:port" in refused.stderr
    assert "samples_window" in refused.stderr


def back_up(folder: Path, copy: Path) -> "subprocess.CompletedProcess[str]":
    """Have the journal of a folder copied, by a process of its own, as an operator does."""
    return subprocess.run(
        controller_command("backup", str(copy), "--config", str(folder / "controller.toml")),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_backup_of_a_running_journal_takes_nothing_from_it(tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    with start_controller(tmp_path) as running:
        asyncio.run(stream_until(running.port, 1, 10))
        told = back_up(tmp_path, copy)
        assert told.returncode == 0, told.stderr
        assert "read again and whole" in told.stdout
        assert (tmp_path / "copy.sqlite.cluster").read_text() == (
            tmp_path / "controller.cluster"
        ).read_text()
        _, reached = asyncio.run(stream_until(running.port, 11, 100))
    assert set(range(1, reached + 1)) <= set(journaled(tmp_path))
    assert sorted(one.name for one in tmp_path.glob("copy*")) == [
        "copy.sqlite",
        "copy.sqlite.cluster",
    ]
    with contextlib.closing(SqliteJournal(copy, read_only=True)) as store:
        store.verify(whole=True)
        assert {one.kind for one in store.events(0)} >= {"ControllerStarted"}


@pytest.mark.parametrize("end", ["wal", "shm", "journal"])
def test_a_backup_is_not_put_beside_the_log_of_another_database(tmp_path: Path, end: str) -> None:
    assert start_controller(tmp_path).terminate() == 0
    log = tmp_path / f"copy.sqlite-{end}"
    log.write_bytes(b"older")
    told = back_up(tmp_path, tmp_path / "copy.sqlite")
    assert told.returncode == 1
    assert f"choose another name, or where no process uses it: rm {log}" in told.stderr
    assert [one.name for one in tmp_path.glob("copy*")] == [log.name]


def test_a_copy_beside_the_log_of_the_journal_before_is_named_and_left_as_it_is(
    tmp_path: Path,
) -> None:
    assert start_controller(tmp_path).terminate() == 0
    assert back_up(tmp_path, tmp_path / "copy.sqlite").returncode == 0
    with start_controller(tmp_path) as running:
        asyncio.run(stream_until(running.port, 1, 10))
    journal = tmp_path / "journal.sqlite"
    log = journal.with_name("journal.sqlite-wal")
    assert log.stat().st_size
    os.replace(tmp_path / "copy.sqlite", journal)
    before, left = journal.read_bytes(), log.read_bytes()
    assert f"Remove the log: rm {log}" in refused_start(tmp_path)
    assert (journal.read_bytes(), log.read_bytes()) == (before, left)


def test_a_damaged_journal_is_not_put_over_the_backup_that_there_is(tmp_path: Path) -> None:
    assert start_controller(tmp_path).terminate() == 0
    copy = tmp_path / "copy.sqlite"
    assert back_up(tmp_path, copy).returncode == 0
    before = copy.read_bytes()
    _garble_an_event(tmp_path / "journal.sqlite")
    told = back_up(tmp_path, copy)
    assert told.returncode == 1
    assert "is no backup: event 2 (ControllerStarted)" in told.stderr
    assert copy.read_bytes() == before
    assert not list(tmp_path.glob("*.unverified"))


def refused_start(folder: Path, metrics: str = "127.0.0.1:0") -> str:
    """Return what a controller says that does not start."""
    file = folder / "controller.toml"
    file.write_text(
        f'listen = "127.0.0.1:0"\nmetrics = "{metrics}"\njournal = "{folder}/journal.sqlite"\n'
        + SECRET_LINE
    )
    ended = subprocess.run(
        controller_command("--config", str(file)),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    return ended.stderr


def test_a_port_of_the_metrics_that_somebody_uses_is_named_and_begins_no_term(
    tmp_path: Path,
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"metrics: {address} cannot be listened on" in refused_start(tmp_path, address)
    store = SqliteJournal(tmp_path / "journal.sqlite", read_only=True)
    assert store.last() == (0, 0)
    store.close()


def _cut_short(journal: Path) -> None:
    with journal.open("r+b") as file:
        file.truncate(journal.stat().st_size // 2)


def _overwrite(journal: Path) -> None:
    journal.write_bytes(b"nothing of a journal" * 1000)


def _garble_an_event(journal: Path) -> None:
    with contextlib.closing(sqlite3.connect(journal)) as db:
        db.execute("DELETE FROM snapshot")
        db.execute("UPDATE event SET body = x'7b' WHERE seq = 2")
        db.commit()


def _name_an_unknown_event(journal: Path) -> None:
    """As a newer version would that knows more events."""
    store = SqliteJournal(journal)
    store.append([StoredEvent(store.last()[0] + 1, store.last()[1], "OfTomorrow", b"{}")], ())
    store.close()


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (_cut_short, "is damaged"),
        (_overwrite, "is damaged"),
        (_garble_an_event, "is damaged: event 2 (ControllerStarted)"),
        (_name_an_unknown_event, "cannot be read"),
    ],
)
def test_a_journal_that_cannot_be_read_is_named_with_what_to_do(
    tmp_path: Path, damage: Callable[[Path], None], why: str
) -> None:
    assert start_controller(tmp_path).terminate() == 0
    damage(tmp_path / "journal.sqlite")
    said = refused_start(tmp_path)
    assert f"{tmp_path}/journal.sqlite {why}" in said
    assert "everstep-controller recover" in said
    assert "Traceback" not in said


def test_replay_of_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    replayed = subprocess.run(
        controller_command("replay", str(tmp_path / "none")),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert replayed.returncode == 1
    assert "no such journal" in replayed.stderr


def test_following_the_events_goes_on_over_a_kill_of_the_controller(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "everstep_cli.main", "events", "--follow", "--json"]
    with reserved_port() as port, contextlib.ExitStack() as ends:
        running = ends.enter_context(start_controller(tmp_path, port))
        with subprocess.Popen(
            [*command, "--controller", f"127.0.0.1:{port}", "--secret-file", str(SECRET_FILE)],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as follower:
            assert follower.stdout is not None
            assert follower.stderr is not None
            seen = [json.loads(follower.stdout.readline())]
            running.kill()
            assert "the controller is away" in follower.stderr.readline()
            running = ends.enter_context(start_controller(tmp_path, port))
            seen.append(json.loads(follower.stdout.readline()))
            assert follower.stderr.readline() == "the controller is back\n"
            follower.terminate()
        assert running.terminate() == 0
    assert [event["id"] for event in seen] == [1, 2]
    assert [event["message"][-6:] for event in seen] == ["term 1", "term 2"]
