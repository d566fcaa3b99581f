import contextlib
from collections.abc import Iterator

import pytest

from everstep_cli.client.admin import AdminError
from everstep_cli.client.times import RequestedTime
from everstep_cli.commands.events import follow_events
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin


class Restarting(FakeAdmin):
    """A controller whose streams end after some events; an empty one stands for its absence."""

    def __init__(self, *streams: tuple[int, ...]) -> None:
        super().__init__()
        self._streams = list(streams)
        self.asked: list[int] = []

    def events(
        self, subject: str, limit: int, follow: bool, since: RequestedTime | None = None
    ) -> Iterator[admin_pb2.Event]:
        self.asked.append(limit)
        for number in self._streams.pop(0):
            yield admin_pb2.Event(id=number)
        raise AdminError("no controller answers")


class EnoughError(Exception):
    """The test has seen what it wanted to."""


def followed(admin: Restarting, waits: int) -> tuple[list[int], list[str]]:
    """Return the events and what was said until the last wait."""
    seen: list[int] = []
    said: list[str] = []
    left = iter(range(waits))

    def wait(seconds: float) -> None:
        if next(left, None) is None:
            raise EnoughError

    with contextlib.suppress(EnoughError):
        for event in follow_events(admin, "", 5, said.append, wait):
            seen.append(event.id)
    return seen, said


def test_a_restart_repeats_nothing_and_leaves_nothing_out() -> None:
    admin = Restarting((1, 2), (), (), (1, 2, 3), (4,))
    seen, said = followed(admin, waits=4)
    assert seen == [1, 2, 3, 4]
    assert [line.split(";")[0] for line in said] == [
        "the controller is away",
        "the controller is back",
        "the controller is away",
        "the controller is back",
        "the controller is away",
    ]
    assert admin.asked == [5, *[10_000] * 4]


def test_a_controller_that_was_never_there_is_an_error() -> None:
    with pytest.raises(AdminError, match="no controller answers"):
        next(follow_events(Restarting(()), "", 5, lambda _: None))
