"""What a launcher tells of a rank that wrote much before, in and after its exception."""

import sys
from pathlib import Path

import pytest

from everstep_common.launcher_messages import OutputSeen, StepSeen
from everstep_common.reports import RankExited
from integration.trainer_job import joined_job

# As torch's libraries write: past sys.stderr, and more than the launcher keeps of the end.
NOISE = (
    "import atexit, os\n"
    "def noise():\n"
    "    for n in range(60):\n"
    "        os.write(2, b'[rank0]:[E1121 15:01:02.12345 ProcessGroupNCCL.cpp:629] Watchdog\\n')\n"
    "        os.write(2, b'frame #%d: c10d::ProcessGroupNCCL::run() + 0x1 (in /x.so)\\n' % n)\n"
)
LONG = "'bad fields:' + ''.join(f'\\n  field {n}' for n in range(60))"
OOM = "'CUDA out of memory. Tried to allocate 2.00 GiB'"


@pytest.mark.parametrize(
    ("script", "kind", "exception", "signal"),
    [
        (f"raise ValueError({LONG})", "exception", "ValueError: bad fields:", 0),
        (
            f"{NOISE}atexit.register(noise)\nraise RuntimeError({OOM})",
            "device_memory",
            f"RuntimeError: {OOM[1:-1]}",
            0,
        ),
        (
            f"{NOISE}atexit.register(lambda: (noise(), os.abort()))\nraise ValueError('bad batch')",
            "exception",
            "ValueError: bad batch",
            6,
        ),
    ],
)
def test_the_exception_is_told_and_said_last(
    tmp_path: Path, script: str, kind: str, exception: str, signal: int
) -> None:
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=1)
        exited = job.agent.expect(RankExited)
        job.stop(1)
        _, _, errors = job.end(succeeded=False)
    assert isinstance(exited, RankExited)
    assert (exited.kind, exited.exception, exited.signal) == (kind, exception, signal)
    assert exited.last_line == exception
    assert errors.splitlines()[-1] == f"everstep:   {exception}"


def test_a_progress_bar_is_not_told_as_why_a_rank_was_killed(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "for n in range(1, 4):\n"
        "    print(f'\\r{n}%|#   | {n}/100 [00:01<00:99, 1.00it/s]', end='', file=sys.stderr)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    with joined_job(tmp_path, sys.executable, "-c", script) as job:
        job.start(1, ranks=1)
        exited = job.agent.from_launcher.get(timeout=20)
        while isinstance(exited, StepSeen | OutputSeen):  # of the bar
            exited = job.agent.from_launcher.get(timeout=20)
        job.stop(1)
        _, _, errors = job.end(succeeded=False)
    assert isinstance(exited, RankExited)
    assert (exited.kind, exited.last_line, exited.signal) == ("killed", "", 9)
    first = "everstep: first failure here: rank 0 of generation 1 was killed by SIGKILL"
    assert errors.splitlines()[-1] == first
