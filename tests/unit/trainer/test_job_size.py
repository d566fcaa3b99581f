"""How many nodes and ranks a job has, and what it is called."""

import os
import re
from pathlib import Path

import pytest

from everstep.launch.command_line.devices import count_devices, ranks_per_node
from everstep.launch.command_line.job_size import job_name, node_range, parse_nodes
from everstep.launch.command_line.option_parser import UsageError

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOB_NAME": "llama big",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_NODES": "4",
    "SLURM_STEP_NUM_TASKS": "4",
}


@pytest.mark.parametrize(("text", "nodes"), [("4", (4, 4)), ("3:4", (3, 4)), ("1:1", (1, 1))])
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "0", "4:3", "0:2", "a", "1:2:3", "-1", "3:", "²", "٣"])
def test_other_nodes_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="for example 3:4"):
        parse_nodes(text)


def test_srun_tells_how_many_nodes_there_are_unless_the_user_does() -> None:
    assert node_range(None, SLURM) == (4, 4)
    assert node_range("3:3", SLURM) == (3, 3)
    assert node_range(None, {}) == (1, 1)
    batch = {key: value for key, value in SLURM.items() if "STEP" not in key}
    assert node_range(None, batch) == (1, 1)


def test_several_launchers_on_a_node_are_refused() -> None:
    with pytest.raises(UsageError, match="srun --ntasks-per-node=1 everstep run"):
        node_range("2", SLURM | {"SLURM_STEP_NUM_TASKS": "32"})


@pytest.mark.parametrize(
    ("given", "rendezvous", "environ", "name"),
    [
        ("mine", "theirs", SLURM, "mine"),
        (None, "theirs 7", SLURM, "theirs-7"),
        (None, "none", SLURM, "llama-big-77"),
        (None, None, {"SLURM_JOB_ID": "5", "SLURM_JOB_NAME": "x" * 90}, "x" * 62 + "-5"),
        (None, None, {}, "train_llm"),
    ],
)
def test_where_a_job_has_its_name_from(
    given: str | None, rendezvous: str | None, environ: dict[str, str], name: str
) -> None:
    assert job_name(given, rendezvous, ["a/train_llm.py", "-x"], environ) == name


def test_the_script_of_a_command_gives_the_name() -> None:
    assert job_name(None, None, ["python3", "-u", "a/train.py"], {}) == "train"
    assert job_name(None, None, ["./run.sh"], {}) == "run"
    assert job_name(None, None, ["…"], {}) == "job"
    alone = job_name(None, None, ["train.py"], {}, alone=True)
    assert re.fullmatch(r"train-[A-Za-z0-9._-]+", alone)


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b", "x" * 65, "-x"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        job_name(name, None, [], {})


def machine(root: Path, *, files: int = 0, listed: int = 0) -> Path:
    """A root folder with so many GPUs."""
    (root / "dev").mkdir()
    for name in [str(i) for i in range(files)] + ["ctl", "-uvm"]:
        (root / "dev" / f"nvidia{name}").write_text("")
    for i in range(listed):
        (root / "proc/driver/nvidia/gpus" / f"0000:0{i}:00.0").mkdir(parents=True)
    return root


@pytest.mark.parametrize(
    ("environ", "count"),
    [
        ({}, 8),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ({"CUDA_VISIBLE_DEVICES": "2,-1,3"}, 1),
        ({"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(16)))}, 8),
        ({"CUDA_VISIBLE_DEVICES": ",".join(f"MIG-{i}" for i in range(14))}, 14),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, 8),
    ],
)
def test_gpus_are_counted_as_cuda_sees_them(
    tmp_path: Path, environ: dict[str, str], count: int
) -> None:
    assert count_devices(environ, machine(tmp_path, files=8, listed=8)) == count


def test_gpus_whose_files_are_not_made_yet_are_counted_in_the_drivers_list(tmp_path: Path) -> None:
    root = machine(tmp_path, listed=4)
    assert count_devices({}, root) == 4
    assert count_devices({"NVIDIA_VISIBLE_DEVICES": "0,2"}, root) == 2
    assert count_devices({"NVIDIA_VISIBLE_DEVICES": "all"}, root) == 4


def test_words_for_the_number_of_ranks(tmp_path: Path) -> None:
    root = machine(tmp_path, files=2)
    processors = len(os.sched_getaffinity(0))
    assert [ranks_per_node(word, {}, root) for word in ("auto", "gpu", "cpu", "1")] == [
        2,
        2,
        processors,
        1,
    ]
    assert ranks_per_node("auto", {"CUDA_VISIBLE_DEVICES": ""}, root) == processors


def test_more_ranks_than_devices_are_refused_with_a_way_out(tmp_path: Path) -> None:
    root = machine(tmp_path, files=2)
    with pytest.raises(
        UsageError, match="has 2 GPUs; give at most 2, or set CUDA_VISIBLE_DEVICES="
    ):
        ranks_per_node("3", {}, root)
    assert ranks_per_node("3", {"CUDA_VISIBLE_DEVICES": ""}, root) == 3
    with pytest.raises(UsageError, match="no GPU is seen here"):
        ranks_per_node("gpu", {"CUDA_VISIBLE_DEVICES": ""}, root)
