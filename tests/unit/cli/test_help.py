"""The two helps: of the command that every install has, and of the command line of the cluster."""

import importlib
import pkgutil
import re

import click
import pytest

from everstep.entry import HELP
from everstep_cli import commands
from everstep_cli.main import everstep as cli


def _commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name, command in cli.commands.items():
        below = command.commands if isinstance(command, click.Group) else {}
        found += [(name, command), *((f"{name} {sub}", one) for sub, one in below.items())]
    return found


# Commands of the first help; a later one is found by "everstep help" at least.
FIRST = """
demo run nodes node why findings incidents events jobs job snapshots ettr drain maintenance isolate
release check pause resume inject version completion hang slow help
"""


def test_the_help_of_the_base_install_names_the_commands_that_one_needs_first() -> None:
    assert set(re.findall(r"everstep ([a-z]+)", HELP)) >= set(FIRST.split())
    assert {*FIRST.split(), "help"} - set(cli.commands) == {"help"}
    assert max(map(len, HELP.splitlines())) <= 100


def test_every_command_is_in_the_list_of_the_command_line() -> None:
    told = cli.get_help(click.Context(cli))
    listed = set(re.findall(r"^  ([a-z]+) ", told, re.MULTILINE))
    assert listed >= {*cli.commands, *FIRST.split()} - {"help"}


def test_every_command_that_is_defined_is_listed() -> None:
    modules = [
        importlib.import_module(f"{commands.__name__}.{found.name}")
        for found in pkgutil.iter_modules(commands.__path__)
    ]
    defined = {
        id(one): f"{name} in {module.__name__}"
        for module in modules
        for name, one in vars(module).items()
        if isinstance(one, click.Command)
    }
    listed = {id(command) for _, command in _commands()}
    lost = [name for key, name in defined.items() if key not in listed]
    assert not lost, "a line in COMMANDS of its module is missing, or its module in _GROUPS of main"


def test_both_helps_tell_of_reading_before_changing() -> None:
    for order in (re.findall(r"everstep ([a-z]+)", HELP), list(cli.commands)):
        assert order.index("nodes") < order.index("why") < order.index("jobs")
        assert order.index("ettr") < order.index("drain") < order.index("isolate")
        assert order.index("isolate") < order.index("version") < order.index("completion")


@pytest.mark.parametrize(("name", "command"), _commands(), ids=[name for name, _ in _commands()])
def test_the_help_of_every_command_has_an_example(name: str, command: click.Command) -> None:
    told = command.help or ""
    assert "Example" in told
    assert f"everstep {name}" in told or isinstance(command, click.Group)
