"""A script finds the same under ``everstep run`` as under the real torchrun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from everstep_common.reports import GenerationFinished
from integration.trainer_job import environment, joined_job

_SCRIPT = """
import json, os, sys
found = {"environ": dict(os.environ), "argv": sys.argv, "name": __name__,
         "unbuffered": sys.stdout.write_through}
json.dump(found, open(os.path.join(sys.argv[1], os.environ["RANK"] + ".json"), "w"))
"""
# Which run it is, and where its ranks meet.
_OF_THE_RUN = {"TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"}
# Where they differ, and why: rank 0 makes the store here, an error is read from stderr, and the
# last one is torchrun's word to itself.
_OTHERWISE = {
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_SIGNALS_TO_HANDLE",
}
_OPTIONS = ("--nproc_per_node", "2", "--max-restarts=3", "--role", "trainer")
Found = dict[int, dict[str, object]]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "train.py"
    path.write_text(_SCRIPT)
    return path


@pytest.fixture(scope="module")
def under_torchrun(script: Path) -> Found:
    folder = script.parent / "torchrun"
    folder.mkdir()
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", *_OPTIONS]
    arguments = [str(script), str(folder), "--lr", "${local_rank}"]
    subprocess.run([*line, *arguments], env=environment(), check=True, timeout=60)
    return _read(folder)


@pytest.fixture(scope="module")
def under_everstep(script: Path) -> Found:
    folder = script.parent / "everstep"
    folder.mkdir()
    command = [str(script), str(folder), "--lr", "${local_rank}"]
    with joined_job(folder, *command, options=_OPTIONS) as job:
        job.start(1, ranks=2)
        job.agent.expect(GenerationFinished)
        job.end()
    return _read(folder)


def _read(folder: Path) -> Found:
    return {rank: json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)}


def _variables(found: Found, rank: int) -> dict[str, str]:
    environ = found[rank]["environ"]
    assert isinstance(environ, dict)
    before = environment()
    return {key: value for key, value in environ.items() if key not in before}


@pytest.mark.parametrize("rank", [0, 1])
def test_every_variable_of_torchrun_is_there_and_the_same(
    under_torchrun: Found, under_everstep: Found, rank: int
) -> None:
    theirs, ours = _variables(under_torchrun, rank), _variables(under_everstep, rank)
    expected = {key: value for key, value in theirs.items() if key not in _OTHERWISE | _OF_THE_RUN}
    assert {key: ours.get(key) for key in expected} == expected
    assert ours.keys() >= _OF_THE_RUN
    assert ours["TORCHELASTIC_USE_AGENT_STORE"] == "False"


def test_the_arguments_are_the_same(under_torchrun: Found, under_everstep: Found) -> None:
    for rank in (0, 1):
        theirs, ours = under_torchrun[rank], under_everstep[rank]
        assert isinstance(theirs["argv"], list)
        assert isinstance(ours["argv"], list)
        # All but the folder that each of them writes into.
        assert ours["argv"][0] == theirs["argv"][0]
        assert ours["argv"][2:] == theirs["argv"][2:] == ["--lr", str(rank)]
        assert ours["name"] == theirs["name"] == "__main__"
        assert ours["unbuffered"] == theirs["unbuffered"] is True
