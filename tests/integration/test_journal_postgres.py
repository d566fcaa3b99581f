"""What only a journal in PostgreSQL can meet: other writers, unknown outcomes, other databases."""

import os
import pwd
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
import trustme

from everstep_common.credential_file import CredentialFile
from everstep_controller.journal.port import (
    DamagedJournalError,
    JournalAccessError,
    JournalLockedError,
    JournalLostError,
    JournalRefusedError,
    JournalUnknownError,
    JournalWentBackError,
    JournalWriteError,
    Mark,
)
from everstep_controller.journal.postgres.connection import Place, url_problem
from everstep_controller.journal.postgres.journal import PostgresBackend, PostgresJournal
from everstep_controller.journal.postgres.schema import NEWEST, known_version, migrate
from everstep_controller.journal.postgres.surroundings import lives, surroundings, this_process
from fakes.postgres_server import PostgresServer, postgres_server
from fakes.waits import wait_until
from integration.journals import elsewhere, event, postgres_backend

_SOON_S = 1.0
_MOVED = "update everstep.lease set "


@pytest.fixture(scope="module")
def shared() -> Iterator[PostgresServer]:
    with postgres_server() as running:
        yield running


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that a test may kill."""
    with postgres_server() as running:
        yield running


@pytest.fixture
def database(shared: PostgresServer) -> str:
    return shared.new_database()


@contextmanager
def writing(backend: PostgresBackend) -> Iterator[PostgresJournal]:
    with backend.lock(), closing(backend.open_writer()) as store:
        yield store


def append(store: PostgresJournal, *numbers: int) -> None:
    with store.transaction():
        store.append([event(seq) for seq in numbers], [Mark("n", "box", max(numbers))])


def numbers_in(backend: PostgresBackend) -> list[int]:
    with closing(backend.open_reader()) as reader:
        return [one.seq for one in reader.events(0)]


# --- one writer ----------------------------------------------------------------------------------


def test_a_holder_that_is_gone_is_succeeded_after_five_seconds_and_writes_nothing_then(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as old:
        append(old, 1, 2)
        # No writer writes, and the thread that keeps the lease rests: it stands still.
        with writing(elsewhere(backend)) as new:
            append(new, 3)
            with pytest.raises(JournalLostError, match="process 4711 on machine-2 has taken"):
                append_surely(old, 3)
            append(new, 4)
    assert numbers_in(backend) == [1, 2, 3, 4]


def append_surely(store: PostgresJournal, number: int) -> None:
    """Append an event, as the journal's thread does: it asks where the outcome is unknown."""
    try:
        append(store, number)
    except JournalUnknownError:
        if not store.settle():
            append(store, number)


def test_while_the_holder_writes_or_reads_a_long_journal_nobody_else_gets_in(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with (
        backend.lock(),
        pytest.raises(JournalLockedError, match=rf"process {os.getpid()} on .*stop it first"),
        elsewhere(backend).lock(),
    ):
        pass


def test_who_is_refused_is_not_listed_among_the_controllers(
    shared: PostgresServer, database: str
) -> None:
    backend, refused = postgres_backend(shared, database), postgres_backend(shared, database)
    backend.tell("the first")
    refused.tell("the second")
    with backend.lock(), closing(backend.open_reader()) as reader:
        with pytest.raises(JournalLockedError), refused.lock():
            pass
        assert [one.told for one in reader.controllers()] == ["the first"]


@pytest.mark.parametrize(
    "written",
    ['["a", "b", "c", 1e999, 5]', "[" * 100_000, '["a\\u0000", "b\\u001b[31m", "c", 1, 2]', "7"],
)
def test_a_holder_that_a_hand_has_written_is_succeeded_like_any_other(
    shared: PostgresServer, database: str, written: str
) -> None:
    backend = postgres_backend(shared, database)
    with backend.lock():
        pass
    shared.execute("update everstep.lease set holder = %s", (written,), database)
    with backend.standing_by() as candidate:
        seen = candidate.look("one that looks on")
        assert seen.writer.isprintable()
        wait_until(lambda: candidate.look("one that looks on").is_gone)
        assert candidate.take("one that looks on")


def test_who_looks_on_and_cannot_count_on_is_told_how_the_counts_are_put_right(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with backend.lock():
        pass
    shared.execute("update everstep.lease set beat = 9223372036854775807", database=database)
    with backend.standing_by() as candidate:
        assert candidate.look("one that looks on").is_gone
        with pytest.raises(JournalRefusedError, match=r"update everstep.lease set term"):
            candidate.take("one that looks on")


def test_a_holder_that_has_ended_on_this_machine_is_succeeded_at_once(
    shared: PostgresServer, database: str
) -> None:
    program = (
        "import os, sys\n"
        "from everstep_controller.journal.postgres.connection import Place\n"
        "from everstep_controller.journal.postgres.journal import PostgresBackend\n"
        "from everstep_controller.journal.postgres.surroundings import surroundings\n"
        "with PostgresBackend(Place(sys.argv[1]), surroundings()).lock():\n"
        "    os._exit(0)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run(
        [sys.executable, "-c", program, shared.url(database)], check=True, env=environment
    )
    backend = postgres_backend(shared, database)
    slept: list[float] = []
    with writing(PostgresBackend(backend.place, replace(backend.around, sleep_s=slept.append))):
        assert slept == []


def test_of_two_that_take_the_lease_at_once_one_gets_it(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with backend.lock():
        pass
    begun, refused, written = threading.Barrier(4), list[str](), list[int]()
    over = threading.Event()

    def contend(number: int) -> None:
        one = elsewhere(backend) if number % 2 else postgres_backend(shared, database)
        begun.wait()
        try:
            with writing(one) as store:
                append(store, 1)
                written.append(number)
                while not over.wait(0.2):
                    store.probe()
        except JournalLockedError as error:
            refused.append(str(error))
            if len(refused) == 3:
                over.set()

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert len(refused) == 3
    assert numbers_in(backend) == [1]


def test_a_stopped_controller_that_is_resumed_writes_nothing_and_ends_with_a_sentence(
    shared: PostgresServer, database: str
) -> None:
    program = (
        "import sys\n"
        "from integration.journals import event\n"
        "from everstep_controller.journal.port import JournalLostError\n"
        "from everstep_controller.journal.postgres.connection import Place\n"
        "from everstep_controller.journal.postgres.journal import PostgresBackend\n"
        "from everstep_controller.journal.postgres.surroundings import surroundings\n"
        "backend = PostgresBackend(Place(sys.argv[1]), surroundings())\n"
        "with backend.lock():\n"
        "    store = backend.open_writer()\n"
        "    seq = 0\n"
        "    while True:\n"
        "        seq += 1\n"
        "        try:\n"
        "            with store.transaction():\n"
        "                store.append([event(seq)], [])\n"
        "        except Exception as error:\n"
        "            print('lost', type(error).__name__, error, flush=True)\n"
        "            try:\n"
        "                store.settle()\n"
        "            except JournalLostError as lost:\n"
        "                print('lost', lost, flush=True)\n"
        "                sys.exit(3)\n"
        "        print(seq, flush=True)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    old = subprocess.Popen(
        [sys.executable, "-c", program, shared.url(database)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert old.stdout is not None
    said = [old.stdout.readline() for _ in range(5)]
    assert said[-1].strip() == "5"
    old.send_signal(signal.SIGSTOP)
    backend = elsewhere(postgres_backend(shared, database))
    with writing(backend) as new:
        last = new.last()[0]
        append(new, last + 1)
        old.send_signal(signal.SIGCONT)
        rest = old.communicate(timeout=60)[0]
        assert old.returncode == 3, rest
        assert "process 4711 on machine-2 has taken the journal's lease" in rest
        append(new, last + 2)
        bodies = [one.body for one in new.events(last)]
    assert bodies == [event(last + 1).body, event(last + 2).body]


def test_a_database_that_takes_three_seconds_for_a_commit_keeps_its_writer(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    refused = list[str]()

    def contend() -> None:
        try:
            with elsewhere(backend).lock():
                pass
        except JournalLockedError as error:
            refused.append(str(error))

    with writing(backend) as store:
        shared.execute(
            "create function everstep.slow() returns trigger language plpgsql as "
            "$$ begin perform pg_sleep(3); return null; end $$; "
            "create constraint trigger slow after insert on everstep.event deferrable initially "
            "deferred for each row execute function everstep.slow()",
            database=database,
        )
        contender = threading.Thread(target=contend)
        contender.start()
        for number in (1, 2):
            append(store, number)
        contender.join()
    assert len(refused) == 1
    assert numbers_in(backend) == [1, 2]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("holder = 'bob', term = term + 1", "'bob'.* has taken the journal's lease"),
        ("holder = 'bob'", "somebody has changed the row of the journal's lease.*'bob'"),
        ("head = head + 5", "somebody has changed the row"),
        ("head = 1", "goes back to event 1 .*everstep-controller recover"),
        ("journal = 'another'", "another cluster's"),
        ("writes = writes + 5", r"counts in the row.*says 6 writes.*were 1.*beat = 0, writes = 0'"),
        ("writes = 0", r"goes back to event 3 of term 1 \(write 0\), .*\(write 1\).*recover"),
    ],
)
def test_a_lease_that_a_hand_has_changed_ends_the_controller_with_a_sentence(
    shared: PostgresServer, database: str, change: str, sentence: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1, 2, 3)
        shared.execute(_MOVED + change, database=database)
        with pytest.raises(JournalLostError, match=sentence):
            append(store, 4)
    assert shared.execute("select count(*) from everstep.event", database=database) == [(3,)]


def test_a_lease_whose_row_is_gone_is_told_while_it_runs_and_at_a_start(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1)
        shared.execute("delete from everstep.lease", database=database)
        with pytest.raises(JournalWentBackError, match=r"is gone from the database.*recover"):
            append(store, 2)
    with pytest.raises(JournalRefusedError, match="drop schema everstep cascade"), backend.lock():
        pass


def test_a_beat_that_a_hand_has_moved_is_asked_for_and_gone_on_from(
    shared: PostgresServer, database: str
) -> None:
    with writing(postgres_backend(shared, database)) as store:
        append(store, 1)
        shared.execute(_MOVED + "beat = beat + 1", database=database)
        with pytest.raises(JournalUnknownError):
            append(store, 2)
        assert store.settle() is False
        append(store, 2)
        assert [one.seq for one in store.events(0)] == [1, 2]


@pytest.mark.parametrize("count", ["term", "beat", "writes"])
def test_a_count_that_cannot_be_moved_on_is_told_with_what_puts_it_right(
    shared: PostgresServer, database: str, count: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1)
        shared.execute(f"{_MOVED}{count} = {2**63 - 1}", database=database)
        with pytest.raises(JournalLostError):
            append_surely(store, 2)
    shared.execute(f"{_MOVED}{count} = {2**63 - 1}, holder = ''", database=database)
    refused = pytest.raises(JournalRefusedError, match="has changed the counts")
    with refused as told, backend.lock():
        pass
    (statement,) = re.findall("'(update [^']+)'", str(told.value))
    shared.execute(statement, database=database)
    with writing(backend) as store:
        append(store, 2)
    assert numbers_in(backend) == [1, 2]


def test_a_lease_that_says_another_end_than_the_events_is_damage(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1, 2)
    shared.execute(_MOVED + "head = 1", database=database)
    with pytest.raises(DamagedJournalError, match="where its events end"), backend.lock():
        pass


# --- three outcomes ------------------------------------------------------------------------------


def test_a_commit_that_waits_for_a_standby_that_is_gone_is_unknown_and_then_durable(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    backend = postgres_backend(server, database, deadline_s=_SOON_S)
    with writing(backend) as store:
        append(store, 1)
        server.setting("synchronous_standby_names", "gone")
        with pytest.raises(JournalUnknownError, match="has not answered for 1 s"):
            append(store, 2)
        with pytest.raises(JournalUnknownError):
            store.settle()
        server.setting("synchronous_standby_names", "")
        assert wait_until(lambda: settled(store)) == ["durable"]
        append(store, 3)
    assert numbers_in(backend) == [1, 2, 3]


def settled(store: PostgresJournal) -> list[str]:
    """Return what became of a write; nothing while nobody knows."""
    try:
        return ["durable" if store.settle() else "not made"]
    except JournalUnknownError:
        return []


def test_a_commit_whose_wait_for_its_standby_was_cancelled_is_unknown_though_it_succeeds(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    backend = postgres_backend(server, database)
    with writing(backend) as store:
        append(store, 1)
        server.setting("synchronous_standby_names", "gone")
        waits = "select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"
        cancelling = threading.Thread(target=lambda: wait_until(lambda: server.execute(waits)))
        cancelling.start()
        with pytest.raises(JournalUnknownError, match="canceling wait for synchronous"):
            append(store, 2)
        cancelling.join()
        server.setting("synchronous_standby_names", "")
        assert store.settle() is True
        append(store, 3)
    assert numbers_in(backend) == [1, 2, 3]


def test_a_server_killed_in_mid_commit_has_made_it_or_not_and_says_which(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    backend = postgres_backend(server, database)
    with writing(backend) as store:
        append(store, 1)
        # It is on the server's disk, and its standby has not said so.
        server.setting("synchronous_standby_names", "gone")
        with killed_when(server, "wait_event = 'SyncRep'"), pytest.raises(JournalUnknownError):
            append(store, 2)
        server.execute_when_started("alter system set synchronous_standby_names = ''")
        assert wait_until(lambda: settled(store)) == ["durable"]
        append(store, 3)
        # It waits for a lock, and nothing of it is on the disk.
        with (
            server.holding("lock table everstep.event", database),
            killed_when(server, "wait_event_type = 'Lock'"),
            pytest.raises(JournalUnknownError),
        ):
            append(store, 4)
        server.start()
        assert wait_until(lambda: settled(store)) == ["not made"]
        append(store, 4, 5)
    assert numbers_in(backend) == [1, 2, 3, 4, 5]


@contextmanager
def killed_when(server: PostgresServer, waits: str) -> Iterator[None]:
    """Kill the server when a connection of a controller waits so."""
    asked = f"select pid from pg_stat_activity where application_name like 'everstep%' and {waits}"

    def kill() -> None:
        wait_until(lambda: server.execute(asked))
        server.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    yield
    killing.join()


def test_a_server_that_stands_still_holds_up_a_write_for_the_deadline_and_no_longer(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    backend = postgres_backend(server, database, deadline_s=_SOON_S)
    with writing(backend) as store:
        append(store, 1)
        with closing(backend.open_reader()) as reader:
            assert reader.last() == (1, 1)
            with server.paused():
                with pytest.raises(JournalUnknownError, match="has not answered for 1 s"):
                    append(store, 2)
                with pytest.raises(JournalUnknownError):
                    store.settle()
                with pytest.raises(JournalAccessError, match="has not answered for 1 s"):
                    reader.last()
            (outcome,) = wait_until(lambda: settled(store))
            append(store, *([3] if outcome == "durable" else [2, 3]))
            assert reader.last() == (3, 3)
    assert numbers_in(backend) == [1, 2, 3]


def test_a_statement_that_arrives_after_it_was_given_up_changes_nothing(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database, deadline_s=_SOON_S)
    with writing(backend) as store:
        append(store, 1)
        with (
            shared.holding("lock table everstep.event", database),
            pytest.raises((JournalUnknownError, JournalWriteError)),
        ):
            append(store, 2)
        wait_until(lambda: settled(store))
        append(store, 2)
        append(store, 3)
    assert numbers_in(backend) == [1, 2, 3]


def test_a_database_that_takes_no_writes_refuses_and_is_gone_on_with_when_it_does(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    only = f"alter database {database} set default_transaction_read_only = "
    with writing(backend) as store:
        append(store, 1)
        shared.execute(f"{only}on")
        end_connections(shared, database)
        with pytest.raises(JournalUnknownError):
            append(store, 2)
        with pytest.raises(JournalUnknownError, match="read-only"):
            store.settle()
        shared.execute(f"{only}off")
        assert wait_until(lambda: settled(store)) == ["not made"]
        append(store, 2)
    shared.execute(f"{only}on")
    with pytest.raises(JournalAccessError, match="read-only"), backend.lock():
        pass
    assert shared.execute("select count(*) from everstep.event", database=database) == [(2,)]


def end_connections(server: PostgresServer, database: str) -> None:
    server.execute(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s",
        (database,),
    )


def test_what_the_server_refuses_is_refused_and_not_in_the_journal(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1)
        shared.execute(
            "create function everstep.no_space() returns trigger language plpgsql as "
            "$$ begin raise exception 'No space left on device' using errcode = '53100'; end $$; "
            "create trigger no_space before insert on everstep.event "
            "execute function everstep.no_space()",
            database=database,
        )
        with pytest.raises(JournalWriteError, match=r"No space left on device.*53100"):
            append(store, 2)
        store.probe()
        shared.execute("drop trigger no_space on everstep.event", database=database)
        append(store, 2)
    assert numbers_in(backend) == [1, 2]


# --- other databases -----------------------------------------------------------------------------


def test_a_database_restored_from_yesterday_ends_the_controller_and_says_what_to_type(
    shared: PostgresServer, database: str
) -> None:
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1, 2)
        end_connections(shared, database)
        backup = shared.new_database(template=database)
        append_surely(store, 3)
        put_in_place(shared, backup, database)
        with pytest.raises(
            JournalLostError, match=r"goes back to event 2 .*written up to event 3.*recover"
        ):
            append_surely(store, 4)
    assert numbers_in(backend) == [1, 2]


def lacking_standby(server: PostgresServer, standby: PostgresServer) -> None:
    """Fail over to a standby that has received nothing of late."""
    server.kill()
    standby.promote()


def on_either(server: PostgresServer, standby: PostgresServer, database: str) -> PostgresBackend:
    hosts = f"127.0.0.1:{server.port},127.0.0.1:{standby.port}"
    url = server.url(database).replace(f"127.0.0.1:{server.port}", hosts)
    return PostgresBackend(Place(url), surroundings())


def test_a_new_leader_without_the_newest_commits_is_given_them_again_by_their_writer(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    database = server.new_database()
    with server.standby("n2") as standby:
        backend = on_either(server, standby, database)
        with writing(backend) as store:
            append(store, 1, 2)
            wait_until(lambda: has_event(standby, database, 2))
            standby.fall_behind()
            append(store, 3, 4)
            with store.transaction():
                store.record(3, b"[3]")
                store.set_fact("told", b"later")
            append(store, 5)
            lacking_standby(server, standby)
            with pytest.raises(JournalUnknownError):
                append(store, 6)
            assert wait_until(lambda: settled(store)) == ["not made"]
            append(store, 6)
            assert store.decisions(2) == {3: b"[3]"}
            assert store.fact("told") == b"later"
            assert store.marks() == {"box": 6}
        assert "lacked 3 commits of this controller, from event 3 on" in caplog.text
        assert numbers_in(backend) == [1, 2, 3, 4, 5, 6]
        # The next one reads it as whole.
        with writing(backend) as store:
            store.verify()


def has_event(server: PostgresServer, database: str, number: int) -> bool:
    asked = f"select 1 from everstep.event where seq = {number}"
    with suppress(psycopg.errors.UndefinedTable):
        return bool(server.execute(asked, database=database))
    return False


def test_a_new_leader_is_given_them_again_also_where_it_goes_in_the_middle_of_it(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    with server.standby("n2") as standby:
        backend = on_either(server, standby, database)
        with writing(backend) as store:
            append(store, 1)
            wait_until(lambda: has_event(standby, database, 1))
            standby.fall_behind()
            for number in range(2, 6):
                append(store, number)
            lacking_standby(server, standby)
            # It takes a part of it, and refuses the rest for a while.
            standby.execute(
                "create function everstep.no_space() returns trigger language plpgsql as "
                "$$ begin if new.seq > 3 then raise exception 'full' using errcode = '53100'; "
                "end if; return new; end $$; create trigger no_space before insert on "
                "everstep.event for each row execute function everstep.no_space()",
                database=database,
            )
            with pytest.raises(JournalUnknownError):
                append(store, 6)
            wait_until(lambda: "full" in why_unsettled(store))
            assert has_event(standby, database, 3)
            standby.execute("drop trigger no_space on everstep.event", database=database)
            assert wait_until(lambda: settled(store)) == ["not made"]
            append(store, 6)
        assert numbers_in(backend) == [1, 2, 3, 4, 5, 6]


def why_unsettled(store: PostgresJournal) -> str:
    with pytest.raises(JournalUnknownError) as told:
        store.settle()
    return str(told.value)


def test_a_new_leader_that_another_controller_has_written_is_given_nothing(
    server: PostgresServer,
) -> None:
    database = server.new_database()
    with server.standby("n2") as standby:
        backend = on_either(server, standby, database)
        with writing(backend) as store:
            append(store, 1)
            wait_until(lambda: has_event(standby, database, 1))
            standby.fall_behind()
            append(store, 2)
            lacking_standby(server, standby)
            with writing(elsewhere(postgres_backend(standby, database))) as other:
                append(other, 2)
                with pytest.raises(JournalLostError):
                    append_surely(store, 3)
        assert numbers_in(backend) == [1, 2]


def test_another_clusters_database_in_its_place_is_not_written(
    shared: PostgresServer, database: str
) -> None:
    other = shared.new_database()
    with writing(postgres_backend(shared, other)) as store:
        append(store, 1)
    backend = postgres_backend(shared, database)
    with writing(backend) as store:
        append(store, 1)
        put_in_place(shared, other, database)
        with pytest.raises(JournalLostError, match="another cluster's"):
            append_surely(store, 2)
    assert numbers_in(backend) == [1]


def put_in_place(server: PostgresServer, backup: str, database: str) -> None:
    server.execute(f"drop database {database} with (force)")
    server.execute(f"alter database {backup} rename to {database}")


def test_of_two_first_starts_at_once_the_later_one_sees_the_schema_that_the_other_made(
    shared: PostgresServer, database: str
) -> None:
    place = Place(shared.url(database))
    with closing(place.connect("first")) as first, closing(place.connect("later")) as later:
        assert known_version(later) == 0
        with later.transaction():
            later.execute("select pg_advisory_xact_lock(1)")
            migrate(first)
            assert known_version(later) == NEWEST


def test_a_schema_that_is_somebody_elses_is_left_alone(
    shared: PostgresServer, database: str
) -> None:
    shared.execute("create schema everstep; create table everstep.x ()", database=database)
    backend = postgres_backend(shared, database)
    with pytest.raises(JournalRefusedError, match="without the row"), backend.lock():
        pass


def test_a_user_who_may_not_make_tables_reads_how_the_database_is_made_theirs(
    shared: PostgresServer, database: str
) -> None:
    shared.execute("create role plain login")
    place = Place(shared.url(database).replace("postgres@", "plain@"))
    backend = PostgresBackend(place, surroundings())
    refused = pytest.raises(JournalRefusedError, match="createdb --owner USER DATABASE")
    with refused, backend.lock():
        pass


def test_a_database_without_a_journal_is_told_to_whoever_reads_it(
    shared: PostgresServer, database: str
) -> None:
    told = pytest.raises(JournalAccessError, match="the database has no journal yet")
    with closing(postgres_backend(shared, database).open_reader()) as reader, told:
        reader.last()


def test_a_server_that_is_not_there_is_told_with_its_address(tmp_path: Path) -> None:
    backend = PostgresBackend(Place("postgresql://x@127.0.0.1:1/nothing"), surroundings())
    with pytest.raises(JournalAccessError, match=r"127\.0\.0\.1.*port 1"), backend.lock():
        pass


def refusal_of(url: str) -> str:
    """Return why an address cannot be connected to."""
    with pytest.raises(JournalAccessError) as told:
        Place(url).connect("test")
    return str(told.value)


def test_a_database_that_is_not_there_is_made_by_what_the_sentence_says(
    server: PostgresServer,
) -> None:
    server.execute('create role "ever-step" login')
    url = server.url("no-journal").replace("postgres@", "ever-step@")
    said = refusal_of(url)
    found = re.search(r"'runuser -u postgres -- (createdb [^']+)'", said)
    assert found is not None, said
    program, *words = shlex.split(found[1])
    server.run(program, *words)
    with writing(PostgresBackend(Place(url), surroundings())) as store:
        append(store, 1)


def test_a_user_who_is_not_there_is_made_by_what_the_sentence_says(
    server: PostgresServer,
) -> None:
    url = server.url(server.new_database()).replace("postgres@", "ever-step@")
    found = re.search(r"'runuser -u postgres -- (createuser [^']+)'", refusal_of(url))
    assert found is not None
    program, *words = shlex.split(found[1])
    server.run(program, *words)
    Place(url).connect("test").close()


def test_who_the_server_lets_in_by_no_line_reads_the_line(server: PostgresServer) -> None:
    server.execute("create role plain login password 'swordfish'")
    url = server.url("postgres").replace("postgres@", "plain@") + "?sslmode=disable"
    lines = server.folder / "data" / "pg_hba.conf"
    lines.write_text("host all postgres all trust\nhost all plain all reject\n")
    server.execute("select pg_reload_conf()")
    (said,) = wait_until(lambda: [one for one in [refusal_of(url)] if "rejects" in one])
    (line,) = re.findall(r"'(host [^']+)'", said)
    lines.write_text(f"{line}\nhost all postgres all trust\nhost all plain all reject\n")
    server.execute("select pg_reload_conf()")
    wait_until(lambda: "asks for a password" in refusal_of(url))


def test_on_a_socket_the_user_of_the_process_is_named_and_whom_to_be(
    server: PostgresServer,
) -> None:
    (server.folder / "data" / "pg_hba.conf").write_text(
        "local all all peer\nhost all all all trust\n"
    )
    server.stop()
    server.folder.chmod(0o755)
    server.options.append(f"unix_socket_directories={server.folder}")
    server.start()
    server.execute("create role somebody login")
    on_socket = f"postgresql://somebody@/postgres?host={server.folder}&port="
    said = refusal_of(on_socket + str(server.port))
    assert "Peer authentication failed" in said
    assert (
        f"this process runs as {pwd.getpwuid(os.geteuid()).pw_name}: start it as somebody" in said
    )
    assert "the folder of its unix_socket_directories" in refusal_of(on_socket + "1")


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks another protocol than PostgreSQL"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks another protocol than PostgreSQL"),
        (b"\x4a\0\0\x0a8.0.36\0", "speaks another protocol than PostgreSQL"),
        (b"", "is a proxy without a server behind it"),
        (None, "no answer within 3 s"),
    ],
)
def test_a_server_that_is_no_postgresql_is_told_with_its_address(
    answer: bytes | None, sentence: str
) -> None:
    with ExitStack() as clients, socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client = clients.enter_context(listening.accept()[0])
                    if answer is not None:
                        client.recv(1024)
                        client.sendall(answer)
                        client.close()

        serving = threading.Thread(target=serve)
        serving.start()
        said = refusal_of(f"postgresql://x@127.0.0.1:{port}/x")
        listening.shutdown(socket.SHUT_RDWR)
        serving.join()
    assert f"127.0.0.1, port {port}" in said
    assert sentence in said
    assert "in 'journal'" in said


def test_what_the_server_lacks_is_told_with_what_to_set(
    server: PostgresServer,
) -> None:
    url = server.url("postgres")
    assert "sslmode=disable in 'journal'" in refusal_of(f"{url}?sslmode=require")
    assert "pg_lsclusters" in refusal_of("postgresql://x@127.0.0.1:1/x")
    assert "getent hosts" in refusal_of("postgresql://x@nowhere.invalid/x?sslmode=disable")
    server.execute("create role plain login connection limit 0")
    crowded = refusal_of(url.replace("postgres@", "plain@"))
    assert "connection limit of the user" in crowded


def test_of_several_hosts_the_one_is_taken_that_takes_writes(
    shared: PostgresServer, database: str
) -> None:
    url = shared.url(database).replace("127.0.0.1:", "127.0.0.1:1,127.0.0.1:")
    backend = PostgresBackend(Place(url), surroundings())
    with writing(backend) as store:
        append(store, 1)
    assert numbers_in(backend) == [1]


def test_a_password_comes_from_its_file_and_is_in_no_sentence(
    server: PostgresServer, tmp_path: Path
) -> None:
    database = server.new_database()
    server.execute("create role secretive login superuser password 'swordfish'")
    (server.folder / "data" / "pg_hba.conf").write_text(
        "host all secretive all scram-sha-256\nhost all all all trust\n"
    )
    server.execute("select pg_reload_conf()")
    file = tmp_path / "password"
    file.write_text("swordfish\n")
    file.chmod(0o600)
    url = server.url(database).replace("postgres@", "secretive@")
    backend = PostgresBackend(Place(url, CredentialFile(file)), surroundings())
    with writing(backend) as store:
        append(store, 1)
    file.write_text("herring\n")
    failed = pytest.raises(JournalAccessError, match="password authentication failed")
    with failed as told, backend.lock():
        pass
    assert "replace that in the file" in str(told.value)
    assert "herring" not in str(told.value)
    without = PostgresBackend(Place(url), surroundings())
    asked = pytest.raises(JournalAccessError, match="name that as journal_password_file")
    with asked, without.lock():
        pass
    file.chmod(0o644)
    read_by_all = pytest.raises(JournalAccessError, match=r"mode 0644.*'chmod g-wx,o= ")
    with read_by_all, backend.lock():
        pass
    file.unlink()
    unread = pytest.raises(JournalAccessError, match=r"cannot be read: No such.*'install -m 600 -o")
    with unread, backend.lock():
        pass


def test_a_server_is_believed_by_its_certificate_alone(
    server: PostgresServer, tmp_path: Path
) -> None:
    database, (ours, another) = server.new_database(), (trustme.CA(), trustme.CA())
    certificate = ours.issue_cert("localhost")
    server.give_file("server.crt", certificate.cert_chain_pems[0].bytes())
    server.give_file("server.key", certificate.private_key_pem.bytes())
    server.setting("ssl", "on")
    for authority in (ours, another):
        authority.cert_pem.write_to_path(tmp_path / f"{authority is ours}.pem")

    def backend(name: str) -> PostgresBackend:
        url = server.url(database).replace("127.0.0.1", "localhost")
        query = f"?sslmode=verify-full&sslrootcert={tmp_path / name}"
        return PostgresBackend(Place(url + query), surroundings())

    with writing(backend("True.pem")) as store:
        append(store, 1)
        encrypted = server.execute(
            "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) "
            "where application_name like 'everstep%'"
        )
        assert encrypted == [(True,)]
    refused = pytest.raises(JournalAccessError, match="certificate verify failed")
    with refused, backend("False.pem").lock():
        pass


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("postgresql://a:swordfish@127.0.0.1/d", "journal_password_file"),
        ("postgresql://a@127.0.0.1/d?password=swordfish", "journal_password_file"),
        ("postgresql://a@db.example/d", "sslmode=verify-full"),
        ("postgresql://a@127.0.0.1,db.example/d", "db.example is another machine"),
        ("postgresql://a@db.example/d?sslmode=prefer", "sslmode=verify-full"),
        ("postgresql://a@db.example/d?sslmode=", "sslmode=verify-full"),
        ("postgresql://a@127.0.0.1.example/d", "127.0.0.1.example is another machine"),
        ("postgresql://a@/d?hostaddr=192.0.2.1", "192.0.2.1 is another machine"),
        ("postgresql://a@localhost/d?hostaddr=192.0.2.1", "192.0.2.1 is another machine"),
        ("postgresql://a@127.0.0.1/d?sslkey=/x&sslpassword=swordfish", "has sslpassword in it"),
        ("postgresql://a@127.0.0.1", "names no database"),
        ("postgresql://a@127.0.0.1/d?sslmood=x", 'invalid URI query parameter: "sslmood"'),
        ("postgresql://a@127.0.0.1/d?passfile=/x", "remove one of them"),
        ("postgresql:///d?service=journal", "names service 'journal'"),
        ("postgresql://a@127.0.0.1:99999/d", "has the port '99999'; expected a number from 1"),
        ("postgresql://a@127.0.0.1:5432,127.0.0.1:x/d", "has the port 'x'"),
        ("postgresql://a@db.example/d?sslmode=verify-full", ""),
        ("postgresql://a@127.0.0.1:5433,[::1]/d?target_session_attrs=any", ""),
        ("postgresql:///d?host=/run/postgresql", ""),
        ("postgresql://a@%2Frun%2Fpostgresql/d", ""),
        ("postgresql://a@db.example/d?hostaddr=127.0.0.1", ""),
        ("postgresql://a@db.example/d?sslmode=disable", ""),
    ],
)
def test_an_address_is_judged_before_it_is_used(url: str, sentence: str) -> None:
    problem = url_problem(url, has_password_file=True)
    assert sentence in problem
    assert bool(sentence) == bool(problem)
    assert "swordfish" not in problem


@pytest.mark.parametrize(
    ("url", "environment", "sentence"),
    [
        ("postgresql:///d", {"PGSERVICE": "x"}, "env -u PGSERVICE"),
        ("postgresql:///d", {"PGHOST": "db.example"}, "db.example is another machine (PGHOST or"),
        ("postgresql://localhost/d", {"PGHOSTADDR": "192.0.2.1"}, "192.0.2.1 is another machine"),
        ("postgresql:///d", {"PGHOST": "db.example", "PGSSLMODE": "require"}, "add ?sslmode="),
        ("postgresql://localhost/d", {"PGHOST": "db.example"}, ""),
        ("postgresql:///d?sslmode=verify-full", {"PGHOST": "db.example"}, ""),
        ("postgresql:///d", {"PGHOST": "/run/postgresql", "PGSSLMODE": "disable"}, ""),
    ],
)
def test_where_the_environment_leads_is_judged_with_the_address(
    url: str, environment: dict[str, str], sentence: str
) -> None:
    problem = url_problem(url, has_password_file=False, environment=environment)
    assert sentence in problem
    assert bool(sentence) == bool(problem)


def test_who_lives_on_this_machine_is_known_and_elsewhere_it_is_not() -> None:
    here = this_process()
    assert lives(here) is True
    assert lives(replace(here, started=here.started + 1)) is False
    assert lives(replace(here, pid=2**22 + 1)) is False
    assert lives(replace(here, place="another boot")) is None
    assert lives(replace(here, place="")) is None
