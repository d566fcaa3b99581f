"""The base install, as a wheel in an environment with nothing else in it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from integration.trainer_job import REPOSITORY


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of a fresh base install."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("hatchling is not installed: it builds the wheel without a network")
    folder = tmp_path_factory.mktemp("install")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    built = ["wheel", str(REPOSITORY), "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*pip, *built], check=True, timeout=120)
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    wheel = next(folder.glob("everstep-*.whl"))
    into = ["--python", str(venv / "bin/python"), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *into], check=True, timeout=120)
    return venv / "bin"


def call(commands: Path, *line: str) -> "subprocess.CompletedProcess[str]":
    """Run an installed command with an empty environment."""
    path = {"PATH": f"{commands}:/usr/bin:/bin", "HOME": str(commands.parent)}
    return subprocess.run(
        [str(commands / line[0]), *line[1:]], env=path, capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize(
    ("line", "extra"),
    [
        ("everstep nodes", "cli"),
        ("everstep demo", "all"),
        ("everstep version", "cli"),
        ("everstep-agent", "agent"),
        ("everstep-controller", "controller"),
    ],
)
def test_without_its_extra_a_command_names_the_pip_line(
    commands: Path, line: str, extra: str
) -> None:
    result = call(commands, *line.split())
    assert result.returncode == 2, result.stderr
    assert f"run: {commands}/python -m pip install 'everstep[{extra}]'" in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_base_install_has_no_services_of_its_own_to_start(commands: Path) -> None:
    result = call(commands, "everstep", "run", "--standalone", "--", "true")
    assert result.returncode == 1
    assert f"run: {commands}/python -m pip install 'everstep[all]'" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("everstep", "on every node of a job"),
        ("everstep --help", "on every node of a job"),
        ("everstep --version", "everstep 0."),
        ("everstep-agent --version", "everstep-agent 0."),
        ("everstep run --help", "wait as spares"),
    ],
)
def test_the_base_install_teaches_and_runs(commands: Path, line: str, words: str) -> None:
    result = call(commands, *line.split())
    assert result.returncode == 0, result.stderr
    assert words in result.stdout


def test_the_base_install_imports_nothing_but_the_standard_library(commands: Path) -> None:
    program = (
        # What the interpreter itself brings (Debian's sitecustomize) is not ours to judge.
        "import sys; before = set(sys.modules);"
        "import everstep, everstep.launch.main, everstep.entry;"
        "known = sys.stdlib_module_names | {'everstep', 'everstep_common'};"
        "print({name.partition('.')[0] for name in set(sys.modules) - before} - known)"
    )
    assert call(commands, "python", "-c", program).stdout == "set()\n"
