"""Configuration loader: one TOML file to one frozen dataclass, with every mistake reported at once.

A field of a configuration is documented where it stands, with ``setting(default, help=…, unit=…)``;
nested dataclasses are tables. A ``duration`` is a key in seconds for a field in nanoseconds. A
``CredentialFile`` is the path of a file with a secret, of which a configuration has nothing else.
``problems()`` of the whole configuration says what else is wrong with its values, one ``key:
sentence`` each, keys inside tables dotted.
"""

import dataclasses
import difflib
import json
import math
import os
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from enum import Enum
from pathlib import Path

from everstep_common.config_variables import with_variables
from everstep_common.credential_file import CredentialFile
from everstep_common.setting import Declared, declared, nanoseconds, seconds
from everstep_common.setting import setting as setting  # where configurations import it from
from everstep_common.toml_file import TomlError, read_toml

# sysexits.h: something was found in an unconfigured or misconfigured state.
EX_CONFIG = 78

T = typing.TypeVar("T")

_REFERENCE = "docs/configuration.md lists all"
_NAMED_MAX = 3
# difflib's ratio: a slip of the pen, which needs no second guess, and the least resemblance.
_SLIP, _SIMILAR = 0.9, 0.6


class ConfigError(Exception):
    """A configuration cannot be used; one line per mistake."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclasses.dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of a whole file, for one that is not known, and where people find all of them."""

    kind: type
    reference: str

    def like(self, name: str, ratio: float = 1.0) -> list[str]:
        """Return the dotted keys of all tables whose last part is that name, or much like it."""
        keys = list(_dotted(self.kind, ""))
        names = list(dict.fromkeys(key.rpartition(".")[2] for key in keys))
        near = difflib.get_close_matches(name, names, n=_NAMED_MAX, cutoff=ratio)
        return [key for one in near for key in keys if key.rpartition(".")[2] == one]


@dataclasses.dataclass(frozen=True, slots=True)
class _Key:
    """A key of a table: the field that it sets, and the type of what stands in a file."""

    name: str
    kind: typing.Any
    field: "dataclasses.Field[typing.Any]"

    @property
    def declared(self) -> Declared:
        return declared(self.field)

    @property
    def is_required(self) -> bool:
        return self.field.default is MISSING and self.field.default_factory is MISSING

    def problem(self, value: typing.Any) -> str:  # noqa: ANN401 - whatever stood in a file
        """Return what is wrong with a value of the right type; empty for nothing."""
        if isinstance(value, CredentialFile):
            return value.problem()
        broken = self.declared.bounds.problem(value)
        try:
            self.of_field(value)
        except OverflowError:
            return broken or f"must not be above 292 years, got {value}"
        return broken

    def of_field(self, value: typing.Any) -> object:  # noqa: ANN401 - whatever stood in a file
        """Return what the field has of a value in a file. Raises OverflowError for a duration."""
        return nanoseconds(value) if self.declared.is_duration else value


def _keys_of(kind: typing.Any) -> dict[str, _Key]:  # noqa: ANN401 - a dataclass
    """Return the keys of a table."""
    hints = typing.get_type_hints(kind)
    keys = dict[str, _Key]()
    for field in dataclasses.fields(kind):
        if declared(field).is_duration:
            key = f"{field.name.removesuffix('_ns')}_s"
            keys[key] = _Key(field.name, float, field)
        else:
            keys[field.name] = _Key(field.name, hints[field.name], field)
    return keys


def load(
    kind: type[T],
    path: Path | None,
    reference: str = _REFERENCE,
    environ: Mapping[str, str] = os.environ,
) -> T:
    """Return the configuration in ``path``, or all defaults for None. Raises ConfigError.

    ``reference`` says to a person where all keys are explained; ``environ`` has the variables that
    are named in it.
    """
    if path is None:
        return _checked(kind, {}, "defaults", reference)
    try:
        tables = read_toml(path).tables
    except TomlError as error:
        raise ConfigError([f"{path}: {error}"]) from error
    unset: list[str] = []
    told = with_variables(tables, environ, unset)
    if unset:
        raise ConfigError([f"{path}: {problem}" for problem in unset])
    return _checked(kind, told, str(path), reference)


@typing.runtime_checkable
class _Judged(typing.Protocol):
    def problems(self) -> list[str]: ...


def _checked(kind: type[T], document: dict[str, object], source: str, reference: str) -> T:
    problems: list[str] = []
    value = _table(kind, document, "", problems, _Keys(kind, reference))
    if isinstance(value, _Judged):
        wrong = {problem.split(":")[0] for problem in problems}
        problems += [told for told in value.problems() if told.split(":")[0] not in wrong]
    if problems or value is None:
        raise ConfigError([f"{source}: {problem}" for problem in problems])
    return value


def _table(
    kind: type[T], table: dict[str, object], prefix: str, problems: list[str], keys: _Keys
) -> T | None:
    known = _keys_of(kind)
    unknown = sorted(table.keys() - known.keys())
    problems += [_unknown(key, prefix, list(known), keys) for key in unknown]
    values: dict[str, object] = {}
    for name in [name for name in known if name in table]:
        found: list[str] = []
        value = _setting(known[name], table[name], prefix + name, found, keys)
        if not found or _can_be_judged(value):
            values[name] = value
        problems += found
    # The default stands in for a wrong value, so that the others can be judged in the same run.
    required = {name for name, key in known.items() if key.is_required}
    missing = [name for name in known if name in required - table.keys()]
    problems += [f"{prefix}{m}: missing; expected {describe_type(known[m].kind)}" for m in missing]
    if required - values.keys():
        return None
    return kind(**{known[name].name: value for name, value in values.items()})


def _setting(key: _Key, value: object, path: str, problems: list[str], keys: _Keys) -> object:
    """Return what the field has of a value in a file; ``problems``, empty, has what is wrong."""
    converted = _value(key.kind, value, path, problems, keys)
    if problems:
        return converted
    if problem := key.problem(converted):
        problems.append(f"{path}: {problem}")
        return converted if isinstance(converted, CredentialFile) else None
    return key.of_field(converted)


def _can_be_judged(value: object) -> bool:
    """Return whether tables came of it, in which only single keys are wrong, or a file's path."""
    if isinstance(value, tuple):
        return bool(value) and all(dataclasses.is_dataclass(entry) for entry in value)
    return dataclasses.is_dataclass(value) or isinstance(value, Mapping)


def _unknown(key: str, prefix: str, names: list[str], keys: _Keys) -> str:
    meant = difflib.get_close_matches(key, names, n=1, cutoff=_SLIP)
    meant = meant or difflib.get_close_matches(key, names, n=_NAMED_MAX, cutoff=_SIMILAR)
    # A key in the wrong table: most often one that stands below the heading of another.
    found = [*keys.like(key), *(prefix + name for name in meant)] or keys.like(key, _SLIP)
    *others, last = [_placed(name, prefix) for name in found[:_NAMED_MAX]] or [""]
    listed = f"{', '.join(others)} or {last}" if others else last
    hint = f"did you mean {listed}? " if listed else ""
    return f"{prefix}{key}: unknown key; {hint}{keys.reference}"


def _placed(key: str, prefix: str) -> str:
    return f"{key} before the first [table]" if prefix and "." not in key else key


def _dotted(kind: object, prefix: str) -> Iterator[str]:
    """Yield the keys of a table and of the tables in it; those of a list of tables have no name."""
    kind = _without_none(kind)
    if (named := _named_table(kind)) is not None:
        yield from _dotted(named, f"{prefix}NAME.")
        return
    if not isinstance(kind, type) or not _is_table(kind):
        return
    for name, key in _keys_of(kind).items():
        yield prefix + name
        yield from _dotted(key.kind, f"{prefix}{name}.")


def _named_table(kind: object) -> type | None:
    """Return what each of the tables is that people give names to; None for another kind."""
    if typing.get_origin(kind) is not Mapping:
        return None
    inner: type = typing.get_args(kind)[1]
    return inner if _is_table(inner) else None


def _value(
    kind: typing.Any,  # noqa: ANN401
    value: object,
    path: str,
    problems: list[str],
    keys: _Keys,
) -> object:
    wanted = _without_none(kind)
    kind = _alternative(wanted, value)
    if _is_table(kind) and isinstance(value, dict):
        return _table(typing.cast("type[object]", kind), value, path + ".", problems, keys)
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        inner = typing.get_args(kind)[0]
        return tuple(_value(inner, v, f"{path}[{i}]", problems, keys) for i, v in enumerate(value))
    if typing.get_origin(kind) is Mapping and isinstance(value, dict):
        inner = typing.get_args(kind)[1]
        values = {
            name: _value(inner, v, f"{path}.{name}", problems, keys) for name, v in value.items()
        }
        return {name: converted for name, converted in values.items() if converted is not None}
    converted = _scalar(kind, value)
    if converted is None:
        # Where a secret belongs, whatever stands in its place may be one.
        got = "" if kind is CredentialFile else f", got {value!r}"
        problems.append(f"{path}: expected {describe_type(wanted)}{got}")
    return converted


def _scalar(kind: object, value: object) -> object | None:
    if kind in (Path, CredentialFile) and isinstance(value, str) and "\0" in value:
        return None  # no system has such a path
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is CredentialFile:
        return CredentialFile(Path(value)) if isinstance(value, str) else None
    if kind is float and type(value) is int:
        return _as_float(value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next((member for member in kind if member.value == value), None)
    # TOML has nan and inf: no threshold, and no comparison with one is ever true.
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if type(value) is kind and finite else None


def _as_float(value: int) -> float | None:
    """Return a whole number as a float; None for one that is larger than any."""
    try:
        return float(value)
    except OverflowError:
        return None


def _without_none(kind: typing.Any) -> typing.Any:  # noqa: ANN401
    options = [option for option in _options(kind) if option is not types.NoneType]
    return options[0] if len(options) == 1 else kind


def _options(kind: typing.Any) -> tuple[typing.Any, ...]:  # noqa: ANN401
    is_union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if is_union else (kind,)


def _alternative(kind: typing.Any, value: object) -> typing.Any:  # noqa: ANN401
    """Return which of several types a value is to have: of one value or a list, what it is."""
    for option in _options(kind):
        if (typing.get_origin(option) is tuple) == isinstance(value, list):
            return option
    return kind


def _is_table(kind: object) -> bool:
    return dataclasses.is_dataclass(kind) and kind is not CredentialFile


def describe_type(kind: typing.Any) -> str:  # noqa: ANN401
    """Return a type in an operator's words."""
    kind = _without_none(kind)
    if len(options := _options(kind)) > 1:
        return ", or ".join(map(describe_type, options))
    if typing.get_origin(kind) is tuple:
        return f"a list, each item {describe_type(typing.get_args(kind)[0])}"
    if typing.get_origin(kind) is Mapping:
        return f"a table, each value {describe_type(typing.get_args(kind)[1])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(repr(member.value) for member in kind)
    if kind is CredentialFile:
        return "the path of a file with a secret"
    if _is_table(kind):
        return "a table"
    words = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    return words.get(kind, "a string")


@dataclasses.dataclass(frozen=True, slots=True)
class SettingDoc:
    """One key of a configuration, as the generated reference shows it."""

    key: str
    type: str
    default: str
    unit: str
    help: str


def document(kind: type, prefix: str = "") -> Iterator[SettingDoc]:
    """Yield every key of a configuration, tables flattened to dotted keys."""
    for name, key in _keys_of(kind).items():
        hint = _without_none(key.kind)
        if _is_table(hint):
            yield from document(typing.cast("type", hint), f"{prefix}{name}.")
            continue
        if (named := _named_table(hint)) is not None:
            yield from document(named, f"{prefix}{name}.NAME.")
            continue
        yield SettingDoc(
            prefix + name,
            describe_type(key.kind),
            _default_text(key),
            key.declared.unit,
            key.declared.help,
        )


def _default_text(key: _Key) -> str:
    spec = key.field
    if key.declared.shown:
        return key.declared.shown
    if spec.default is not MISSING:
        return _toml(seconds(spec.default) if key.declared.is_duration else spec.default)
    if spec.default_factory is not MISSING:
        return _toml(spec.default_factory())
    return "required"


def _toml(value: object) -> str:
    if isinstance(value, Enum):
        return _toml(value.value)
    if isinstance(value, Mapping):
        return "none" if not value else ", ".join(f"{k} = {_toml(v)}" for k, v in value.items())
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else str(value)
