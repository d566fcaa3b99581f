"""How many nodes and ranks a job has, and what it is called."""

import os
import re

import pytest

from everstep.launch.command_line.job_size import (
    is_named,
    job_name,
    node_range,
    parse_nodes,
    program_words,
    replica_nodes,
)
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


def test_a_job_of_this_node_alone_is_one_node_wherever_it_is_started() -> None:
    assert node_range(None, SLURM, alone=True) == (1, 1)
    assert node_range("1:4", {}, alone=True) == (1, 1)
    with pytest.raises(UsageError, match="--nnodes 2 needs more"):
        node_range("2", {}, alone=True)


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


def test_names_in_another_alphabet_are_not_all_the_same_one() -> None:
    names = [job_name(None, text, [], {}) for text in ("实验一", "实验二", "überjob 7")]
    assert len(set(names)) == 3
    assert [re.sub("[0-9a-f]{8}$", "…", name) for name in names] == ["job-…", "job-…", "berjob-7-…"]
    assert len(job_name(None, "ü" * 200 + "x" * 200, [], {})) == 64


def test_a_script_whose_name_is_no_text_has_words_that_can_be_told() -> None:
    words = program_words([os.fsdecode(b"a/\xfftrain.py")], named=False)
    assert words == "?train"
    assert job_name(None, None, [os.fsdecode(b"\xff.py")], {}) == "job"


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b", "x" * 65, "-x"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        job_name(name, None, [], {})


def test_the_words_for_a_program_differ_where_the_scripts_do() -> None:
    assert program_words(["a/train.py", "--lr", "1"], named=True) == "train"
    assert program_words(["b/train.py", "--lr", "2"], named=True) == "train"
    assert program_words(["evaluate.py"], named=True) == "evaluate"


def test_of_a_job_that_nobody_named_the_arguments_are_part_of_the_program() -> None:
    one = program_words(["train.py", "--lr", "1"], named=False)
    assert one.startswith("train with other arguments (")
    assert one != program_words(["train.py", "--lr", "2"], named=False)
    assert one == program_words(["train.py", "--lr", "1"], named=False)
    assert program_words(["train.py"], named=False) == "train"


def test_whoever_gives_a_name_has_named_the_job() -> None:
    assert is_named("mine", None, {})
    assert is_named(None, "theirs", {})
    assert is_named(None, None, SLURM)
    assert not is_named(None, "none", {})


def test_nodes_come_in_whole_copies_of_the_model() -> None:
    assert replica_nodes(2, (2, 6)) == 2
    for given, nodes in ((2, (2, 5)), (0, (1, 1)), (4, (2, 4))):
        with pytest.raises(UsageError, match="--nodes-per-replica"):
            replica_nodes(given, nodes)


_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
_TRAIN_JOB = _POD | {"PET_MASTER_ADDR": "llm-node-0-0.llm", "JOB_COMPLETION_INDEX": "3"}
# Of a version that tells ranks, and of one that tells pods alone.
_PYTORCH_JOB = _POD | {"MASTER_ADDR": "llm-big-master-0", "RANK": "2", "WORLD_SIZE": "32"}


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (_TRAIN_JOB, "llm"),
        (_PYTORCH_JOB, "llm-big"),
        (_POD | {"PET_RDZV_ENDPOINT": "llm-worker-0:29400"}, "llm"),
        (_POD | {"JOBSET_NAME": "set"}, "set"),
        # Somebody's own address outside of Kubernetes says nothing.
        ({"MASTER_ADDR": "gpu-master-0"}, "train_llm"),
        (_POD | {"MASTER_ADDR": "10.0.0.1"}, "train_llm"),
        (_TRAIN_JOB | SLURM, "llama-big-77"),
    ],
)
def test_pods_know_their_jobs_name_by_what_its_operator_sets(
    environ: dict[str, str], name: str
) -> None:
    assert job_name(None, None, ["a/train_llm.py"], environ) == name
    assert is_named(None, None, environ) == (name != "train_llm")


def test_pods_know_how_many_they_are_by_what_their_operator_sets() -> None:
    assert node_range(None, _PYTORCH_JOB) == (32, 32)
    assert node_range(None, _PYTORCH_JOB | {"PET_NPROC_PER_NODE": "8"}) == (4, 4)
    assert node_range("3:4", _PYTORCH_JOB) == (3, 4)
    # Ranks that do not fill the pods, and a world of somebody else's making, tell nothing.
    assert node_range(None, _PYTORCH_JOB | {"PET_NPROC_PER_NODE": "5"}) == (1, 1)
    assert node_range(None, {"WORLD_SIZE": "32", "RANK": "2"}) == (1, 1)


def test_a_pod_of_an_indexed_job_does_not_train_alone_by_mistake() -> None:
    with pytest.raises(UsageError, match="this is pod 3 of an indexed Job"):
        node_range(None, _TRAIN_JOB)
    assert node_range("16", _TRAIN_JOB) == (16, 16)
    assert node_range(None, _TRAIN_JOB, alone=True) == (1, 1)
