"""The open streams: one per node, whoever comes last."""

import asyncio
import logging

import pytest

from everstep_controller.api.fleet.sessions import Sessions, StreamEnd


def test_an_agent_that_comes_back_is_no_rival(caplog: pytest.LogCaptureFixture) -> None:
    sessions = Sessions()
    sessions.open("n0", "outbox-1")
    sessions.open("n0", "outbox-1")
    assert caplog.messages == []


def test_two_agents_of_one_name_are_told_of_once_and_how_to_end_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    sessions = Sessions()
    first = sessions.open("n0", "outbox-1")
    for outbox in ("outbox-2", "outbox-1", "outbox-2"):
        sessions.open("n0", outbox)
    with pytest.raises(StreamEnd, match="give each its own 'node'"):
        asyncio.run(first.next_messages())
    (told,) = caplog.messages
    assert "another agent named n0" in told
