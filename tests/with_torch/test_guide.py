"""Every example of the guide to snapshots, and that of README.md, as a job that goes on later."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.real_fleet import JOB, running_fleet

REPOSITORY = Path(__file__).parents[2]
SURROUNDINGS = (Path(__file__).parent / "guide_surroundings.py").read_text(encoding="utf-8")
_PATIENCE_S = 90.0
STEPS = 8
# A process that leaves early must not be seen as a fault by the other.
ENDED = "dist.barrier()\ndist.destroy_process_group()\n"
# What is written down of a step, in this order, by what an example must name to have it restored.
_RESTORED = ('"optimizer"', '"momentum"', '"counts"')


def examples(path: str) -> list[str]:
    """Return the Python examples of a document."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


# That for JAX is run by tests/with_jax.
GUIDE = [one for one in examples("docs/snapshots.md") if "integrations.jax" not in one]
TRAINING = [*examples("README.md"), *(one for one in GUIDE if "train(step)" in one)]
(GOING_BACK,) = (one for one in GUIDE if "run.report" in one)
READING = [one for one in GUIDE if "train(step)" not in one and one is not GOING_BACK]


# One batch spoils the state of whoever trains on it.
BAD_DATA = """
import math
import os
import numpy as np
import everstep
weights = np.zeros(4)
state, steps, batches = {"weights": weights}, 12, list(range(40))
def train(batch):
    weights[:] += 1
    with open(os.environ["GUIDE_FOLDER"] + "/seen", "a") as file:
        file.write(f"{batch}\\n")
    return math.nan if batch == 5 else 1.0
"""


def run(example: str, store: Path, steps: int, folder: Path | str = "") -> dict[int, list[float]]:
    """Run an example to its end, as a job of two processes; return what was written down of it."""
    with running_fleet("node-1") as fleet:
        script = fleet.folder / "train.py"
        script.write_text(SURROUNDINGS + example + ENDED)
        fleet.variables = {"GUIDE_STEPS": str(steps), "GUIDE_FOLDER": str(folder)}
        fleet.launcher_options = ("--persist", str(store), "--persist-every", "2", "--continue")
        fleet.launch_script([str(script)], processes=2)
        launcher = fleet.launchers["node-1"]
        fleet.until("the end of the job", _PATIENCE_S, lambda: launcher.exit_code is not None)
        assert launcher.exit_code == 0, fleet.logs()
        return trained(fleet.folder / "losses")


def begin(example: str, store: Path) -> int:
    """Run an example for some steps; return the one that it left in storage."""
    run(example, store, STEPS, store / JOB)
    return stored(store)


def stored(store: Path) -> int:
    """Return the step that the next job would go on from."""
    path = store / JOB / "latest"
    target = json.loads(path.read_text())["target"] if path.exists() else None
    return int(target["step"]) if target else -1


def trained(folder: Path) -> dict[int, list[float]]:
    """Return, of each step, how often what was trained had been updated by then."""
    lines = [
        line.split("\t")
        for path in folder.glob("*.tsv")
        for line in path.read_text(encoding="ascii").splitlines()
    ]
    return {int(step): [float(count) for count in updates] for step, *updates in lines}


def test_the_documents_have_these_examples() -> None:
    assert (len(TRAINING), len(READING)) == (9, 2)


# Those that differ most: DistributedDataParallel and overlap. One that is sharded is run below.
_ALWAYS = (4, 7)
_EXAMPLES = [
    pytest.param(one, id=str(number), marks=() if number in _ALWAYS else pytest.mark.long)
    for number, one in enumerate(TRAINING)
]


@pytest.mark.parametrize("example", _EXAMPLES)
def test_an_example_goes_on_in_a_new_job_from_what_an_older_one_left(
    example: str, tmp_path: Path
) -> None:
    left = begin(example, tmp_path)
    done = run(example, tmp_path, left + 4)
    assert sorted(done) == list(range(left + 1, left + 4))
    named = [index for index, word in enumerate(_RESTORED) if word in example]
    assert named
    for step, updates in done.items():
        assert [updates[index] for index in named] == [step + 1] * len(named), f"step {step}"


def test_a_bad_loss_goes_back_and_around_the_data_of_it(tmp_path: Path) -> None:
    with running_fleet("node-1") as fleet:
        script = fleet.folder / "train.py"
        script.write_text(BAD_DATA + GOING_BACK)
        fleet.variables = {"GUIDE_FOLDER": str(tmp_path)}
        fleet.launch_script([str(script)], processes=1)
        launcher = fleet.launchers["node-1"]
        fleet.until("the end of the job", _PATIENCE_S, lambda: launcher.exit_code is not None)
        assert launcher.exit_code == 0, fleet.logs()
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert seen.count(5) == 1
    # Twelve steps, and one batch left out.
    assert (seen[-1], set(range(13)) - set(seen)) == (12, set())


def test_a_stored_step_is_opened_without_everstep(tmp_path: Path) -> None:
    (sharded,) = (one for one in TRAINING if "fully_shard" in one)
    begin(sharded, tmp_path)
    known = {"GUIDE_STEPS": "0", "GUIDE_FOLDER": str(tmp_path / JOB)}
    spoiled = "for one in model.parameters():\n    nn.init.constant_(one, 9.0)\n"
    shown = {
        "load_file": "print(*sorted(tensors))\n",
        "dcp.load": "print(max(float(one.max()) for one in model.parameters()) < 9)\n",
    }
    said = [
        _said(SURROUNDINGS + spoiled + example + last, known)
        for example in READING
        for word, last in shown.items()
        if word in example
    ]
    assert {"model/0.weight", "rank-0/random#tree"} <= set(said[0].split(" "))
    assert said[1] == "True"


def _said(program: str, variables: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
