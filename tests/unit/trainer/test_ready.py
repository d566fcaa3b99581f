"""Whose turn it is in the launcher, when one call takes away what another one is about."""

import os
import selectors
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from everstep.launch.selector_loop import call_ready


@contextmanager
def _readable(count: int) -> Iterator[tuple[selectors.BaseSelector, list[int]]]:
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        readers = []
        for _ in range(count):
            reader, writer = os.pipe()
            readers.append(reader)
            stack.callback(_close, reader)
            stack.callback(_close, writer)
            os.write(writer, b"x")
        yield selector, readers


def _close(number: int) -> None:
    with suppress(OSError):
        os.close(number)


def test_everything_that_is_ready_has_its_turn() -> None:
    called: list[int] = []
    with _readable(2) as (selector, readers):
        for number in readers:
            selector.register(
                number, selectors.EVENT_READ, lambda number=number: called.append(number)
            )
        call_ready(selector, 0)
    assert sorted(called) == sorted(readers)


def test_what_another_call_has_closed_has_no_turn() -> None:
    called: list[int] = []
    with _readable(2) as (selector, readers):

        def close_the_other(own: int) -> None:
            called.append(own)
            for number in set(readers) - {own}:
                selector.unregister(number)
                os.close(number)

        for number in readers:
            selector.register(
                number, selectors.EVENT_READ, lambda number=number: close_the_other(number)
            )
        call_ready(selector, 0)
    assert len(called) == 1


def test_what_has_taken_over_a_number_waits_for_its_own_turn() -> None:
    called: list[str] = []
    with _readable(3) as (selector, readers):
        first, second, third = readers

        def replace() -> None:
            called.append("first")
            for number in (first, second):
                with suppress(KeyError):
                    selector.unregister(number)
                    os.dup2(third, number)
                    selector.register(number, selectors.EVENT_READ, lambda: called.append("new"))

        for number in (first, second):
            selector.register(number, selectors.EVENT_READ, replace)
        call_ready(selector, 0)
        assert called == ["first"]
        call_ready(selector, 0)
    assert called == ["first", "new", "new"]
