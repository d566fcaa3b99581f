"""TOML edit: adds keys to a file that a person wrote, and changes nothing else in it. Pure."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

Value = str | int | bool | Sequence[str]
# Table ("" is the top) and key.
Key = tuple[str, str]
_TABLE = re.compile(r"\s*\[\s*(?P<name>[A-Za-z0-9_.-]+)\s*\]\s*(#.*)?")
_ANY_TABLE = re.compile(r"\s*\[")


class TomlConflictError(Exception):
    """A key has another value already; one sentence."""


def with_values(
    text: str, wanted: Mapping[Key, Value], replaced: Mapping[Key, Value] | None = None
) -> str:
    """Return a TOML text that has keys with these values. Raises TomlConflictError, ValueError.

    A key that has another value is a conflict, unless it is the one in ``replaced``: a default
    that an example had written out.
    """
    document = tomllib.loads(text)
    lines = text.splitlines()
    for (table, key), value in wanted.items():
        found = _lookup(document, table, key)
        if found == value:
            continue
        if found is None:
            _insert(lines, table, f"{key} = {_toml(value)}")
        elif found == (replaced or {}).get((table, key)):
            _replace(lines, table, key, f"{key} = {_toml(value)}")
        else:
            dotted = f"{table}.{key}" if table else key
            raise TomlConflictError(f"{dotted} is {found!r} already, and {value!r} is needed")
    made = "\n".join(lines) + "\n"
    try:
        done = tomllib.loads(made) == _merged(document, wanted)
    except tomllib.TOMLDecodeError:
        done = False
    if not done:
        raise TomlConflictError("its tables are written in a way that no program can add to")
    return made


def _lookup(document: dict[str, Any], table: str, key: str) -> object:
    part: object = document
    for name in [*table.split("."), key] if table else [key]:
        if not isinstance(part, dict):
            return None
        part = part.get(name)
    return part


def _merged(document: dict[str, Any], wanted: Mapping[Key, Value]) -> dict[str, Any]:
    for (table, key), value in wanted.items():
        part = document
        for name in table.split(".") if table else ():
            part = part.setdefault(name, {})
        part[key] = value
    return document


def _insert(lines: list[str], table: str, line: str) -> None:
    if not table:
        first = next((at for at, one in enumerate(lines) if _ANY_TABLE.match(one)), len(lines))
        # Comments above a table belong to it.
        while first and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        below = lines[first:]
        del lines[first:]
        while lines and not lines[-1].strip():
            lines.pop()
        lines += [line, "", *below] if below else [line]
        return
    at = _header(lines, table)
    if at is None:
        lines += ["", f"[{table}]", line]
    else:
        lines.insert(_end(lines, at), line)


def _replace(lines: list[str], table: str, key: str, line: str) -> None:
    header = _header(lines, table) if table else -1
    begin = 0 if header is None else header + 1
    end = next((at for at in range(begin, len(lines)) if _ANY_TABLE.match(lines[at])), len(lines))
    own = re.compile(rf"\s*{re.escape(key)}\s*=")
    for at in range(begin, end):
        if own.match(lines[at]):
            lines[at] = line
            return


def _header(lines: list[str], table: str) -> int | None:
    for at, line in enumerate(lines):
        found = _TABLE.fullmatch(line)
        if found is not None and found["name"] == table:
            return at
    return None


def _end(lines: list[str], header: int) -> int:
    """Return after which line of a table its last key stands."""
    last = header
    for at in range(header + 1, len(lines)):
        if _ANY_TABLE.match(lines[at]):
            break
        if lines[at].strip() and not lines[at].lstrip().startswith("#"):
            last = at
    return last + 1


def _toml(value: Value) -> str:
    # JSON's strings, numbers and booleans are TOML's as well, and lists of them.
    return json.dumps(value, ensure_ascii=False)
