"""``everstep run`` as a process: what it starts, shows, survives, and leaves behind (nothing)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_common.launcher_messages import Join, Notice, Started
from everstep_common.reports import GenerationFinished, RankExited
from fakes.waits import wait_until
from integration.trainer_agent import TrainerAgent
from integration.trainer_job import environment, joined_job

WAIT = "import time; time.sleep(600)"


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def launch(*arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run ``everstep`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "everstep.entry", *arguments],
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=30,
    )


def test_ranks_get_torchruns_environment_and_their_lines_a_prefix(tmp_path: Path) -> None:
    script = (
        "import os, sys; e = os.environ; print(*(e[k] for k in ('RANK', 'LOCAL_RANK', 'WORLD_SIZE',"
        "'LOCAL_WORLD_SIZE', 'GROUP_RANK', 'MASTER_ADDR', 'TORCHELASTIC_RUN_ID')));"
        "print('no end', end='', file=sys.stderr)"
    )
    options = ["--logs", str(tmp_path / "logs")]
    with joined_job(tmp_path, sys.executable, "-c", script, options=options) as job:
        job.start(1, ranks=2)
        job.agent.expect(GenerationFinished)
        code, out, errors = job.end()

    assert code == 0
    assert sorted(out.splitlines()) == [
        "[0] 0 0 2 2 0 127.0.0.1 test",
        "[1] 1 1 2 2 0 127.0.0.1 test",
    ]
    assert {"[0] no end", "[1] no end"} <= set(errors.splitlines())
    assert "job test succeeded" in errors
    assert (tmp_path / "logs/gen-1/rank-1.err").read_text() == "no end"


def test_no_line_is_lost_when_a_rank_writes_much_and_dies(tmp_path: Path) -> None:
    script = "import os\nfor i in range(50_000): print('line', i)\nos.kill(os.getpid(), 9)"
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=1)
        out = [job.launcher.stdout.readline() for _ in range(50_000)] if job.launcher.stdout else []
        exited = job.agent.expect(RankExited)

    assert out[-1] == "[0] line 49999\n"
    assert isinstance(exited, RankExited)
    assert (exited.exit_code, exited.signal) == (0, signal.SIGKILL)


def test_the_first_error_is_shown_last(tmp_path: Path) -> None:
    script = "import os; assert os.environ['RANK'] != '1', 'a wrong shape'; " + WAIT
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=2)
        exited = job.agent.expect(RankExited)
        job.stop(1)
        code, _, errors = job.end(succeeded=False)

    assert isinstance(exited, RankExited)
    assert (exited.rank, exited.exit_code) == (1, 1)
    assert exited.last_line == "AssertionError: a wrong shape"
    assert code == 1
    assert errors.splitlines()[-1] == "everstep:   AssertionError: a wrong shape"


def test_a_stop_leaves_no_descendant_behind(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        "import os, subprocess, sys, time\n"
        f"sleep = [sys.executable, '-c', {WAIT!r}]\n"
        "worker = subprocess.Popen(sleep)\n"
        "session = subprocess.Popen(sleep, start_new_session=True)\n"
        f"open({str(pids)!r}, 'w').write(f'{{worker.pid}} {{session.pid}}\\n')\n{WAIT}"
    )
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        processes = job.start(1, ranks=1)
        wait_until(lambda: pids.exists() and pids.read_text().endswith("\n"))
        descendants = [*processes.values(), *map(int, pids.read_text().split())]
        assert all(map(alive, descendants))
        job.stop(1, grace_s=0.5)
        assert not any(map(alive, descendants))


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    script = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on'); {WAIT}"
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        processes = job.start(1, ranks=1)
        assert job.launcher.stdout
        job.launcher.stdout.readline()
        job.stop(1, grace_s=0.2)
        assert not alive(processes[0])
        assert job.start(2, ranks=1) != processes


def test_a_killed_launcher_takes_its_ranks_with_it(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(1, ranks=2)
        job.launcher.kill()
        wait_until(lambda: not any(map(alive, processes.values())))


def test_a_job_outlives_its_agent_and_tells_the_next_one(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(1, ranks=2)
        job.agent.close()
        os.kill(processes[1], signal.SIGKILL)
        wait_until(lambda: not alive(processes[1]))
        job.agent = TrainerAgent(tmp_path / "agent.sock", job.agent.vault)
        join, started = job.agent.expect(Join), job.agent.expect(Started)
        exited = job.agent.expect(RankExited)

        assert isinstance(join, Join)
        assert isinstance(started, Started)
        assert isinstance(exited, RankExited)
        assert join.running_generation == 1
        # The other one only if its end was seen after the next agent.
        assert (0, processes[0]) in [(p.rank, p.pid) for p in started.processes]
        assert exited.rank == 1
        assert alive(processes[0])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_user_who_interrupts_leaves_the_job(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        processes = job.start(1, ranks=1)
        job.launcher.send_signal(number)
        asked = job.user_ends()
        job.launcher.communicate(timeout=20)

    assert asked.reason == number.name
    assert job.launcher.returncode == code
    assert not alive(processes[0])


def test_a_node_that_is_sent_away_by_itself_leaves_the_job_to_the_others(tmp_path: Path) -> None:
    options = ["--on-sigterm", "leave"]
    with joined_job(tmp_path, sys.executable, "-c", WAIT, options=options) as job:
        processes = job.start(1, ranks=2)
        job.launcher.send_signal(signal.SIGTERM)
        _, errors = job.launcher.communicate(timeout=20)

    assert job.launcher.returncode == 143
    assert errors.splitlines()[-1] == "everstep: this node left job test on SIGTERM"
    assert not any(map(alive, processes.values()))


def test_old_orders_do_nothing_and_a_stop_is_answered_again(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        job.start(3, ranks=1)
        job.stop(3)
        job.stop(3)
        job.agent.tell_launcher(Notice("waiting as a spare"))
        code, _, errors = job.end()
    assert code == 0
    assert "everstep: waiting as a spare" in errors


def test_a_wrong_token_is_refused_at_once(tmp_path: Path) -> None:
    with joined_job(tmp_path, sys.executable, "-c", WAIT) as job:
        socket = str(tmp_path / "agent.sock")
        other = launch(
            "run", "--job", "x", "--socket", socket, "--", "true", EVERSTEP_JOB_TOKEN="no"
        )
        assert job.launcher.poll() is None
    assert (other.returncode, other.stderr) == (
        1,
        "everstep: refused: this is not the job's token\n",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--socket", "/none", "--", "true"], 1, "no agent answers at /none"),
        (["--nnodes", "4:3", "--", "true"], 2, "expected a number or MIN:MAX"),
        (["--", "no-such-command"], 2, "no command 'no-such-command' on this node"),
        (["--", "python3", "no_such.py"], 2, "no script 'no_such.py'"),
        (["no_such.py"], 2, "no script 'no_such.py' in "),
        (["--nnods", "3", "no_such.py"], 2, "'--nnods' is no option; did you mean --nnodes?"),
        ([], 2, "end the command with 'train.py …' or '-- python train.py …'"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(arguments: list[str], code: int, sentence: str) -> None:
    result = launch("run", "--job", "x", *arguments, EVERSTEP_JOB_TOKEN="t")
    assert result.returncode == code
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1


def test_that_a_job_shall_begin_anew_is_not_said_again_when_it_has_begun(tmp_path: Path) -> None:
    with joined_job(tmp_path, "sleep", "600", options=["--fresh"]) as job:
        assert job.join.fresh
        job.start(1, ranks=1)
        job.stop(1)
        job.agent.hang_up()
        again = job.agent.expect(Join)
        assert isinstance(again, Join)
        assert (again.fresh, again.running_generation) == (False, 0)
