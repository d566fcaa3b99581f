"""A standby beside a controller, as processes, with a journal in a real PostgreSQL."""

import asyncio
import contextlib
import itertools
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from everstep_common.reports import FindingRaised
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import ControllerStarted, Reported
from everstep_controller.journal.codec import decode_event
from everstep_controller.journal.lease import GONE_UNCONNECTED_NS, LOOK_S
from everstep_controller.journal.postgres.journal import PostgresBackend
from everstep_controller.replay import replay
from everstep_proto.controllers import BEHIND_KEY, named_active
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from fakes.agent_stream import agent_stream
from fakes.controllers import ControllerProcess, environment, start_controller
from fakes.local_secret import SECRET_FILE, SECRET_LINE, shown
from fakes.ports import reserved_port
from fakes.postgres_server import PostgresServer, postgres_server
from fakes.receiver import GOOD, answer, receiver, say
from fakes.waits import PATIENCE_S, crowding, wait_until
from integration.journals import elsewhere, postgres_backend

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@dataclass
class Pair:
    """Two machines with the same configuration, on loopback."""

    folder: Path
    url: str
    ports: tuple[int, ...]
    # More of the configuration of both.
    tables: str = ""

    @property
    def database(self) -> str:
        """Return the name of their database."""
        return self.url.rsplit("/", 1)[1]

    def start(self, number: int) -> ControllerProcess:
        """Start one of them."""
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        port = self.ports[number]
        trust = f'role = "standby"\naddress = "127.0.0.1:{port}"\n'
        own = SECRET_LINE + trust
        return start_controller(folder, port, trust=own, journal=self.url, tables=self.tables)


@contextmanager
def pair(server: PostgresServer, folder: Path) -> Iterator[Pair]:
    database = server.new_database()
    with reserved_port() as first, reserved_port() as second:
        yield Pair(folder, server.url(database), (first, second))


def pairs(call: object) -> list[tuple[str, str | bytes]]:
    """Return the trailing metadata of a call that has ended, or of its error."""
    assert isinstance(call, grpc.Call)
    return list(call.trailing_metadata() or ())


def ask(port: int, name: str, request: object) -> tuple[object, str | None, float]:
    """Make an admin call; return the answer, what its metadata tells, and how old it is."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = getattr(admin_pb2_grpc.AdminStub(channel), name)
        answer, made = call.with_call(request, timeout=PATIENCE_S, metadata=shown())
        told = pairs(made)
        return answer, named_active(told), float(dict(told).get(BEHIND_KEY, "-1"))


def refusal(port: int, name: str, request: object) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as refused:
        ask(port, name, request)
    return refused.value


def pause(port: int, reason: str) -> None:
    ask(port, "Pause", admin_pb2.PauseRequest(reason=reason))


def controllers(port: int) -> list[admin_pb2.ControllerLine]:
    reply, _, _ = ask(port, "ListControllers", admin_pb2.ListControllersRequest())
    assert isinstance(reply, admin_pb2.ListControllersReply)
    return list(reply.controllers)


def is_active(port: int) -> bool:
    with contextlib.suppress(grpc.RpcError):
        return any(one.active and one.answers for one in controllers(port))
    return False


def is_paused(port: int) -> bool:
    reply, _, _ = ask(port, "GetController", admin_pb2.GetControllerRequest())
    assert isinstance(reply, admin_pb2.ControllerDetail)
    return bool(reply.paused)


def metric(running: ControllerProcess, name: str) -> float:
    address = f"http://127.0.0.1:{running.metrics_port}/metrics"
    with urllib.request.urlopen(address, timeout=30) as answer:
        text = answer.read().decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(f"{name} ")))


def journaled(server: PostgresServer, url: str) -> tuple[list[int], int]:
    """Return the findings' sequences in the journal's order, and how many starts are in it."""
    database = url.rsplit("/", 1)[1]
    with closing(postgres_backend(server, database).open_reader()) as reader:
        events = [decode_event(stored.kind, stored.body) for stored in reader.events(0)]
    told = [one for one in events if isinstance(one, Reported)]
    found = [one.origin.sequence for one in told if isinstance(one.report, FindingRaised)]
    assert replay(postgres_backend(server, database), Core).differences == ()
    return found, sum(isinstance(one, ControllerStarted) for one in events)


async def send(port: int, first: int, last: int) -> None:
    """Send findings, and wait until all are acknowledged."""
    async with agent_stream(port, "node-1") as agent:
        await agent.hello()
        for sequence in range(first, last + 1):
            await agent.finding(sequence)
        reached = 0
        while reached < last:
            reached = (await agent.wait_for("ack")).ack.sequence


def test_a_standby_answers_what_the_journal_says_and_sends_orders_to_the_active_one(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two, two.start(0) as active, two.start(1) as standby:
        pause(active.port, "a look at the standby")
        wait_until(lambda: is_paused(standby.port))
        lines = controllers(standby.port)
        assert [(one.active, one.answers) for one in lines] == [(True, False), (False, True)]
        assert lines[0].address == f"127.0.0.1:{active.port}"
        _, told, behind_s = ask(standby.port, "ListNodes", admin_pb2.ListNodesRequest())
        assert told == f"127.0.0.1:{active.port}"
        assert 0 <= behind_s < PATIENCE_S * crowding()
        refused = refusal(standby.port, "Resume", admin_pb2.ResumeRequest())
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert f"the active one is 127.0.0.1:{active.port}" in str(refused.details())
        assert named_active(pairs(refused)) is not None
        with pytest.raises((EOFError, grpc.aio.AioRpcError)):
            asyncio.run(send(standby.port, 1, 1))
        assert metric(active, "everstep_controller_active") == 1
        assert metric(standby, "everstep_controller_active") == 0
        assert metric(standby, "everstep_controller_lag_events") == 0
        assert standby.terminate() == 0
        assert len(controllers(active.port)) == 1


async def asked_for_streams(port: int, times: int) -> "Counter[tuple[grpc.StatusCode, bool]]":
    """Ask for streams at once, as a fleet does; return how each was refused, and who was named."""
    found: Counter[tuple[grpc.StatusCode, bool]] = Counter()

    async def ask(channel: grpc.aio.Channel) -> None:
        call = fleet_pb2_grpc.FleetStub(channel).Connect(metadata=shown())
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            await call.write(fleet_pb2.AgentMessage(hello=fleet_pb2.Hello(node="node-1")))
            await call.read()
        told = named_active(list(await call.trailing_metadata() or ()))
        found[await call.code(), told is not None] += 1

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await asyncio.gather(*(ask(channel) for _ in range(times)))
    return found


def test_each_agent_that_asks_a_standby_reads_that_it_is_one(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two, two.start(0), two.start(1) as standby:
        found = asyncio.run(asked_for_streams(standby.port, 300))
        assert found == {(grpc.StatusCode.UNAVAILABLE, True): 300}


def test_of_two_that_find_no_journal_one_makes_it_and_the_other_looks_again(
    server: PostgresServer,
) -> None:
    backend = postgres_backend(server, server.new_database())
    with backend.standing_by() as first, elsewhere(backend).standing_by() as second:
        assert first.look("").is_gone
        assert second.look("").is_gone
        assert first.take("")
        assert not second.take("")
        assert not second.look("").is_gone


def test_a_killed_controller_is_succeeded_with_all_that_it_had_acknowledged(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two, two.start(0) as active, contextlib.ExitStack() as ends:
        standby = ends.enter_context(two.start(1))
        asyncio.run(send(active.port, 1, 50))
        active.kill()
        wait_until(lambda: is_active(standby.port))
        asyncio.run(send(standby.port, 51, 100))
        # The first one comes back, stands by, and succeeds in its turn.
        first = ends.enter_context(two.start(0))
        asyncio.run(send(standby.port, 101, 150))
        standby.kill()
        wait_until(lambda: is_active(first.port))
        asyncio.run(send(first.port, 151, 200))
        assert first.terminate() == 0
        assert journaled(server, two.url) == (list(range(1, 201)), 3)


def test_one_that_loses_the_journal_while_it_starts_ends_with_a_sentence(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two:
        with two.start(0) as active:
            assert active.terminate() == 0
        server.execute(
            "create function everstep.lose() returns trigger language plpgsql as "
            "$$ begin update everstep.lease set holder = ''; return null; end $$; "
            "create trigger lose after update of term on everstep.lease "
            "for each statement execute function everstep.lose()",
            database=two.database,
        )
        with pytest.raises(AssertionError, match="somebody has changed the row of the journal's"):
            two.start(0)


def test_one_that_stood_still_wakes_ends_and_has_written_nothing(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two, two.start(0) as active, two.start(1) as standby:
        asyncio.run(send(active.port, 1, 10))
        active.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_active(standby.port))
        asyncio.run(send(standby.port, 11, 20))
        active.process.send_signal(signal.SIGCONT)
        assert active.process.stderr is not None
        said = active.process.stderr.read()
        assert active.process.wait(60) == 1
        assert "has taken the journal's lease" in said
        assert "Traceback" not in said
        assert standby.terminate() == 0
        assert journaled(server, two.url) == (list(range(1, 21)), 2)


def test_what_one_had_not_recorded_before_the_other_began_is_recorded_by_that(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two, two.start(0) as active:
        asyncio.run(send(active.port, 1, 20))
        active.process.send_signal(signal.SIGSTOP)
        database = two.url.rsplit("/", 1)[1]
        # As where it stands still, or dies, between a commit and the next.
        server.execute(
            "delete from everstep.decision where seq > (select max(seq) - 10 from everstep.event)",
            database=database,
        )
        with two.start(1) as standby:
            wait_until(lambda: is_active(standby.port))
            active.kill()
            assert standby.terminate() == 0
        assert journaled(server, two.url) == (list(range(1, 21)), 2)


async def handed_over(port: int, order: admin_pb2.HandOverRequest) -> str | None:
    """Order it while an agent is connected; return what that agent is told of the successor."""
    async with agent_stream(port, "node-1") as agent:
        await agent.hello()
        for sequence in range(1, 11):
            await agent.finding(sequence)
        while (await agent.wait_for("ack")).ack.sequence < 10:
            pass
        reply, _, _ = await asyncio.to_thread(ask, port, "HandOver", order)
        assert isinstance(reply, admin_pb2.HandOverReply)
        with pytest.raises((EOFError, grpc.aio.AioRpcError)):
            await agent.wait_for("shutdown")
        told = named_active(await agent.call.trailing_metadata())
        assert told == reply.successor.address
        return told


def test_a_hand_over_ends_the_active_one_in_good_order(
    tmp_path: Path, server: PostgresServer
) -> None:
    order = admin_pb2.HandOverRequest(reason="an upgrade", operator="ada")
    with pair(server, tmp_path) as two, two.start(0) as active:
        alone = refusal(active.port, "HandOver", order)
        assert alone.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "no controller stands by" in str(alone.details())
        with two.start(1) as standby:
            told = asyncio.run(handed_over(active.port, order))
            assert told == f"127.0.0.1:{standby.port}"
            assert active.process.wait(60) == 0
            wait_until(lambda: is_active(standby.port))
            asyncio.run(send(standby.port, 11, 20))
            assert standby.terminate() == 0
        assert journaled(server, two.url) == (list(range(1, 21)), 2)


def test_of_two_standbys_one_takes_over_and_the_other_follows_it(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    with contextlib.ExitStack() as ends:
        ports = tuple(ends.enter_context(reserved_port()) for _ in range(3))
        three = Pair(tmp_path, server.url(database), ports)
        active, *others = [ends.enter_context(three.start(number)) for number in range(3)]
        active.kill()
        successor = wait_until(lambda: next((one for one in others if is_active(one.port)), None))
        other = next(one for one in others if one is not successor)
        pause(successor.port, "who follows whom")
        wait_until(lambda: is_paused(other.port))
        lines = controllers(other.port)
        assert [one.active for one in lines] == [True, False]
        assert lines[0].address == f"127.0.0.1:{successor.port}"
        assert [one.terminate() for one in (other, successor)] == [0, 0]
        assert journaled(server, three.url)[1] == 2


def test_the_connections_of_a_controller_on_another_machine_say_that_it_is_dead(
    tmp_path: Path, server: PostgresServer
) -> None:
    database = server.new_database()
    clock = itertools.count(0, round(LOOK_S * 1e9))
    here = elsewhere(postgres_backend(server, database))
    there = PostgresBackend(here.place, replace(here.around, monotonic_ns=lambda: next(clock)))
    connected = (
        "select count(*) from pg_stat_activity where application_name like 'everstep-controller %' "
        f"and datname = '{database}' and state is not null"
    )
    url = server.url(database)
    with start_controller(tmp_path, journal=url) as active, there.standing_by() as candidate:
        candidate.look("")
        # A server that was started just now has more patience, until the controller writes.
        wait_until(lambda: candidate.look("").still_s == 0)
        active.kill()
        wait_until(lambda: server.execute(connected)[0][0] <= 1)
        looks = [candidate.look("") for _ in range(round(GONE_UNCONNECTED_NS / 1e9 / LOOK_S) + 2)]
        assert not looks[1].is_gone
        assert looks[-1].is_gone
        assert candidate.take("")


def test_an_order_that_the_journal_cannot_take_is_refused_in_the_controllers_words(
    tmp_path: Path, server: PostgresServer
) -> None:
    read_only = "alter database {} set default_transaction_read_only = {}"
    end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}'"
    with pair(server, tmp_path) as two, two.start(0) as active:
        server.execute(read_only.format(two.database, "on"))
        server.execute(end.format(two.database))
        # The first write's outcome is unknown, until the server says that it takes none.
        wait_until(lambda: "JournalFull" in command(active.port, "findings").stdout)
        told = command(active.port, "pause", "--reason", "while nothing can be written")
        assert told.returncode == 1
        assert "the journal" in told.stderr
        assert "no controller answers" not in told.stderr
        server.execute(read_only.format(two.database, "off"))
        server.execute(end.format(two.database))
        assert active.terminate() == 0


def command(port: int, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of everstep."""
    program = "import sys; from everstep.entry import main; sys.exit(main())"
    access = ("--controller", f"127.0.0.1:{port}", "--secret-file", str(SECRET_FILE))
    return subprocess.run(
        [sys.executable, "-c", program, *words, *access],
        env=environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_database_that_was_restored_is_taken_over_by_nobody_before_a_recovery(
    tmp_path: Path, server: PostgresServer
) -> None:
    with pair(server, tmp_path) as two, two.start(0) as active, two.start(1) as standby:
        dump = str(server.folder / "standby-dump")
        asyncio.run(send(active.port, 1, 10))
        server.run(
            "pg_dump", "--format=custom", "--schema=everstep", f"--file={dump}", two.database
        )
        asyncio.run(send(active.port, 11, 20))
        wait_until(lambda: not controllers(standby.port)[1].behind_events)
        active.kill()
        server.run("pg_restore", "--clean", "--if-exists", f"--dbname={two.database}", dump)
        assert standby.process.stderr is not None
        said = standby.process.stderr.read()
        assert standby.process.wait(60) == 1
        assert "the database goes back to event" in said
        assert "Traceback" not in said
        with two.start(1) as again:
            assert metric(again, "everstep_controller_halted") == 1
            assert again.terminate() == 0


def test_what_a_webhook_was_not_sent_before_a_takeover_is_sent_after_it(
    tmp_path: Path, server: PostgresServer
) -> None:
    url_file, key_file = tmp_path / "url", tmp_path / "key"
    with receiver() as pager, pair(server, tmp_path) as two:
        for file, content in ((url_file, pager.url()), (key_file, "whsec_" + "a2V5" * 12)):
            file.write_text(content)
            file.chmod(0o600)
        two.tables = (
            f'\n[webhooks.pager]\nurl_file = "{url_file}"\nkey_file = "{key_file}"\n'
            'hosts = ["127.0.0.1"]\n'
        )
        with two.start(0) as active, two.start(1) as standby:
            pause(active.port, "first")
            pager.wait_until(lambda one: bool(one.events("finding.raised")))
            wait_until(lambda: bool(server.execute(_CURSORS, database=two.database)))
            pager.react = say(answer(503))
            asked = len(pager.requests)
            ask(active.port, "Resume", admin_pb2.ResumeRequest())
            pager.wait_until(lambda one: len(one.requests) > asked)
            active.kill()
            wait_until(lambda: is_active(standby.port))
            pager.requests.clear()
            pager.react = say(GOOD)
            # What failed is sent until it is taken, by whoever is active.
            pager.wait_until(lambda one: any("resumed by" in str(e) for e in one.decisions))
            assert standby.terminate() == 0


_CURSORS = "select value from everstep.fact where name = 'webhook cursor pager'"
