"""The command line of ``everstep run``."""

import os
import signal
import sys
from pathlib import Path

import pytest

from everstep.launch.command_line.launch_parser import launch_parser
from everstep.launch.command_line.option_parser import UsageError
from everstep.launch.command_line.options import LaunchOptions, default_socket, parse_options
from everstep.launch.command_line.torchrun_options import OPTIONS


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A script in the current folder."""
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return "train.py"


def parsed(line: str, **environ: str) -> LaunchOptions:
    return parse_options(line.split(), environ)


def test_all_options() -> None:
    line = "--job j --nnodes 2:3 --nproc-per-node 8 --policy wait --max-restarts 2 --socket /s"
    options = parse_options([*line.split(), "--", sys.executable, "-c", "pass", "--", "--job"])
    assert (options.job, options.nodes_min, options.nodes_max) == ("j", 2, 3)
    assert (options.processes_per_node, options.reform, options.restarts_max) == (8, False, 2)
    assert options.socket == "/s"
    assert options.command == (sys.executable, "-c", "pass", "--", "--job")


def test_whose_time_it_is_the_user_says_or_the_environment_or_slurm(script: str) -> None:
    slurm = {"SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_ACCOUNT": "nlp"}
    for line, environ, expected in (
        ("train.py", {}, ("", "")),
        ("train.py", slurm, ("gpu", "nlp")),
        ("train.py", {**slurm, "EVERSTEP_QUEUE": "big"}, ("big", "nlp")),
        ("--queue mine --account own train.py", slurm, ("mine", "own")),
    ):
        options = parsed(line, **environ)
        assert (options.queue, options.account) == expected


def test_a_line_of_torchrun_means_the_same(script: str, tmp_path: Path) -> None:
    options = parsed(
        "--nnodes=1:2 --nproc_per_node 2 --max_restarts=3 --rdzv_id=llama --rdzv-backend c10d "
        "--rdzv-endpoint=node-1:29400 --role trainer --tee 3 "
        f"--log_dir {tmp_path}/logs train.py --lr 3 -- -m"
    )
    assert options.command == (sys.executable, "-u", script, "--lr", "3", "--", "-m")
    assert (options.job, options.role) == ("llama", "trainer")
    assert (options.nodes_min, options.nodes_max, options.processes_per_node) == (1, 2, 2)
    assert options.restarts_max == 3
    assert options.streams.folder == tmp_path / "logs"
    assert options.notes[0].startswith("--rdzv-backend, --rdzv-endpoint are not needed")


def test_variables_stand_for_options_as_with_torchrun(script: str) -> None:
    options = parsed(
        "--nnodes 4 train.py",
        PET_NNODES="2",
        PET_NPROC_PER_NODE="3",
        PET_MASTER_ADDR="node-1",
        PET_NO_PYTHON="0",
        OMP_NUM_THREADS="2",
    )
    assert (options.nodes_max, options.processes_per_node) == (4, 3)
    assert options.notes == (
        "--master-addr is not needed: who takes part, with which rank, and where they meet is in"
        " the controller's plan",
    )


def test_variables_stand_for_options_of_torchrun_only(script: str) -> None:
    options = parsed("train.py", PET_POLICY="bogus", PET_FRESH="1", PET_PROGRESS_PATTERN="(x)")
    assert options == parsed("train.py")


def test_what_is_refused_is_refused_as_a_variable_too(script: str) -> None:
    with pytest.raises(UsageError, match="--duplicate-stdout-filters is torchrun's and not known"):
        parsed("train.py", PET_DUPLICATE_STDOUT_FILTERS="loss")
    assert parsed("train.py", PET_DUPLICATE_STDOUT_FILTERS="").notes == ()


def test_a_local_rank_may_be_virtual(script: str) -> None:
    assert not parsed("train.py", PET_VIRTUAL_LOCAL_RANK="0").virtual_local_rank
    for options in (
        parsed("train.py", PET_VIRTUAL_LOCAL_RANK="1"),
        parsed("--virtual-local-rank --nproc-per-node 2 train.py", CUDA_VISIBLE_DEVICES="3,5"),
    ):
        assert options.virtual_local_rank
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES=3 has not a GPU for each of 2"):
        parsed("--virtual-local-rank --nproc-per-node 2 train.py", CUDA_VISIBLE_DEVICES="3")


def test_the_beginning_of_an_option_of_torchrun_is_enough(script: str) -> None:
    options = parsed("--nproc=2 --nn 3 --modu --virt --max_r 1 json.tool", OMP_NUM_THREADS="1")
    assert (options.processes_per_node, options.nodes_max, options.restarts_max) == (2, 3, 1)
    assert options.command[-2:] == ("-m", "json.tool")
    with pytest.raises(UsageError, match="'--polic' is no option; did you mean --policy"):
        parsed("--polic wait train.py")


def test_an_agent_that_somebody_names_is_not_replaced_by_one_of_the_job(script: str) -> None:
    assert parsed("--stand train.py").may_start_services
    assert not parsed("train.py").may_start_services
    assert not parsed("--standalone --socket /a train.py").may_start_services
    assert not parsed("--standalone train.py", EVERSTEP_SOCKET="/a").may_start_services


def test_signals_that_are_named_end_the_job_and_are_what_ranks_get(script: str) -> None:
    assert parsed("train.py").ends_on == ()
    assert parsed("--signals-to-handle SIGTERM train.py").ends_on == ()
    found = parsed("--signals-to-handle SIGTERM,SIGINT,SIGUSR1, train.py").ends_on
    assert found == (signal.SIGINT, signal.SIGUSR1)


def test_how_long_ranks_may_take_to_end(script: str) -> None:
    variable = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "40"}
    assert parsed("train.py").grace_s is None
    assert parsed("--grace 20 train.py", **variable).grace_s == 40
    assert parsed("--shutdown-timeout 30 train.py", **variable).grace_s == 30
    with pytest.raises(UsageError, match="TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon: expected seconds"):
        parsed("train.py", TORCH_ELASTIC_SHUTDOWN_TIMEOUT="soon")


def test_what_has_no_effect_is_said_with_the_reason(script: str) -> None:
    notes = parsed("--event-log-handler console --monitor-interval 1 train.py").notes
    assert notes[0] == "--monitor-interval has no effect: the end of a rank is noticed at once"
    assert "--event-log-handler has no effect: 'everstep events'" in notes[1]


def test_every_option_of_torchrun_is_known(script: str) -> None:
    run = pytest.importorskip("torch.distributed.run")
    theirs = {
        name
        for action in run.get_args_parser()._actions
        for name in action.option_strings
        if name.startswith("--") and "_" not in name
    }
    assert theirs - {"--help"} == OPTIONS
    known = launch_parser()._option_string_actions
    assert theirs <= known.keys()


def test_threads_of_openmp_are_told_of_where_there_are_several_ranks(script: str) -> None:
    assert parsed("train.py").notes == ()
    assert "OMP_NUM_THREADS is 1" in parsed("--nproc-per-node 2 train.py").notes[0]


def test_streams_in_files_without_a_folder_get_one_that_is_told(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    options = parsed("-r 3 train.py")
    assert options.streams.folder is not None
    assert options.streams.folder.parent == tmp_path
    assert str(options.streams.folder) in options.notes[0]
    options.streams.tidy()
    assert not options.streams.folder.exists()


def test_a_folder_that_the_user_named_stays_though_nothing_is_in_it(
    script: str, tmp_path: Path
) -> None:
    parsed(f"-r 3 --log-dir {tmp_path}/mine train.py").streams.tidy()
    assert (tmp_path / "mine").is_dir()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--job j --nodes 2 -- true", "'--nodes' is no option; did you mean --nnodes"),
        ("--bogus 1 train.py", "'--bogus' is no option; 'everstep run --help' lists them"),
        ("--log-dir /proc/none train.py", "--log-dir /proc/none: nothing can be written there"),
        ("--logs /dev/null/x train.py", "--logs /dev/null/x: nothing can be written there"),
        ("--zzz train.py", "'--zzz' is no option; 'everstep run --help' lists them"),
        ("--max-restarts many train.py", "invalid int value: 'many'; 'everstep run --help'"),
        ("--max-restarts -1 train.py", "must not be below 0"),
        ("--max-restarts 99999999999999999999 train.py", "nor above 2147483647"),
        ("--shutdown-timeout inf train.py", "--shutdown-timeout is inf: expected 0 to 604800 s"),
        ("--grace nan train.py", "--grace is nan: expected"),
        ("--grace 1e11 train.py", "--grace is 1e\\+11: expected"),
        ("--nproc-per-node some train.py", "expected a number above 0, auto, gpu or cpu"),
        ("--numa-binding node train.py", "not known here; start numactl"),
        ("--duplicate-stdout-filters a train.py", "not known here; keep the output in files"),
        ("--rdzv-e h --no train.py", "'--no' may be --no-python or --node-rank; write it out"),
        ("--signals-to-handle SIGUSR1,SIGKILL train.py", "'SIGKILL' cannot be handled; name"),
        ("--signals-to-handle USR1 train.py", "'USR1' cannot be handled; name signals such as"),
        ("--redirects 4 train.py", r"--redirects '4': expected 0 \(none\)"),
        ("--local-ranks-filter a train.py", "expected local ranks, for example 0,2"),
        ("--progress-pattern ( train.py", "correct it"),
        ("--progress-pattern done train.py", "put brackets around the number"),
        ("--job", "--job: expected one argument"),
        ("--policy", "expected one argument"),
    ],
)
def test_what_cannot_be_used_is_told_with_the_next_step(script: str, line: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parsed(line)


def test_the_socket_may_be_named_in_the_environment() -> None:
    assert default_socket({"EVERSTEP_SOCKET": "/x"}) == "/x"
    assert default_socket({}).endswith("agent.sock")


def test_help_teaches_and_knows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_options(["--help"], {**os.environ, "COLUMNS": "100"})
    text = capsys.readouterr().out
    assert left.value.code == 0
    for word in ("srun", "--nproc-per-node", "--tee", "--progress-pattern", "everstep.step(n)"):
        assert word in text


def test_help_fits_a_terminal_of_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"], {**os.environ, "COLUMNS": "80"})
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
