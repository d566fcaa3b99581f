"""Event path: the files that an event passes through, found while tests carry it through the code.

A file is passed when one of its functions gives back a value of the event's types, or runs below a
function that was handed one: alone, in a list, in a field of a dataclass, or as the body of a
message. Waiting parts of a coroutine count as well, because it still has what it was handed. So a
file that merely runs at the same time (a tick, a logger's clock) is not counted, and one that only
stores the event is. Loaded into pytest by ``-p event_path``; ``passed_files`` starts that.
"""

import ast
import json
import os
import subprocess
import sys
import tempfile
import threading
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from source_tree import COMPONENTS, GENERATED

EVENTS = Path(__file__).parent / "house" / "event_paths.toml"
_TYPES, _FOUND, _ROOT = "EVENT_PATH_TYPES", "EVENT_PATH_FOUND", "EVENT_PATH_ROOT"
_TEST_LIMIT_S = 300
# What a list holds is known by its first elements.
_ELEMENTS_MAX = 8
# dataclasses.fields() builds a list on each call, and this runs at every call of a program.
_FIELDS = "__dataclass_fields__"


@dataclass(frozen=True)
class FollowedEvent:
    """An event, what its types are called on its way, and the tests that carry it."""

    name: str
    types: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]


def followed_events(table: Path = EVENTS) -> list[FollowedEvent]:
    """Read the table of events."""
    rows = tomllib.loads(table.read_text())["event"]
    return [
        FollowedEvent(row["name"], tuple(row["types"]), tuple(map(tuple, row["tests"])))
        for row in rows
    ]


def passed_files(root: Path, event: FollowedEvent) -> set[str]:
    """Run the tests that carry an event in a tree; return the files that it passes.

    Raises LookupError when the tree has none of the tests, RuntimeError when one fails.
    """
    tests = [_locate(root, names) for names in event.tests]
    with tempfile.TemporaryDirectory(prefix="event-path-") as folder:
        found = Path(folder) / "found.json"
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parent),
            _TYPES: ",".join(event.types),
            _FOUND: str(found),
            _ROOT: str(root.resolve()),
        }
        options = ["-q", "-p", "event_path", "-p", "no:cacheprovider", "-p", "no:xdist"]
        ran = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TEST_LIMIT_S,
            check=False,
        )
        if ran.returncode:
            raise RuntimeError(f"{event.name} was not followed:\n{ran.stdout}{ran.stderr}")
        return set(json.loads(found.read_text()))


def _locate(root: Path, names: Iterable[str]) -> str:
    for name in names:
        for path in sorted((root / "tests").rglob("test_*.py")):
            if name in path.read_text() and _defines(path, name):
                return f"{path.relative_to(root).as_posix()}::{name}"
    raise LookupError(f"no test is called {' or '.join(names)}; name one in {EVENTS.name}")


def _defines(path: Path, name: str) -> bool:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(
        isinstance(node, functions) and node.name == name
        for node in ast.parse(path.read_text()).body
    )


class Follower:
    """Notes the files that values of some types pass, of all threads of this process."""

    def __init__(self, root: str, types: frozenset[str]) -> None:
        self.passed: set[str] = set()
        self._types = types
        self._folders = {f"{root}/{component}/": component for component in COMPONENTS}
        self._root = root
        self._places: dict[str, str] = {}
        self._below = threading.local()

    def begin(self) -> None:
        """Follow from here on."""
        threading.setprofile(self.profile)
        sys.setprofile(self.profile)

    def end(self) -> None:
        """Follow no longer."""
        sys.setprofile(None)
        threading.setprofile(None)

    def profile(self, frame: FrameType, event: str, value: object) -> None:
        """Take one call or return, as sys.setprofile tells them."""
        if event == "call":
            self._note_call(frame)
        elif event == "return":
            self._note_return(frame, value)

    def _note_call(self, frame: FrameType) -> None:
        place = self._place(frame)
        if not place:
            return
        carriers = self._carriers()
        if carriers or any(map(self._carries, _arguments(frame))):
            self.passed.add(place)
            carriers.append(frame)

    def _note_return(self, frame: FrameType, value: object) -> None:
        carriers = self._carriers()
        if carriers and carriers[-1] is frame:
            carriers.pop()
        elif (place := self._place(frame)) and self._carries(value):
            self.passed.add(place)

    def _carriers(self) -> list[FrameType]:
        carriers: list[FrameType] | None = getattr(self._below, "carriers", None)
        if carriers is None:
            carriers = self._below.carriers = []
        return carriers

    def _place(self, frame: FrameType) -> str:
        """Return the file of a frame from the root on; empty for one that is not hand-written."""
        name = frame.f_code.co_filename
        place = self._places.get(name)
        if place is None:
            ours = name.startswith(tuple(self._folders)) and f"/{GENERATED}/" not in name
            place = self._places[name] = name[len(self._root) + 1 :] if ours else ""
        return place

    def _carries(self, value: object) -> bool:
        return self._is_event(value) or any(map(self._is_event, _parts(value)))

    def _is_event(self, value: object) -> bool:
        return type(value).__name__ in self._types


def _arguments(frame: FrameType) -> Iterator[object]:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    return (values[name] for name in code.co_varnames[:count] if name in values)


def _parts(value: object) -> Iterator[object]:
    """Yield what a list, a dataclass or a message holds, one level deep."""
    if isinstance(value, list | tuple):
        yield from value[:_ELEMENTS_MAX]
    elif hasattr(type(value), _FIELDS):
        yield from (getattr(value, name, None) for name in getattr(type(value), _FIELDS))
    elif hasattr(type(value), "DESCRIPTOR"):
        for part in _set_fields(value):
            yield part
            yield from _set_fields(part)


def _set_fields(message: object) -> Iterator[object]:
    """Yield the fields of a protobuf message that are set; nothing of any other value."""
    list_fields = getattr(message, "ListFields", None)
    if list_fields is not None:
        yield from (part for _, part in list_fields())


def _write(follower: Follower, found: str) -> None:
    Path(found).write_text(json.dumps(sorted(follower.passed)))


def pytest_configure(config: object) -> None:
    """Follow the event that the environment names, for pytest."""
    types = frozenset(os.environ[_TYPES].split(","))
    follower = Follower(os.environ[_ROOT], types)
    follower.begin()
    cleanup = partial(_finish, follower, os.environ[_FOUND])
    config.add_cleanup(cleanup)  # type: ignore[attr-defined]


def _finish(follower: Follower, found: str) -> None:
    follower.end()
    _write(follower, found)
