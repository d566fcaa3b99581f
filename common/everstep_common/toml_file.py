"""TOML file: reads one that a person wrote, and says in one sentence why it cannot be used."""

import os
import stat
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Configurations have some kB, and a thousand rules half a MB.
_BYTES_MAX = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class TomlError(Exception):
    """A file cannot be used as TOML; one sentence says why, without the file's name."""


@dataclass(frozen=True, slots=True)
class TomlFile:
    """What is in a file: its text, and the tables in it."""

    text: str
    tables: dict[str, Any]


def read_toml(path: Path) -> TomlFile:
    """Read a file, at once and never much of it, whatever it is. Raises TomlError."""
    text = _text(_content(path))
    try:
        return TomlFile(text, tomllib.loads(text))
    except RecursionError as error:
        raise TomlError("nested too deeply") from error
    except ValueError as error:
        # TOMLDecodeError is one, and so is what Python says of a number of 5,000 digits.
        raise TomlError(f"not valid TOML: {error}") from error


def _content(path: Path) -> bytes:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
                raise TomlError("cannot be read: it is a pipe; expected a file")
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise TomlError(f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise TomlError(f"cannot be read: {error}") from error
    if len(content) > _BYTES_MAX:
        raise TomlError(f"more than {_BYTES_MAX >> 20} MiB; expected some kB that a person wrote")
    return content


def _open_at_once(path: str, flags: int) -> int:
    """Open a path that may be a pipe to which nobody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def _text(content: bytes) -> str:
    if content.startswith(_BYTE_ORDER_MARK):
        raise TomlError("not valid TOML: it begins with a byte order mark; save it without one")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TomlError(f"not valid TOML: line {line} is not UTF-8") from error
