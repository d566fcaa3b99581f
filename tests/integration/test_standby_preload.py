"""What ranks load is told to launchers elsewhere, and their standbys load it. Real launchers."""

import sys
from pathlib import Path

import pytest

from everstep_common.launcher_messages import Settled
from everstep_common.preload import Preload
from everstep_common.reports import GenerationFinished
from fakes.waits import wait_until
from integration.test_trainer_launcher import alive
from integration.trainer_job import Job, joined_job

# A library that sets itself up when it is imported, by what the environment says then.
_LIBRARY = "import os\nSEEN = os.environ.get('CUDA_VISIBLE_DEVICES', 'all')\n"
_SCRIPT = """
import os, sys
warm = "waiting.py" in " ".join(sys.orig_argv)
import everstep
run = everstep.init()
os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["LOCAL_RANK"]
import library
run.step(0)
said = f"rank {run.rank} generation {run.generation} warm {warm} sees {library.SEEN}"
with open(sys.argv[1], "a") as file:
    print(said, file=file)
if run.generation == 1:
    import time; time.sleep(600)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "late.py").touch()
    (folder / "library.py").write_text(_LIBRARY)
    return folder


def _script(folder: Path, text: str = _SCRIPT) -> list[str]:
    path = folder / "scripts" / "train.py"  # what lies beside it is never imported ahead
    path.parent.mkdir()
    path.write_text(text)
    return [sys.executable, str(path), str(folder / "said")]


def _said(folder: Path) -> list[str]:
    path = folder / "said"
    return sorted(path.read_text().splitlines()) if path.exists() else []


def _waiting(job: Job) -> set[int]:
    """Return the processes of the launcher that wait."""
    pid = job.launcher.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(one) for one in children if b"waiting.py" in _words(one)}


def _words(pid: str) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _until_ready(job: Job, count: int) -> None:
    wait_until(lambda: (job.agent.standbys.ready, job.agent.standbys.making) == (count, 0), 60.0)


def _first_generation(job: Job, folder: Path, ranks: int) -> None:
    """Run a generation until its standbys for the next one are there."""
    job.start(1, ranks=ranks)
    wait_until(lambda: len(_said(folder)) == ranks)
    job.agent.tell_launcher(Settled(1))
    _until_ready(job, ranks)
    job.stop(1)


def test_each_standby_sees_the_device_that_its_own_rank_chose(tmp_path: Path, source: Path) -> None:
    options = ["--nproc-per-node", "2"]
    with joined_job(tmp_path, *_script(tmp_path), options=options, modules=[source]) as job:
        _first_generation(job, tmp_path, 2)
        job.start(2, ranks=2)
        job.agent.expect(GenerationFinished)
        # Of ranks that see different devices nobody else is told.
        assert job.agent.preload is None
        job.end()
    assert [line for line in _said(tmp_path) if "generation 2" in line] == [
        "rank 0 generation 2 warm True sees 0",
        "rank 1 generation 2 warm True sees 1",
    ]


def test_what_they_learned_is_not_forgotten_by_the_generation_after(
    tmp_path: Path, source: Path
) -> None:
    script = _script(tmp_path, _SCRIPT.replace("run.generation == 1", "run.generation < 3"))
    with joined_job(tmp_path, *script, modules=[source]) as job:
        _first_generation(job, tmp_path, 1)
        job.start(2, ranks=1)
        wait_until(lambda: len(_said(tmp_path)) == 2)
        job.agent.tell_launcher(Settled(2))
        _until_ready(job, 1)
        job.stop(2)
        job.start(3, ranks=1)
        job.agent.expect(GenerationFinished)
        job.end()
    assert _said(tmp_path)[1:] == [
        "rank 0 generation 2 warm True sees 0",
        "rank 0 generation 3 warm True sees 0",
    ]


def test_where_code_may_have_changed_ranks_are_new_processes(tmp_path: Path, source: Path) -> None:
    with joined_job(tmp_path, *_script(tmp_path), modules=[source]) as job:
        _first_generation(job, tmp_path, 1)
        made = _waiting(job)
        assert len(made) == 1
        assert not made.intersection(job.start(2, ranks=1, renew=True).values())
        job.agent.expect(GenerationFinished)
        wait_until(lambda: not any(map(alive, made)))
        job.end()


def test_code_that_was_changed_meanwhile_is_run(tmp_path: Path, source: Path) -> None:
    with joined_job(tmp_path, *_script(tmp_path), modules=[source]) as job:
        _first_generation(job, tmp_path, 1)
        (source / "library.py").write_text("SEEN = 'new code'\n")
        job.start(2, ranks=1)
        job.agent.expect(GenerationFinished)
        job.end()
    assert _said(tmp_path)[1] == "rank 0 generation 2 warm False sees new code"


_LATE = """
import os, sys
known = "late" in sys.modules
import everstep
run = everstep.init()
def use():
    import late
use()
run.step(0)
with open(sys.argv[1], "a") as file:
    print(f"generation {run.generation} knew {known}", file=file)
if run.generation == 1:
    import time; time.sleep(600)
"""


def test_a_launcher_tells_what_its_ranks_have_loaded_and_another_makes_its_standbys_of_it(
    tmp_path: Path, source: Path
) -> None:
    (source / "late.py").write_text("import os\nassert os.environ['LEVEL'] == '3'\n")
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    text = _LATE.replace("def use", "os.environ['LEVEL'] = '3'\ndef use")
    with joined_job(first, *_script(first, text), modules=[source]) as job:
        _first_generation(job, first, 1)
        wait_until(lambda: job.agent.preload is not None)
        preload = job.agent.preload
        assert preload is not None
        job.start(2, ranks=1)
        job.agent.expect(GenerationFinished)
        job.end()
    assert "late" in preload.modules
    assert preload.variables == {"LEVEL": "3"}
    with joined_job(second, *_script(second, text), modules=[source]) as job:
        _until_ready(job, 1)
        job.agent.tell_launcher(preload)
        job.start(2, ranks=1)
        job.agent.expect(GenerationFinished)
        job.end()
    assert _said(second) == ["generation 2 knew True"]


def test_a_preload_that_is_none_changes_nothing(tmp_path: Path, source: Path) -> None:
    with joined_job(tmp_path, *_script(tmp_path, _LATE), modules=[source]) as job:
        _until_ready(job, 1)
        job.agent.tell_launcher(Preload(("late; os",)))
        job.agent.tell_launcher(Preload(("late",), {"LD_PRELOAD": "x.so"}))
        job.start(2, ranks=1)
        job.agent.expect(GenerationFinished)
        job.end()
    assert _said(tmp_path) == ["generation 2 knew False"]
