"""The controller as a process whose journal is in a real PostgreSQL, which is killed and paused."""

import asyncio
import contextlib
import itertools
import signal
import subprocess
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import grpc
import pytest

from everstep_common.reports import FindingRaised
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import Reported
from everstep_controller.journal.codec import decode_event
from everstep_controller.replay import replay
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller_command, environment, start_controller
from fakes.ports import reserved_port
from fakes.postgres_server import PostgresServer, postgres_server
from integration.journals import postgres_backend

pytestmark = pytest.mark.timeout(180)

RECORDS = 300
_APART_S = 0.005


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


def journaled(server: PostgresServer, database: str) -> list[int]:
    """Return the records of findings that are in the journal, in its order."""
    with closing(postgres_backend(server, database).open_reader()) as reader:
        events = [decode_event(stored.kind, stored.body) for stored in reader.events(0)]
    found = [event for event in events if isinstance(event, Reported)]
    return [event.origin.sequence for event in found if isinstance(event.report, FindingRaised)]


@asynccontextmanager
async def sending(
    port: int, first: int, last: int = RECORDS
) -> AsyncIterator[tuple[AgentStream, int]]:
    """Send findings from one on without waiting; yield what was acknowledged before."""
    async with agent_stream(port, "node-1") as agent:
        welcome = await agent.hello()

        async def send() -> None:
            for sequence in range(max(first, welcome.acknowledged + 1), last + 1):
                await agent.finding(sequence)

        task = asyncio.create_task(send())
        try:
            yield agent, welcome.acknowledged
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def send_until(port: int, first: int, goal: int, last: int = RECORDS) -> int:
    async with sending(port, first, last) as (agent, known):
        reached = max(known, first - 1)
        while reached < goal:
            reached = (await agent.wait_for("ack")).ack.sequence
        return reached


def test_a_kill_of_the_controller_loses_and_repeats_no_record(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    url = server.url(database)
    with reserved_port() as port, contextlib.ExitStack() as ends:
        running = ends.enter_context(start_controller(tmp_path, port, journal=url))
        reached = 0
        for goal in (RECORDS // 4, RECORDS // 2):
            reached = asyncio.run(send_until(port, reached + 1, goal))
            running.kill()
            assert set(range(1, reached + 1)) <= set(journaled(server, database))
            running = ends.enter_context(start_controller(tmp_path, port, journal=url))
        asyncio.run(send_until(port, reached + 1, RECORDS))
        assert running.terminate() == 0
    assert journaled(server, database) == list(range(1, RECORDS + 1))
    assert replay(postgres_backend(server, database), Core).differences == ()


def test_a_kill_of_the_database_under_a_controller_loses_and_repeats_no_record(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    with (
        reserved_port() as port,
        start_controller(tmp_path, port, journal=server.url(database)) as running,
    ):
        reached = 0
        for goal in (RECORDS // 4, RECORDS // 2):
            reached = asyncio.run(resend_until(port, reached + 1, goal))
            server.kill()
            server.start()
        asyncio.run(resend_until(port, reached + 1, RECORDS))
        assert running.process.poll() is None
        assert running.terminate() == 0
    assert journaled(server, database) == list(range(1, RECORDS + 1))
    assert replay(postgres_backend(server, database), Core).differences == ()


async def resend_until(port: int, first: int, goal: int, last: int = RECORDS) -> int:
    """Send on; connect again where new work is refused meanwhile, as agents do."""
    reached = first - 1
    while reached < goal:
        with contextlib.suppress(grpc.aio.AioRpcError, EOFError):
            reached = await send_until(port, reached + 1, goal, last)
    return reached


async def send_into_an_outage(port: int, server: PostgresServer) -> int:
    """Send until the controller refuses more, as its database is gone; return what it has said."""
    async with agent_stream(port, "node-1") as agent:
        reached = (await agent.hello()).acknowledged

        async def send() -> None:
            for sequence in itertools.count(reached + 1):
                await agent.finding(sequence)
                # Each stays open, and all of them are looked at for each.
                await asyncio.sleep(_APART_S)

        task = asyncio.create_task(send())
        try:
            reached = (await agent.wait_for("ack")).ack.sequence
            await asyncio.to_thread(server.kill)
            while True:
                reached = (await agent.wait_for("ack")).ack.sequence
        except (EOFError, grpc.aio.AioRpcError):
            return reached
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def test_what_was_on_its_way_as_the_database_went_is_kept_once_though_it_is_sent_again(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    with start_controller(tmp_path, journal=server.url(database)) as running:
        assert running.process.stderr is not None
        # Its log of so many findings fills a pipe that nobody reads, and then it stands still.
        threading.Thread(target=running.process.stderr.read).start()
        reached = 0
        for outage in range(4):
            last = reached + 10
            reached = asyncio.run(resend_until(running.port, reached + 1, last, last))
            if outage < 3:
                reached = asyncio.run(send_into_an_outage(running.port, server))
                server.start()
        assert running.terminate() == 0
    kept = journaled(server, database)
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) >= reached


def test_a_second_controller_waits_for_nobody_who_lives_and_succeeds_one_that_stands_still(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    url, other = server.url(database), tmp_path / "other"
    other.mkdir()
    with start_controller(tmp_path, journal=url) as first:
        second = subprocess.run(
            controller_command("--config", str(tmp_path / "controller.toml")),
            env=environment(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert second.returncode == 1
        assert "writes this journal, and did so within the last" in second.stderr
        assert "Traceback" not in second.stderr
        first.process.send_signal(signal.SIGSTOP)
        with start_controller(other, journal=url) as successor:
            first.process.send_signal(signal.SIGCONT)
            assert first.process.stderr is not None
            said = first.process.stderr.read()
            assert first.process.wait(60) == 1
            assert "has taken the journal's lease" in said
            assert "Traceback" not in said
            assert successor.terminate() == 0
    assert replay(postgres_backend(server, database), Core).differences == ()


def test_a_database_that_was_restored_ends_the_controller_and_the_next_one_acts_on_nothing(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    url, dump = server.url(database), str(server.folder / "dump")
    with start_controller(tmp_path, journal=url) as running:
        asyncio.run(send_until(running.port, 1, 10))
        server.run("pg_dump", "--format=custom", "--schema=everstep", f"--file={dump}", database)
        asyncio.run(send_until(running.port, 11, 20))
        server.run("pg_restore", "--clean", "--if-exists", f"--dbname={database}", dump)
        assert running.process.stderr is not None
        said = running.process.stderr.read()
        assert running.process.wait(60) == 1
        assert "the database goes back to event" in said
        assert "Start 'everstep-controller recover'" in said
        assert "Traceback" not in said
    with start_controller(tmp_path, journal=url) as successor:
        address = f"http://127.0.0.1:{successor.metrics_port}/metrics"
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert "everstep_controller_halted 1.0" in answer.read().decode()
        assert successor.terminate() == 0


def test_a_failover_to_a_standby_that_is_behind_loses_nothing_that_was_acknowledged(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    with server.standby("n2") as standby:
        hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
        url = server.url(database).replace(f"127.0.0.1:{server.port}", hosts)
        with start_controller(tmp_path, journal=url) as running:
            assert running.process.stderr is not None
            said: list[str] = []
            log = threading.Thread(target=lambda: said.extend(running.process.stderr or ()))
            log.start()
            asyncio.run(send_until(running.port, 1, 10, 10))
            standby.fall_behind()
            reached = asyncio.run(send_until(running.port, 11, 20, 20))
            server.kill()
            standby.promote()
            asyncio.run(resend_until(running.port, reached + 1, 30, 30))
            assert running.process.poll() is None
            running.process.terminate()
            assert running.process.wait(30) == 0
            log.join()
        assert "lacked" in "".join(said)
        assert journaled(standby, database) == list(range(1, 31))
        assert replay(postgres_backend(standby, database), Core).differences == ()


def brought(command: str, folder: Path, file: Path) -> "subprocess.CompletedProcess[str]":
    """Have a journal brought to a file or from one, by a process of its own."""
    return subprocess.run(
        controller_command(command, str(file), "--config", str(folder / "controller.toml")),
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_an_import_leaves_nothing_beside_its_file_and_an_export_takes_the_place_of_none(
    tmp_path: Path, server: PostgresServer
) -> None:
    former, there, file = tmp_path / "former", tmp_path / "there", tmp_path / "brought.sqlite"
    for folder in (former, there):
        folder.mkdir()
    assert start_controller(former).terminate() == 0
    file.write_bytes((former / "journal.sqlite").read_bytes())
    database = server.new_database()
    (there / "controller.cluster").write_text((former / "controller.cluster").read_text())
    (there / "controller.toml").write_text(
        f'journal = "{server.url(database)}"\nstate_folder = "{there}"\nmetrics = ""\n'
    )
    told = brought("import", there, file)
    assert told.returncode == 0, told.stderr
    assert [one.name for one in tmp_path.glob("brought*")] == [file.name]
    held = file.read_bytes()
    refused = brought("export", there, file)
    assert refused.returncode == 1
    assert "is there already, and may be a journal that somebody needs: name another" in (
        refused.stderr
    )
    assert file.read_bytes() == held
    assert f"'mv {file} {file}.old'" in refused.stderr
    file.rename(tmp_path / "old")
    assert brought("export", there, file).returncode == 0
    file.unlink()
    assert "brought.sqlite.cluster is there already" in brought("export", there, file).stderr


def test_an_address_that_is_typed_for_a_replay_is_judged_as_that_of_a_configuration() -> None:
    refused = subprocess.run(
        controller_command("replay", "postgresql://x:swordfish@127.0.0.1/x"),
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 78
    assert "journal_password_file" in refused.stderr
    assert "swordfish" not in refused.stderr


def test_a_controller_whose_database_is_not_there_says_so_in_one_sentence(tmp_path: Path) -> None:
    config = tmp_path / "controller.toml"
    config.write_text(
        f'journal = "postgresql://x@127.0.0.1:1/x"\nmetrics = ""\nlisten = "unix:{tmp_path}/s/c"\n'
        f'state_folder = "{tmp_path}"\nlog_style = "text"\n'
    )
    refused = subprocess.run(
        controller_command("--config", str(config)),
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "cannot start with the journal postgresql://x@127.0.0.1:1/x: " in refused.stderr
    assert "Connection refused" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_password_in_the_configuration_is_refused_and_not_repeated(tmp_path: Path) -> None:
    config = tmp_path / "controller.toml"
    config.write_text('journal = "postgresql://x:swordfish@127.0.0.1/x"\n')
    refused = subprocess.run(
        controller_command("--config", str(config)),
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert refused.returncode == 78
    assert "journal_password_file" in refused.stderr
    assert "swordfish" not in refused.stderr
