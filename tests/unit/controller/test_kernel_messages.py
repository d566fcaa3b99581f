"""Kernel messages of nodes: as they are shown, and what is refused."""

import pytest

from everstep_common.reports import KernelMessage, KernelMessages
from everstep_common.stamp import Stamp
from everstep_controller.telemetry.kernel_messages import NewestKernelMessages, kernel_line
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, from_wire

_NOON_NS = 1_769_860_800_000_000_000


def _message(
    text: str = "words", level: int | None = 3, wall_ns: int = _NOON_NS
) -> fleet_pb2.KernelMessage:
    stamp = fleet_pb2.Stamp(boot_id="boot", boot_ns=1, wall_ns=wall_ns)
    return fleet_pb2.KernelMessage(stamp=stamp, level=level, text=text)


def _read(*messages: fleet_pb2.KernelMessage) -> KernelMessages:
    return from_wire(KernelMessages, fleet_pb2.KernelMessages(lines=messages))


def test_the_newest_messages_replace_those_before_and_are_shown_with_time_and_level() -> None:
    held = NewestKernelMessages()
    for messages in ([_message("old")], [_message(), _message(level=None)]):
        held.replace("node-1", _read(*messages))
    assert [kernel_line(message) for message in held.of("node-1")] == [
        "2026-01-31 12:00:00 error: words",
        "2026-01-31 12:00:00: words",
    ]
    assert held.of("node-2") == ()


def test_what_would_move_the_cursor_of_a_terminal_is_replaced_and_nothing_is_endless() -> None:
    held = NewestKernelMessages()
    held.replace("a", _read(*[_message()] * 19, _message("\x1b[2J" + "x" * 10_000)))
    text = held.of("a")[-1].text
    assert text.startswith("\\x1b[2Jxx")
    assert len(text) == 500
    with pytest.raises(WireError, match=r"KernelMessages\.lines: 21 items are more than 20"):
        _read(*[_message()] * 21)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (fleet_pb2.KernelMessage(text="no stamp"), "stamp: is missing"),
        (_message(level=8), "level: 8 is not from 0 to 7"),
        (_message(wall_ns=-1), "stamp.wall_ns: -1 is not from 0 to "),
    ],
)
def test_a_malformed_message_is_refused(message: fleet_pb2.KernelMessage, field: str) -> None:
    with pytest.raises(WireError) as refused:
        _read(message)
    assert f"KernelMessages.lines[0].{field}" in str(refused.value)


def test_a_message_of_a_clock_that_is_far_off_is_shown_with_its_date() -> None:
    message = KernelMessage(Stamp("boot", 1, 2**63 - 1), None, "words", injected=True)
    assert kernel_line(message) == "2262-04-11 23:47:16 (written by a process): words"
