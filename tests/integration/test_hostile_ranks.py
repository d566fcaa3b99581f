"""Ranks that mislead whoever reads them: the report comes, says what is wrong, and harms nobody."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep.hang_command import main as look
from everstep.launch.inspection.look_service import LookService
from everstep.launch.inspection.question import Answer, Question, RankAsked, Seen
from everstep.launch.inspection.reading import AGAIN, Reading
from everstep.launch.selector_loop import call_ready
from everstep_common.codec import from_json, json_text
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import (
    EvidenceSource,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict
from real.ordinary_user import ALICE, import_path, missing, python_for_all

pytestmark = pytest.mark.timeout(60)

_RANK = Path(__file__).with_name("hostile_rank.py")
# State of a socket in /proc/net/unix: SS_CONNECTED.
_CONNECTED = "03"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        yield Path(name)


@contextmanager
def hostile(folder: Path, how: str, *become: str) -> Iterator[int]:
    """Yield the process of a rank that behaves like this."""
    python = python_for_all() if become else sys.executable
    line = [*become, python, "-I", "-S", "-c", _RANK.read_text(), str(folder), how]
    environ = {"EVERSTEP_GENERATION": "1", "RANK": "1", "EVERSTEP_RANK_FILES": str(folder)}
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, text=True, env={**os.environ, **environ}, process_group=0
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process.pid
            assert process.poll() is None, "it did not survive being read"
        finally:
            process.kill()


def answers(folder: Path, *asked: RankAsked, recent: bool = False) -> tuple[Answer, ...]:
    """Return what a look at some ranks yields."""
    selector = selectors.DefaultSelector()
    found: list[Answer] = []
    # Where a busy machine delays the reader itself, that is what the reports would tell.
    reading = Reading(selector, found.extend, deadline_s=20.0)
    question = Question(folder=str(folder), node="node-1", world_size=4, recent=recent)
    reading.begin(question, asked)
    while reading.under_way:
        call_ready(selector, reading.due_in_s())
        reading.advance()
    assert not selector.get_map()
    selector.close()
    assert all(len(json_text(one.report)) < 3000 for one in found)
    return tuple(found)


def report(folder: Path, pid: int, rank: int = 1) -> RankHangReport:
    """Return the report of one rank."""
    (answer,) = answers(folder, RankAsked(rank, pid))
    assert (answer.report.rank, answer.report.pid) == (rank, pid)
    return answer.report


def blind(found: RankHangReport) -> dict[EvidenceSource, str]:
    """Return what is not known, and why."""
    return {one.source: one.reason for one in found.blind}


@pytest.mark.parametrize("how", ["never accepts", "never answers"])
def test_one_that_never_answers_is_told_from_one_that_cannot_be_asked(
    folder: Path, how: str
) -> None:
    with hostile(folder, how) as pid:
        found = report(folder, pid)
    assert found.process.answers_ping is False
    assert found.process.gil_held is None
    assert found.process.state is ProcessState.SLEEPING
    assert EvidenceSource.IDENTITY not in blind(found)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("endless body", "more than 16777216 bytes"),
        ("endless head", "more than 16777216 bytes"),
        ("drips", "no answer to 'fr_trace_json' within"),
        ("breaks off", "breaks off"),
        ("not HTTP", "is not of HTTP"),
        ("another rank", "it is not rank 1's"),
        ("deep", "nested too deeply"),
        ("malformed", "its entries are no list"),
    ],
)
def test_a_recorder_that_misleads_is_reported_as_such(folder: Path, how: str, words: str) -> None:
    with hostile(folder, how) as pid:
        found = report(folder, pid)
    assert found.process.answers_ping is True
    assert words in blind(found)[EvidenceSource.FLIGHT_RECORDER]
    assert found.groups == ()


@pytest.mark.parametrize(
    ("how", "source", "words"),
    [
        ("never answers", EvidenceSource.WORKER_SERVER, "no answer to 'ping' within"),
        ("drips", EvidenceSource.FLIGHT_RECORDER, "no answer to 'fr_trace_json' within"),
        ("endless body", EvidenceSource.FLIGHT_RECORDER, "more than 16777216 bytes"),
        ("another rank", EvidenceSource.FLIGHT_RECORDER, "it is not rank 1's"),
        ("deep", EvidenceSource.FLIGHT_RECORDER, "nested too deeply"),
        ("a link", EvidenceSource.IDENTITY, "is not a socket of user"),
    ],
)
def test_a_look_at_collectives_asks_the_recorder_alone_and_believes_it_no_more(
    folder: Path, how: str, source: EvidenceSource, words: str
) -> None:
    with hostile(folder, how) as pid:
        (answer,) = answers(folder, RankAsked(1, pid), recent=True)
    found = answer.report
    assert words in blind(found)[source]
    assert (found.groups, found.pid) == ((), pid)
    assert found.process == ProcessFacts()


@pytest.mark.parametrize("how", ["of NCCL", "before 2.10"])
def test_a_rank_of_nccl_is_read_by_the_recorder_of_nccl(folder: Path, how: str) -> None:
    with hostile(folder, how) as pid:
        found = report(folder, pid)
    assert [one.name for one in found.groups[0].pending] == ["all_reduce"]
    assert found.backend == "nccl"
    assert EvidenceSource.FLIGHT_RECORDER not in blind(found)


def test_a_rank_of_gloo_under_an_older_torch_is_told_as_one_that_cannot_be_read(
    folder: Path,
) -> None:
    with hostile(folder, "gloo before 2.10") as pid:
        found = report(folder, pid)
    told = "this torch tells the operations of NCCL only, and this rank has none"
    assert blind(found)[EvidenceSource.FLIGHT_RECORDER] == told


@pytest.mark.parametrize("how", ["a link", "a file", "a pipe"])
def test_what_stands_in_the_place_of_the_socket_is_not_followed(folder: Path, how: str) -> None:
    with hostile(folder, how) as pid:
        found = report(folder, pid)
    assert found.process.answers_ping is None
    reasons = blind(found)
    assert "is not a socket of" in reasons.get(EvidenceSource.IDENTITY, "") or (
        "Too many levels of symbolic links" in reasons.get(EvidenceSource.WORKER_SERVER, "")
    )


def test_a_socket_of_another_process_speaks_for_none(folder: Path) -> None:
    with hostile(folder, "malformed") as other, hostile(folder, "a file") as pid:
        (folder / f"{pid}.sock").unlink()
        (folder / f"{other}.sock").rename(folder / f"{pid}.sock")
        found = report(folder, pid)
    assert f"process {other} listens" in blind(found)[EvidenceSource.IDENTITY]
    assert found.process.answers_ping is None


def test_who_would_die_of_the_signal_does_not_get_it(folder: Path) -> None:
    with hostile(folder, "no GIL") as pid:
        found = report(folder, pid)
    assert found.process.gil_held is True
    assert found.process.python_stack == ()
    assert "worker server could take the signal" in blind(found)[EvidenceSource.PYTHON_STACK]


def test_one_that_holds_its_gil_is_not_asked_for_ever(folder: Path) -> None:
    with hostile(folder, "no GIL") as pid:
        found = [report(folder, pid) for _ in range(4)]
        sockets = Path(f"/proc/{pid}/net/unix").read_text().splitlines()
    assert all(one.process.gil_held for one in found)
    kept = [line.split()[5] for line in sockets if line.endswith(f"{pid}.sock")]
    assert kept.count(_CONNECTED) == 3, "each question keeps a thread of the rank's server"


def test_how_long_it_stands_is_known_from_one_look_to_the_next(folder: Path) -> None:
    with hostile(folder, "a file") as pid:
        os.kill(pid, signal.SIGSTOP)
        (first,) = answers(folder, RankAsked(0, pid))
        (second,) = answers(folder, RankAsked(0, pid, first.seen))
        seen = first.seen
        assert seen is not None
        foreign = Seen(seen.state, seen.started_ticks + 1, seen.switches, seen.user_ticks, 1)
        (other,) = answers(folder, RankAsked(0, pid, foreign))
    assert second.report.process.state is ProcessState.STOPPED
    assert second.seen is not None
    # Since the first of all looks; of a former process of the same number nothing is taken.
    assert second.seen.since_ns == seen.since_ns
    assert other.seen is not None
    assert other.seen.since_ns > second.seen.since_ns


def test_a_process_that_is_gone_is_dead(folder: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert report(folder, gone.pid).process == ProcessFacts(state=ProcessState.DEAD)


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_of_another_user_s_process_only_its_state_is_told(folder: Path) -> None:
    ALICE.own(folder)
    with hostile(folder, "malformed", *ALICE.become) as pid:
        found = report(folder, pid)
    assert blind(found) == {EvidenceSource.IDENTITY: "the process belongs to another user"}
    assert found.process.state is ProcessState.SLEEPING
    assert (found.process.answers_ping, found.libraries) == (None, ())


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_root_reads_a_user_s_rank_as_that_user(folder: Path) -> None:
    ALICE.own(folder)
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": import_path()}
    with hostile(folder, "malformed", *ALICE.become) as pid:
        line = [python_for_all(), "-P", "-m", "everstep.entry", "hang", "--pids", str(pid)]
        done = subprocess.run([*line, "--json"], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = from_json(RankHangReport, json.loads(done.stdout))
    # A reader that were root would take the socket for a stranger's.
    assert found.process.answers_ping is True
    assert EvidenceSource.IDENTITY not in blind(found)


def test_whoever_asks_a_launcher_gets_the_look_that_is_under_way(folder: Path) -> None:
    selector = selectors.DefaultSelector()
    with hostile(folder, "a file") as pid, contextlib.ExitStack() as stack:
        service = LookService(selector, folder, lambda: {1: pid})
        stack.callback(service.close)
        told = []
        for _ in range(2):
            clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(3)]
            for client in clients:
                client.settimeout(0.0)
                client.connect(str(folder / "look.sock"))
            call_ready(selector, 10.0)
            assert len(service.pids()) == 1
            while service.pids():
                call_ready(selector, service.due_in_s())
                service.advance()
            told.append({client.recv(65536) for client in clients})
    (first,), (second,) = told
    earlier, later = (from_json(RankHangReport, json.loads(one)) for one in (first, second))
    assert earlier.rank == later.rank == 1
    # It has not run since the first look, and the launcher remembers what that saw.
    assert later.process.state_for_ms > earlier.process.state_for_ms


def test_the_look_at_a_job_s_ranks_here_ends_with_what_the_help_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"hostile-{os.getpid()}"
    monkeypatch.setenv("EVERSTEP_JOB", name)
    with hostile(folder, "a file") as pid:
        assert look(["--job", name]) == 1
        told = capsys.readouterr().out
        assert told.startswith(f"rank 1 (process {pid}): sleeping")
        assert "No rank told its operations" in told
        os.kill(pid, signal.SIGSTOP)
        assert look(["--job", name, "--json"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
    verdict = from_json(HangVerdict, json.loads(line))
    assert [(one.rank, one.kind) for one in verdict.culprits] == [(1, HangClass.FROZEN)]


@pytest.mark.parametrize("when", ["before", "during", "another"])
def test_ranks_that_their_launcher_ends_are_told_so_and_not_that_they_are_dead(
    folder: Path, when: str
) -> None:
    selector = selectors.DefaultSelector()
    why = ["generation 3 is being stopped"] if when == "before" else []
    told: list[RankHangReport] = []
    with hostile(folder, "a file") as pid, contextlib.ExitStack() as stack:
        ranks = {1: pid}
        ending = lambda: "".join(why)  # noqa: E731
        service = LookService(selector, folder, lambda: ranks, ending=ending)
        stack.callback(service.close)
        service.ask(lambda answers: told.extend(one.report for one in answers))
        if when == "during":
            why.append("generation 3 is being stopped")
        if when == "another":
            ranks[1] = pid + 1
        while service.pids():
            call_ready(selector, service.due_in_s())
            service.advance()
    (found,) = told
    said = "they were restarted meanwhile" if when == "another" else "generation 3 is being stopped"
    assert blind(found) == {EvidenceSource.PROCESS_STATE: said}
    assert judge(told, 2).culprits == ()


def test_a_person_s_look_has_longer_on_a_loaded_machine_until_automation_asks_as_well(
    folder: Path,
) -> None:
    now_s = 100.0
    found: list[Answer] = []
    with hostile(folder, "never answers") as pid, selectors.DefaultSelector() as selector:
        reading = Reading(selector, found.extend, monotonic=lambda: now_s)
        question = Question(folder=str(folder))
        reading.begin(question, [RankAsked(1, pid)], within_s=10.0, again=AGAIN)
        assert reading.due_in_s() == 10.0
        now_s = 103.0
        reading.advance()
        assert reading.under_way
        reading.hurry()
        assert reading.due_in_s() == 2.0
        now_s = 105.0
        reading.advance()
    (unread,) = found
    assert blind(unread.report) == {
        EvidenceSource.PROCESS_STATE: "its reader took too long: no answer within 5 s; try again"
    }


def test_all_ranks_of_a_large_node_are_read_at_once(folder: Path) -> None:
    with hostile(folder, "never answers") as pid:
        found = answers(folder, *(RankAsked(rank, pid) for rank in range(64)))
    assert [one.report.rank for one in found] == list(range(64))
    assert {one.report.process.answers_ping for one in found} == {False}
