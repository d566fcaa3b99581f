"""Format under fuzz: how its cases are made, and what takes them."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.choices import Maker

# Takes one case to its end. Errors that the format documents are its own; what it raises is a find.
Handler = Callable[[Any], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Format:
    """One wire format: ``make`` makes a case; ``world`` opens, in a folder, what takes cases."""

    make: Maker[Any]
    world: Callable[[Path], AbstractAsyncContextManager[Handler]]
    # Import names of the packages and modules whose lines count as covered.
    tested: tuple[str, ...]
    # After so many cases what takes them is opened anew, so that a find is among so few.
    cases_per_world: int = 1000


class FormatError(AssertionError):
    """What took a case did something that the format does not allow."""
