"""Program of the ranks: the command that each executes, checked before anything is started."""

import difflib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence

from everstep.launch.command_line.option_parser import Line, UsageError

_NOTHING = "what to start is missing; end the command with 'train.py …' or '-- python train.py …'"


def program(
    line: Line,
    environ: Mapping[str, str] = os.environ,
    *,
    module: bool = False,
    no_python: bool = False,
) -> tuple[str, ...]:
    """Return the command of each rank. Raises UsageError when it cannot be started here.

    As torchrun: a script is run by this interpreter, unless ``no_python``; or it is a ``module``.
    After '--' the command begins with its program.
    """
    command = line.command
    if not command:
        raise UsageError(_NOTHING)
    _checked_current_folder()
    if module and no_python:
        raise UsageError("--module needs Python; leave out --no-python")
    interpreter = _interpreter(environ)
    if module:
        return (interpreter, "-u", "-m", *_checked_module(command, interpreter))
    if no_python:
        return checked_command(command)
    if line.parted and not command[0].endswith(".py"):
        return checked_command(command)
    return (interpreter, "-u", *_checked_script(command))


def checked_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that begins with its program, when that is there. Raises UsageError."""
    if not command:
        raise UsageError(_NOTHING)
    name = command[0]
    if shutil.which(name) is None:
        if os.path.exists(name):
            raise UsageError(f"{name} is not executable; name a program that is")
        raise UsageError(f"no command {name!r} on this node; give a path or correct PATH")
    script = _script(command)
    if script is not None:
        _checked_script([script])
    return tuple(command)


def _checked_current_folder() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the current folder cannot be used ({error.strerror}); go to one that is there"
        ) from error


def _interpreter(environ: Mapping[str, str]) -> str:
    given = environ.get("PYTHON_EXEC")
    if given and shutil.which(given) is None:
        raise UsageError(f"PYTHON_EXEC={given}: no such program on this node; correct or unset it")
    return given or sys.executable


def _checked_script(command: Sequence[str]) -> Sequence[str]:
    script = command[0]
    if os.path.exists(script):  # a folder or an archive with a __main__.py can be run, too
        if os.path.isdir(script) and not os.path.exists(os.path.join(script, "__main__.py")):
            raise UsageError(f"{script!r} is a folder without a __main__.py; name a script in it")
        if not os.access(script, os.R_OK):
            raise UsageError(f"{script!r} may not be read by this user; run 'chmod +r' on it")
        return command
    if os.sep not in script and shutil.which(script):
        words = " ".join(command)
        raise UsageError(f"{script!r} is a program, not a script; write '-- {words}'")
    raise UsageError(f"no script {script!r} in {os.getcwd()}; {_next_step(script)}")


def _next_step(script: str) -> str:
    folder, name = os.path.split(script)
    try:
        near = difflib.get_close_matches(name, os.listdir(folder or "."), 1, 0.7)
    except OSError:
        near = []
    return f"did you mean {os.path.join(folder, near[0])!r}?" if near else "give its path"


def _checked_module(command: Sequence[str], interpreter: str) -> Sequence[str]:
    if os.sep in command[0]:
        raise UsageError(f"{command[0]!r} is a path, and -m takes a module's name; leave out -m")
    package, _, part = command[0].partition(".")
    places = [os.getcwd(), *os.environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    if interpreter != sys.executable or package in sys.builtin_module_names:
        return command
    on_path = importlib.machinery.PathFinder.find_spec(package, places)
    if on_path and part and on_path.submodule_search_locations is None:
        raise UsageError(
            f"{package!r} is a module and has no part {part!r}; write '-m {package}', or leave out"
            " -m to start a file"
        )
    if on_path or _found_otherwise(package):
        return command
    raise UsageError(
        f"no module {package!r} for {interpreter}; install it there, or run from its folder"
    )


def _found_otherwise(package: str) -> bool:
    """Return whether an import hook knows a module, as of a package that is installed editable.

    Of a name without dots nothing is imported to find it.
    """
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, AttributeError, ValueError):  # a hook that fails may do better in a rank
        return True


def _script(command: Sequence[str]) -> str | None:
    """Return the script that a Python interpreter would run, if that can be told."""
    if not re.fullmatch(r"(python|pypy)[0-9.]*", os.path.basename(command[0])):
        return None
    for argument in command[1:]:
        if argument.startswith("-"):
            if argument in ("-c", "-m", "-"):
                return None
            continue
        return argument if argument.endswith(".py") else None
    return None
