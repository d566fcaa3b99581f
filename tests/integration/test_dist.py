"""What `make dist` builds, in an environment with nothing else in it than its dependencies."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from integration.trainer_job import REPOSITORY

pytest.importorskip("hatchling", reason="it builds the archives without a network")
pytestmark = pytest.mark.timeout(300)

_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
# Where the units expect the programs and their documentation.
_PLACE = "/opt/everstep/"
_XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."


def run(*line: str | Path, cwd: Path = REPOSITORY) -> None:
    """Run a command that succeeds."""
    subprocess.run(line, check=True, timeout=180, cwd=cwd)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the wheel and the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "--directory", folder)
    return folder


@pytest.fixture(scope="module", params=["wheel", "source"])
def place(request: pytest.FixtureRequest, built: Path) -> Path:
    """An environment into which one of the two was installed; what it depends on is found."""
    place = built / str(request.param)
    if request.param == "source":
        (archive,) = built.glob("everstep-*.tar.gz")
        run(*_PIP, "wheel", archive, "--no-deps", "--no-build-isolation", "-w", place / "built")
        (wheel,) = (place / "built").glob("everstep-*.whl")
    else:
        (wheel,) = built.glob("everstep-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", place)
    python = place / "bin/python"
    run(*_PIP, "--python", python, "install", "--no-deps", "--no-index", wheel)
    # A folder that a .pth file names is searched, and no .pth file in it is read: so the checkout,
    # which is installed there in place, is not found.
    (packages,) = place.glob("lib/python3*/site-packages")
    found = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(found) + "\n")
    return place


def call(place: Path, *line: str) -> "subprocess.CompletedProcess[str]":
    """Run an installed command, of a user who has nothing yet."""
    home = place / "home"
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [str(place / "bin" / line[0]), *line[1:]],
        env={"PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": str(home), "LANG": "C.UTF-8"},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_is_installed_is_what_is_found(place: Path) -> None:
    program = "import everstep, everstep_agent, everstep_controller, everstep_cli.demo.cluster as c"
    program += "; print(everstep.__file__, c.training_script(), c.training_script().exists())"
    told = call(place, "python", "-c", program).stdout.split()
    assert [Path(path).is_relative_to(place) for path in told[:2]] == [True, True]
    assert told[2] == "True"


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["everstep"], 0, "everstep run --standalone"),
        (["everstep", "--version"], 0, "everstep 0."),
        (["everstep", "run", "--help"], 0, "It replaces torchrun"),
        (["everstep", "run", "--standalone", "--", "echo", "step 0"], 0, "nothing failed"),
        (["everstep", "nodes"], 1, "everstep-controller"),
        (["everstep-agent", "--version"], 0, "everstep-agent 0."),
        (["everstep-agent", "check", "--only", "kernel", "--json"], None, '"exit_code"'),
        (["everstep-agent", "inventory", "--help"], 0, "inventory"),
        (["everstep-agent", "read-log", "kern.log"], 1, "XidFatal"),
        (["everstep-agent", "leave-cluster", "--help"], 0, "leave-cluster"),
        (["everstep-agent", "hold", "--help"], 0, "hold"),
        (["everstep-controller", "--version"], 0, "everstep-controller 0."),
        (["everstep-controller", "recover", "--help"], 0, "recover"),
        (["everstep-controller", "replay", "--help"], 0, "replay"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_program_runs(place: Path, line: list[str], code: int | None, words: str) -> None:
    call(place, "python", "-c", f"open('kern.log', 'w').write({_XID + chr(10)!r})")
    told = call(place, *line)
    assert words in told.stdout + told.stderr
    assert told.returncode == code or (code is None and told.returncode in range(4))


def test_each_command_of_everstep_explains_itself(place: Path) -> None:
    listed = call(place, "everstep", "help").stdout.partition("Commands:")[2]
    commands = re.findall(r"^  ([a-z-]+)", listed, re.MULTILINE)
    assert len(commands) > 15
    told = {command: call(place, "everstep", command, "--help") for command in commands}
    assert [command for command, one in told.items() if one.returncode] == []
    assert [command for command, one in told.items() if "sage:" not in one.stdout] == []


@pytest.mark.parametrize("daemon", ["agent", "controller"])
def test_what_a_unit_names_is_installed_and_so_is_the_unit(place: Path, daemon: str) -> None:
    shipped = place / "share/everstep/systemd"
    unit = (shipped / f"everstep-{daemon}.service").read_text()
    named = re.findall(rf"(?:file:|ExecStart=){_PLACE}(\S+)", unit)
    assert len(named) == 3
    assert [path for path in named if not (place / path).is_file()] == []
    for name in (f"{daemon}.toml", "sysusers.d/everstep.conf", "tmpfiles.d/everstep.conf"):
        assert (shipped / name).is_file()
