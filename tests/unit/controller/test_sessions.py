"""The open streams: one per node, whoever comes last; who may come is decided before."""

import asyncio

import pytest

from everstep_controller.api.fleet.sessions import Sessions, StreamEnd


def test_a_stream_that_is_replaced_says_what_to_do_if_another_agent_did_it() -> None:
    sessions = Sessions()
    first = sessions.open("n0", "outbox-1")
    second = sessions.open("n0", "outbox-1")
    with pytest.raises(StreamEnd, match="give one of them another 'node'"):
        asyncio.run(first.next_messages())
    assert sessions.of("n0") is second
    assert not second.ending
    assert not sessions.close(first), "its end says nothing about the node"
