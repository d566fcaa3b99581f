"""The ranks' output, whatever the terminal does: shown, kept, and never in the way."""

import os
import pty
import re
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_common.launcher_messages import End, StepSeen, Stop
from everstep_common.reports import GenerationFinished, GenerationStopped, RankExited
from integration.trainer_job import Job, joined_job

WAIT = "import time; time.sleep(600)"
# More than a pipe, a terminal and the launcher's memory take.
LINES = 200_000
MUCH = f"for i in range({LINES}): print('line %099d' % i)\nprint('said', flush=True)\n{WAIT}"


@contextmanager
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe; both ends are closed afterwards."""
    ends = os.pipe()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


@contextmanager
def login() -> Iterator[tuple[int, int]]:
    """A terminal: the end of a connection, and the end of a shell."""
    ends = pty.openpty()
    settings = termios.tcgetattr(ends[1])
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(ends[1], termios.TCSANOW, settings)
    try:
        yield ends
    finally:
        for end in ends:
            try:
                os.close(end)
            except OSError:  # the test has
                continue


def read_all(fd: int) -> str:
    """Return what is there and comes until the other end is closed."""
    data = b""
    while True:
        try:
            piece = os.read(fd, 1 << 16)
        except OSError:  # how a terminal ends
            piece = b""
        if not piece:
            return data.decode()
        data += piece


def kept(folder: Path) -> str:
    """Return what was kept for lack of a reader."""
    return "".join(path.read_text() for path in sorted(folder.glob("everstep-output-*")))


def numbers(text: str) -> list[int]:
    """Return the lines of `MUCH` that are in a text."""
    return [int(number) for number in re.findall(r"\[0\] line (\d{99})$", text, re.MULTILINE)]


def end(job: Job) -> None:
    """End the job and see its launcher go, which nobody reads."""
    job.agent.tell_launcher(End(True, "a test"))
    assert job.launcher.wait(timeout=30) == 0


def test_a_pipe_that_nobody_reads_stops_neither_the_rank_nor_an_order(tmp_path: Path) -> None:
    script = MUCH.replace("print('said', flush=True)", f"open({str(tmp_path / 'said')!r}, 'w')")
    options = ["--log-dir", str(tmp_path)]
    with pipe() as (reader, writer):
        with joined_job(
            tmp_path, sys.executable, "-c", script, options=options, screen=writer
        ) as job:
            job.start(1, ranks=1)
            while not (tmp_path / "said").exists():
                assert job.launcher.poll() is None
                os.sched_yield()
            job.stop(1)
            end(job)
        os.set_blocking(reader, False)
        shown = os.read(reader, 1 << 20).decode()
    assert sorted(numbers(shown + kept(tmp_path))) == list(range(LINES))


def test_a_stopped_terminal_goes_on_where_it_was(tmp_path: Path) -> None:
    script = f"for i in range(100): print('line %099d' % i)\n{WAIT}"
    with login() as (connection, shell):
        termios.tcflow(shell, termios.TCOOFF)  # Ctrl-S
        with joined_job(tmp_path, sys.executable, "-c", script, screen=shell) as job:
            job.start(1, ranks=1)
            job.stop(1)
            termios.tcflow(shell, termios.TCOON)
            end(job)
            os.close(shell)
            shown = read_all(connection)
    found = numbers(shown)
    assert found == list(range(len(found)))
    assert "generation 1 stops: a test" in shown
    assert "job test succeeded" in shown


def test_a_reader_that_is_gone_does_not_end_the_job(tmp_path: Path) -> None:
    script = "print('unseen'); print('unheard', file=__import__('sys').stderr)"
    options = ["--log-dir", str(tmp_path / "logs")]
    gone, screen = os.pipe()
    os.close(gone)
    with joined_job(tmp_path, sys.executable, "-c", script, options=options, screen=screen) as job:
        os.close(screen)
        job.start(1, ranks=1)
        job.agent.expect(GenerationFinished)
        end(job)
    assert {"[0] unseen", "[0] unheard"} <= set(kept(tmp_path / "logs").splitlines())


def test_what_a_rank_leaves_writing_without_end_does_not_hold_up_its_end(tmp_path: Path) -> None:
    script = "import subprocess; print('done', flush=True); subprocess.Popen(['yes'])"
    with (tmp_path / "screen").open("wb") as screen:
        command = (sys.executable, "-c", script)
        with joined_job(tmp_path, *command, screen=screen.fileno()) as job:
            job.start(1, ranks=1)
            job.agent.expect(GenerationFinished)
            end(job)
    assert "[0] done" in (tmp_path / "screen").read_text().splitlines()


def test_a_lost_connection_does_not_end_the_job(tmp_path: Path) -> None:
    options = ["--log-dir", str(tmp_path / "logs")]
    with (
        login() as (connection, shell),
        joined_job(tmp_path, sys.executable, "-c", WAIT, options=options, screen=shell) as job,
    ):
        job.start(1, ranks=1)
        os.close(connection)  # the kernel sends SIGHUP
        job.stop(1)
        end(job)
    assert "the terminal is gone; the job goes on" in kept(tmp_path / "logs")


def test_streams_go_where_torchruns_options_say(tmp_path: Path) -> None:
    script = (
        "import os, sys; r = os.environ['RANK']; print('out', r); print('err', r, file=sys.stderr)"
    )
    options = ["--log-dir", str(tmp_path), "-r", "0:1,1:3", "-t", "1:2", "--local-ranks-filter=0,1"]
    with joined_job(tmp_path, sys.executable, "-c", script, options=options) as job:
        job.start(1, ranks=3)
        job.agent.expect(GenerationFinished)
        _, out, errors = job.end()
    assert out == ""
    assert {line for line in errors.splitlines() if line[0] == "["} == {"[0] err 0", "[1] err 1"}
    files = {path.name: path.read_text() for path in (tmp_path / "gen-1").iterdir()}
    assert files == {"rank-0.out": "out 0\n", "rank-1.out": "out 1\n", "rank-1.err": "err 1\n"}


def test_steps_in_the_output_are_told_to_the_agent_before_the_end(tmp_path: Path) -> None:
    script = "for i in range(3): print(f'batch {i} of 3 done')"
    options = ["--progress-pattern", r"batch (\d+) of \d+ done"]
    with joined_job(tmp_path, sys.executable, "-c", script, options=options) as job:
        job.start(4, ranks=2)
        seen: list[object] = []
        while not isinstance(
            message := job.agent.from_launcher.get(timeout=20), GenerationFinished
        ):
            seen.append(message)
        job.end()
    steps = [(one.generation, one.step) for one in seen if isinstance(one, StepSeen)]
    assert steps == [(4, 0), (4, 1), (4, 2)]


def _after_exits(job: Job) -> object:
    """Return what the launcher says next but for ranks that end."""
    while isinstance(message := job.agent.from_launcher.get(timeout=20), RankExited):
        continue
    return message


FIRST = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def until(path):
    while not os.path.exists(path):
        time.sleep(0.01)
if os.environ["RANK"] == "1":
    import atexit
    atexit.register(lambda: until({may_die!r}))
    raise ValueError("a bad batch")
until({path!r})
raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1")
"""


@pytest.mark.parametrize("told", [False, True])
def test_the_first_error_is_shown_last_though_its_rank_died_last(
    tmp_path: Path, told: bool
) -> None:
    """The others lose it while it is still dying; with ``told`` they are all stopped meanwhile."""
    path, may_die = tmp_path / "lost", tmp_path / "may_die"
    script = FIRST.format(path=str(path), may_die=str(may_die))
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=2)
        assert job.launcher.stderr
        while "a bad batch" not in job.launcher.stderr.readline():
            continue
        path.touch()
        first = job.agent.expect(RankExited)
        assert isinstance(first, RankExited)
        assert (first.rank, first.kind) == (0, "collective")
        if told:
            job.agent.tell_launcher(Stop(1, 20.0, "a test"))
            while "generation 1 stops" not in job.launcher.stderr.readline():
                continue
            may_die.touch()
            assert isinstance(_after_exits(job), GenerationStopped)
        else:
            may_die.touch()
            second = job.agent.expect(RankExited)
            assert isinstance(second, RankExited)
            assert second.exception == "ValueError: a bad batch"
            assert second.at_boot_ns > first.at_boot_ns
            job.stop(1)
        code, _, errors = job.end(succeeded=False)
    assert code == 1
    assert errors.splitlines()[-1] == "everstep:   ValueError: a bad batch"
    assert "first failure here: rank 1 of generation 1 exited with code 1" in errors


def test_a_core_dump_is_told(tmp_path: Path) -> None:
    script = (
        f"import os, resource; os.chdir({str(tmp_path)!r});"
        "hard = resource.getrlimit(resource.RLIMIT_CORE)[1];"
        "resource.setrlimit(resource.RLIMIT_CORE, (hard, hard)); os.abort()"
    )
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=1)
        exited = job.agent.expect(RankExited)
        job.stop(1)
        _, _, errors = job.end(succeeded=False)
    assert isinstance(exited, RankExited)
    assert exited.signal == signal.SIGABRT
    dumped = any(tmp_path.glob("core*"))
    if dumped:  # else this machine keeps them elsewhere, or nowhere
        assert exited.core_dumped
    assert ("(core dumped)" in errors) == exited.core_dumped
