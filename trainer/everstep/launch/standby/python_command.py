"""Python commands: those that an interpreter which is already running could execute."""

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERPRETER = re.compile(r"python(\d+(\.\d+)*)?$")
# Options of `python --help` that stand alone, and those that take a value.
_ALONE = frozenset("bBdEiIOPqRsSuvx")
_WITH_VALUE = ("-W", "-X")


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """A command that is ``python [FLAGS] SCRIPT …`` or ``python [FLAGS] -m MODULE …``."""

    interpreter: str
    flags: tuple[str, ...]
    script: str
    module: str
    arguments: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command that starts it in a new interpreter."""
        target = (self.script,) if self.script else ("-m", self.module)
        return (self.interpreter, *self.flags, *target, *self.arguments)

    @property
    def isolated(self) -> bool:
        """Return whether the script's folder is kept out of ``sys.path``."""
        letters = {letter for flag in self.flags if flag[:2] not in _WITH_VALUE for letter in flag}
        return bool(letters & {"I", "P"})

    def path(self, folder: Path) -> Path | None:
        """Return the file that is run; None for a module that is not below ``folder``."""
        if self.script:
            return folder / self.script
        place = folder.joinpath(*self.module.split("."))
        files = (place.with_suffix(".py"), place / "__main__.py")
        return next((file for file in files if file.is_file()), None)


def python_command(command: Sequence[str], path: str | None = None) -> PythonCommand | None:
    """Return how to run a command in an interpreter that is up; None when it cannot be."""
    interpreter = shutil.which(command[0], path=path)
    if interpreter is None or not _INTERPRETER.fullmatch(os.path.basename(interpreter)):
        return None
    flags: list[str] = []
    rest = list(command[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "-m" and rest:
            return PythonCommand(interpreter, tuple(flags), "", rest[0], tuple(rest[1:]))
        if word in _WITH_VALUE and rest:
            flags += [word, rest.pop(0)]
        elif word[:2] in _WITH_VALUE or set(word[1:]) <= _ALONE:
            flags.append(word)
        else:  # -c, or an option of a newer interpreter
            return None
    if not rest or rest[0] == "-" or not rest[0].endswith(".py"):
        return None  # a folder or an archive has a __main__ of its own
    return PythonCommand(interpreter, tuple(flags), rest[0], "", tuple(rest[1:]))
