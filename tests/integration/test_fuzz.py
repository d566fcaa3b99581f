"""Fuzz of every wire format, some hundred cases each: that it runs, and that nothing is found.

``python tests/fuzz`` makes many more, and lets coverage guide them.
"""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fuzz.choices import Choices
from fuzz.format import Format, Handler
from fuzz.formats import FORMATS, load_format
from fuzz.session import Session, repeat

# Fewer where a case is a stream over gRPC.
CASES = {
    "admin calls": 100,
    "agent streams": 60,
    "journal rows": 100,
    "kernel lines": 60,
    "snapshot frames": 60,
}
CASES_OTHERS = 150
INPUT_BYTES = (20, 100, 600)


@pytest.mark.parametrize("name", list(FORMATS))
def test_cases_of_a_format_are_taken_or_refused_as_it_says(tmp_path: Path, name: str) -> None:
    chosen = random.Random(name)
    session = Session(load_format(name), tmp_path / "finds")
    session.open()
    try:
        for _ in range(CASES.get(name, CASES_OTHERS)):
            session.run(chosen.randbytes(chosen.choice(INPUT_BYTES)))
    finally:
        session.close()
    told = [json.loads(path.read_text())["found"] for path in tmp_path.glob("finds/*")]
    assert not told, told[0]


@asynccontextmanager
async def fragile_world(_: Path) -> AsyncIterator[Handler]:
    """Fall over a case that comes after another one."""
    before = [0]

    async def handle(case: int) -> None:
        before.append(case)
        if before[-2:] == [3, 4]:
            raise ZeroDivisionError("on purpose")

    yield handle


def first_byte(choices: Choices) -> int:
    return choices.below(256)


def test_a_find_is_kept_with_the_cases_that_repeat_it(tmp_path: Path) -> None:
    fragile = Format(first_byte, fragile_world, ())
    session = Session(fragile, tmp_path)
    session.open()
    for number in (1, 3, 4, 3, 4, 5):
        session.run(bytes([number]))
    session.close()
    (path,) = tmp_path.glob("*.json")
    assert len(json.loads(path.read_text())["inputs"]) == 3
    assert "on purpose" in repeat(fragile, path)[0]
    assert not repeat(replace(fragile, make=lambda _: 5), path)
