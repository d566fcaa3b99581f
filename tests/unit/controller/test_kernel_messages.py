"""Kernel messages of nodes: as they are shown, and what is refused."""

import pytest

from everstep_controller.telemetry.kernel_messages import KernelMessages, kernel_messages
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError

_NOON_NS = 1_769_860_800_000_000_000


def _line(
    text: str = "words", level: int | None = 3, wall_ns: int = _NOON_NS
) -> fleet_pb2.KernelLine:
    stamp = fleet_pb2.Stamp(boot_id="boot", boot_ns=1, wall_ns=wall_ns)
    return fleet_pb2.KernelLine(stamp=stamp, level=level, text=text)


def test_the_newest_messages_replace_those_before_and_are_shown_with_time_and_level() -> None:
    held = KernelMessages()
    for lines in ([_line("old")], [_line(), _line(level=None)]):
        held.replace("node-1", kernel_messages(fleet_pb2.KernelMessages(lines=lines)))
    assert [str(message) for message in held.of("node-1")] == [
        "2026-01-31 12:00:00 error: words",
        "2026-01-31 12:00:00: words",
    ]
    assert held.of("node-2") == ()


def test_what_would_move_the_cursor_of_a_terminal_is_replaced_and_nothing_is_endless() -> None:
    lines = [_line()] * 100 + [_line("\x1b[2J" + "x" * 10_000)]
    messages = kernel_messages(fleet_pb2.KernelMessages(lines=lines))
    assert len(messages) == 20
    assert messages[-1].text.startswith("\N{REPLACEMENT CHARACTER}[2Jxx")
    assert len(messages[-1].text) == 500


@pytest.mark.parametrize(
    "line",
    [
        fleet_pb2.KernelLine(text="no stamp"),
        _line(level=8),
        _line(wall_ns=-1),
        _line(wall_ns=2**63 - 1),
    ],
)
def test_a_malformed_message_is_refused_or_shown(line: fleet_pb2.KernelLine) -> None:
    try:
        (message,) = kernel_messages(fleet_pb2.KernelMessages(lines=[line]))
    except WireError:
        return
    assert str(message)
