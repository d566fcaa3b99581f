"""Every example of the guide to training scripts, as a job and on its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.real_fleet import RealFleet, running_fleet

ROOT = Path(__file__).parents[2]
SURROUNDINGS = (Path(__file__).parent / "training_surroundings.py").read_text(encoding="utf-8")
# What was trained, in numbers; a rank that leaves early must not be seen as a fault by the other.
ENDED = """
with open(os.path.join(os.environ["GUIDE_FOLDER"], os.environ.get("RANK", "0")), "w") as file:
    print(*(float(one.sum()) for one in model.parameters()), file=file)
dist.barrier()
dist.destroy_process_group()
"""
GUIDE = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "training.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)
_PATIENCE_S = 90.0
pytestmark = pytest.mark.timeout(600)


def test_the_guide_has_an_example_of_each_depth_and_of_the_global_batch() -> None:
    assert ["everstep.step" in one for one in GUIDE] == [False, True, True, False]
    assert ["restore" in one for one in GUIDE] == [False, False, True, True]
    assert "run.share" in GUIDE[3]


@pytest.fixture(scope="module")
def fleet() -> Iterator[RealFleet]:
    with running_fleet("node-1") as fleet:
        yield fleet


@pytest.mark.parametrize(
    "depth", range(len(GUIDE)), ids=["unchanged", "steps", "snapshots", "shares"]
)
def test_two_ranks_train_as_one_does_and_the_job_knows_their_steps(
    fleet: RealFleet, depth: int, tmp_path: Path
) -> None:
    script, alone, job = tmp_path / "train.py", tmp_path / "alone", tmp_path / "job"
    script.write_text(SURROUNDINGS + GUIDE[depth] + ENDED, encoding="utf-8")
    for folder in (alone, job):
        folder.mkdir()
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "GUIDE_FOLDER": str(alone)}
    subprocess.run([sys.executable, str(script)], env=os.environ | paths, check=True, timeout=90)
    fleet.variables, fleet.job_name = {"GUIDE_FOLDER": str(job)}, f"depth-{depth}"
    fleet.launch_script([str(script)], processes=2)
    launcher = fleet.launchers["node-1"]
    fleet.until("the end of the job", _PATIENCE_S, lambda: launcher.exit_code is not None)
    assert launcher.exit_code == 0, fleet.logs()
    fleet.until("its last step", _PATIENCE_S, lambda: fleet.job().step == 5)
    wanted = _numbers(alone / "0")
    assert _numbers(job / "0") == _numbers(job / "1") == pytest.approx(wanted, rel=1e-4)


def _numbers(path: Path) -> list[float]:
    return [float(word) for word in path.read_text(encoding="ascii").split()]
