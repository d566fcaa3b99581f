"""Option parser: splits options from the command that follows; an error is one sentence."""

import argparse
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

_TRUE = frozenset({"1", "true", "yes", "on"})


class UsageError(Exception):
    """The command line cannot be used; one sentence with the next step."""


@dataclass(frozen=True, slots=True)
class Line:
    """Command line in two parts: the launcher's own, and the command that it is to start."""

    options: tuple[str, ...]
    command: tuple[str, ...]
    # Whether '--' stood between them: then the command begins with its program.
    parted: bool


class OptionParser(argparse.ArgumentParser):
    """Parser whose options may be written ``--with-dashes`` or ``--with_underscores``."""

    # Options that may be abbreviated, and may be set by environment variables.
    shortened: Collection[str] = ()

    def error(self, message: str) -> NoReturn:
        """See ArgumentParser; not the whole usage for one word. Raises UsageError."""
        raise UsageError(f"{message}; 'everstep run --help' lists the options")

    def split(self, arguments: Sequence[str]) -> Line:
        """Part the options from the command, which begins at '--' or the first other word."""
        options: list[str] = []
        rest = list(arguments)
        while rest:
            word = rest.pop(0)
            if word == "--":
                return Line(tuple(options), tuple(rest), parted=True)
            if not word.startswith("-") or word == "-":
                return Line(tuple(options), (word, *rest), parted=False)
            option, equals, value = _dashed(word).partition("=")
            option = self._full(option)
            options.append(option + equals + value)
            if not equals and self._takes_value(option) and rest:
                options.append(rest.pop(0))
        return Line(tuple(options), (), parted=False)

    def values(self, line: Line) -> argparse.Namespace:
        """Return what was chosen. Raises UsageError, and SystemExit for --help."""
        values, unknown = self.parse_known_args(line.options)
        if unknown:
            raise UsageError(self._stray(unknown[0]))
        return values

    def take_defaults(self, environ: Mapping[str, str], prefix: str) -> None:
        """Let variables such as PET_NNODES stand for options that are not given."""
        for action in (self._option_string_actions[name] for name in self.shortened):
            given = environ.get(prefix + action.dest.upper())
            if given is None or (isinstance(action.default, bool) and not given):
                continue
            # argparse converts a default that is text as it converts an option.
            is_flag = isinstance(action.default, bool)
            self.set_defaults(**{action.dest: given.lower() in _TRUE if is_flag else given})

    def _full(self, option: str) -> str:
        """Return the option that this is the beginning of. Raises UsageError if of several."""
        if option in self._option_string_actions or len(option) < 3:
            return option
        found = sorted(name for name in self.shortened if name.startswith(option))
        if len(found) > 1:
            raise UsageError(f"{option!r} may be {' or '.join(found)}; write it out")
        return found[0] if found else option

    def _takes_value(self, option: str) -> bool:
        action = self._option_string_actions.get(option)
        return action is not None and action.nargs != 0

    def _stray(self, word: str) -> str:
        option = word.partition("=")[0]
        # Without the dashes, which are alike in all.
        names = {name.lstrip("-"): name for name in self._option_string_actions}
        near = difflib.get_close_matches(option.lstrip("-"), list(names), 1, 0.7)
        meant = f"did you mean {names[near[0]]}?" if near else "'everstep run --help' lists them"
        return f"{option!r} is no option; {meant}"


def _dashed(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if word.startswith("--") else word
