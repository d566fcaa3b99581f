"""The files that an event passes: those that are handed it or give it back, and no others."""

from pathlib import Path

import pytest

from event_path import FollowedEvent, followed_events, passed_files

_PACKAGES = (
    "agent/everstep_agent",
    "common/everstep_common",
    "controller/everstep_controller",
    "proto/everstep_proto",
    "proto/everstep_proto/generated",
)
_FILES = {
    **{f"{package}/__init__.py": "" for package in _PACKAGES},
    "common/everstep_common/events.py": """
from dataclasses import dataclass
@dataclass
class Exit:
    rank: int
@dataclass
class Envelope:
    body: object
""",
    "agent/everstep_agent/handler.py": """
import asyncio
from everstep_agent import store, ticks
async def handle(event):
    await asyncio.sleep(0)
    store.note(event.rank)
def handle_all(events):
    store.note(len(events))
def tick():
    ticks.count()
""",
    "agent/everstep_agent/store.py": "def note(rank): ...\n",
    "agent/everstep_agent/ticks.py": "def count(): ...\n",
    "agent/everstep_agent/parser.py": """
from everstep_common.events import Exit
def parse(text):
    return Exit(int(text))
""",
    "controller/everstep_controller/reader.py": "def read(envelope): ...\n",
    "proto/everstep_proto/generated/stub.py": "def fill(event): ...\n",
    "tests/test_path.py": """
import asyncio
from everstep_agent import handler, parser
from everstep_common.events import Envelope
from everstep_controller import reader
from everstep_proto.generated import stub
def test_path():
    handler.tick()
    asyncio.run(handler.handle(parser.parse("3")))
def test_wrapped():
    reader.read(Envelope(parser.parse("3")))
    stub.fill(parser.parse("3"))
    handler.handle_all([parser.parse("3")])
def test_failing():
    assert False
""",
    "pyproject.toml": (
        '[tool.pytest.ini_options]\npythonpath = ["agent", "common", "controller", "proto"]\n'
    ),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for path, text in _FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def _passed(tree: Path, *tests: str) -> set[str]:
    event = FollowedEvent("exit", ("Exit",), tuple((test,) for test in tests))
    return {Path(path).name for path in passed_files(tree, event)}


def test_what_is_handed_the_event_counts_with_all_that_runs_below_it(tree: Path) -> None:
    # Also after an await. What runs beside it (ticks.py) does not count.
    assert _passed(tree, "test_path") == {"handler.py", "store.py", "parser.py"}


def test_lists_and_fields_carry_the_event_and_generated_stubs_do_not_count(tree: Path) -> None:
    found = _passed(tree, "test_wrapped")
    assert found == {"parser.py", "reader.py", "handler.py", "store.py"}


def test_a_failing_test_follows_nothing(tree: Path) -> None:
    with pytest.raises(RuntimeError, match="exit was not followed"):
        _passed(tree, "test_failing")


def test_a_test_that_is_gone_is_named(tree: Path) -> None:
    with pytest.raises(LookupError, match="no test is called test_gone"):
        _passed(tree, "test_gone")


def test_the_table_names_events_that_tests_carry() -> None:
    names = {event.name for event in followed_events()}
    assert names == {"RankExited", "snapshot commit"}
