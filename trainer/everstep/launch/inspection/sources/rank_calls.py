"""Rank calls: the sends and receives that a rank has noted in its page, as a reader finds them.

They were written by the rank, so that each number of them is checked.
"""

import mmap
import os
from collections.abc import Iterator

from everstep.rank.interpreter import everstep_rank_page as page
from everstep_common import quantities as q
from everstep_common.hangs.dumps.noted_calls import NotedCall, NotedCalls

_TELL = {page.SEND: "send to {}", page.RECV: "recv from {}", page.RECV_ANY: "recv from any"}


def noted_calls(place: str) -> NotedCalls:
    """Return what a page has; nothing of one that cannot be read."""
    path, _, offset = place.rpartition(":")
    try:
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            memory = mmap.mmap(number, page.SPAN, prot=mmap.PROT_READ, offset=int(offset))
        finally:
            os.close(number)
    except (OSError, ValueError):
        return NotedCalls()
    with memory:
        return calls_in(memory[:])


def calls_in(content: bytes) -> NotedCalls:
    """Return the calls that a page has; of a number that cannot be, nothing. Pure."""
    words = memoryview(content).cast("q")
    count = words[page.CALLS]
    if words[page.LAYOUT] != page.MAGIC or count < 0:
        return NotedCalls()
    return NotedCalls(tuple(_calls(words, count)), cut=count > page.CALLS_MAX)


def _calls(words: memoryview, count: int) -> Iterator[NotedCall]:
    for one in range(max(0, count - page.CALLS_MAX), count):
        at = page.CALLS + 1 + 2 * (one % page.CALLS_MAX)
        at_ns, kind, end = words[at], words[at + 1] >> 32, words[at + 1] & 0xFFFFFFFF
        if at_ns > 0 and kind in _TELL and end < q.RANKS_MAX:
            yield NotedCall(at_ns, _TELL[kind].format(f"rank {end}"))
