"""The command line of ``everstep run``."""

import sys
from pathlib import Path

import pytest

from everstep.launch.options import (
    UsageError,
    checked_command,
    default_socket,
    parse_nodes,
    parse_options,
)


@pytest.mark.parametrize(("text", "nodes"), [("4", (4, 4)), ("3:4", (3, 4)), ("1:1", (1, 1))])
def test_nodes(text: str, nodes: tuple[int, int]) -> None:
    assert parse_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "0", "4:3", "0:2", "a", "1:2:3", "-1", "3:", "²"])
def test_other_nodes_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="for example 3:4"):
        parse_nodes(text)


def test_all_options() -> None:
    line = "--job j --nnodes 2:3 --nproc-per-node 8 --policy wait --max-restarts 2 --socket /s"
    options = parse_options([*line.split(), "--", sys.executable, "-c", "pass", "--", "--job"])
    assert (options.job, options.nodes_min, options.nodes_max) == ("j", 2, 3)
    assert (options.processes_per_node, options.reform, options.restarts_max) == (8, False, 2)
    assert options.socket == "/s"
    assert options.command == (sys.executable, "-c", "pass", "--", "--job")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--job j python train.py", "put '--' before what to start: .* -- python train.py"),
        ("--job j --nodes 2 -- true", "'--nodes' is no option"),
    ],
)
def test_what_is_no_option_is_told_with_the_next_step(line: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_options(line.split())


@pytest.mark.parametrize("name", ["", "../x", "a b", "a/b", "x" * 65, "-x"])
def test_a_name_that_is_no_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        parse_options([f"--job={name}", "--", "true"])


def test_a_script_that_is_not_there_is_found_before_anything_starts(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    with pytest.raises(UsageError, match="no script"):
        checked_command(["python3", "-u", str(script)])
    script.write_text("")
    assert checked_command(["python3", "-u", str(script)])[-1] == str(script)
    assert checked_command(["python3", "-m", "no.such.module.py"])
    with pytest.raises(UsageError, match="not executable; write '-- python"):
        checked_command([str(script)])


def test_the_socket_may_be_named_in_the_environment() -> None:
    assert default_socket({"EVERSTEP_SOCKET": "/x"}) == "/x"
    assert default_socket({}).endswith("agent.sock")
