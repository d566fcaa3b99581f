"""Ctrl-C while a command is still being loaded: it ends at once, and says nothing."""

import signal
import subprocess
import sys

import pytest

from fakes.controllers import environment
from fakes.inherited_signals import ignoring

# Has Ctrl-C come in the middle: when a module is looked for that the command needs.
_PROGRAM = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from everstep_common.start import {command}
sys.exit({command}())
"""


def _interrupted(command: str, module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(module=module, command=command), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "module", "arguments"),
    [
        ("main", "everstep", ["nodes"]),
        ("main", "everstep.launch.main", ["run", "--standalone", "train.py"]),
        ("main", "everstep_common.hangs.command", ["hang", "folder"]),
        ("main", "click", ["nodes"]),
        ("agent", "everstep_agent.main", ["--config", "none.toml"]),
        ("controller", "grpc", ["--config", "none.toml"]),
    ],
)
def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_traceback(
    command: str, module: str, arguments: list[str]
) -> None:
    ended = _interrupted(command, module, *arguments)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_a_command_in_the_background_of_a_script_hears_no_ctrl_c() -> None:
    with ignoring(signal.SIGINT):
        ended = _interrupted("main", "everstep.entry", "--version")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("everstep ")
