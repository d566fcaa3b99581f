"""One event loop for all tests of a process: grpc.aio's poller belongs to the first one it sees."""

import asyncio
import atexit
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

_RUNNER = asyncio.Runner()
atexit.register(_RUNNER.close)


def run(scenario: Coroutine[None, None, T]) -> T:
    """Run a scenario to its end, as asyncio.run does, but never in a second loop."""
    return _RUNNER.run(scenario)
