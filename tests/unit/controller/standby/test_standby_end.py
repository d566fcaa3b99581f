"""A standby that is told to end while it takes the journal."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import NoReturn

import pytest

from everstep_controller.journal.port import WriterSeen
from everstep_controller.standby.standby import Standby, StandbyParts
from everstep_controller.standby.told import ControllerTold

_GONE = WriterSeen(term=1, writer="", told="", head=0, still_s=0.0, is_gone=True)


@dataclass
class _SlowCandidate:
    """Takes the journal once it is let."""

    asked: threading.Event = field(default_factory=threading.Event)
    let: threading.Event = field(default_factory=threading.Event)
    has_taken: bool = False

    def look(self, told: str) -> WriterSeen:
        assert told
        return _GONE

    def wait(self, timeout_s: float) -> None:
        assert timeout_s >= 0

    def take(self, told: str) -> bool:
        assert told
        self.asked.set()
        self.has_taken = self.let.wait(60)
        return self.has_taken


def _never(*_: object) -> NoReturn:
    raise AssertionError("nothing is followed here")


def test_it_ends_when_the_journal_is_taken_so_that_it_can_be_given_back() -> None:
    candidate = _SlowCandidate()
    parts = StandbyParts(
        ControllerTold(), candidate, _never, _never, _never, _never, _never, _never
    )

    async def end() -> None:
        standing = asyncio.create_task(Standby(parts).run())
        await asyncio.to_thread(candidate.asked.wait, 60)
        standing.cancel()
        asyncio.get_running_loop().call_later(0.05, candidate.let.set)
        with pytest.raises(asyncio.CancelledError):
            await standing

    asyncio.run(end())
    assert candidate.has_taken
