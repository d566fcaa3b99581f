"""Long messages are coded in parts, and are the same frames as short ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common import frames
from everstep_common.frames import FrameError
from everstep_common.long_frames import SHORT_BYTES, decode_in_parts, encode_in_parts, finish
from everstep_common.rank_messages import Commit, Entry, Restore, RestoredCopies, RestoredCopy

_KNOWN = {"Commit": Commit, "Restore": Restore}
_ENTRIES = tuple(
    Entry(f"läyer.{i}" if i % 7 == 0 else f'"}},{{[{i}', i * 64, 64, "BF16", (i, 2), digest=b"\x01")
    for i in range(3000)
)


def _body(message: object) -> bytes:
    return b"".join(finish(encode_in_parts(message)))[frames.HEADER_BYTES :]


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 3000])
def test_a_frame_in_parts_is_the_frame(count: int) -> None:
    some = _ENTRIES[:count]
    copies = (RestoredCopy(some, 1), RestoredCopy(some[:1], 2), RestoredCopy((), 3))
    for message in (
        Commit(1, 0, 7, some),
        RestoredCopies(3, copies, 0, 0),
        Restore(("a",) * count),
    ):
        assert b"".join(finish(encode_in_parts(message))) == frames.encode(message)


@pytest.mark.parametrize("count", [0, 1, 500, 3000])
def test_a_long_message_is_read_as_it_was_written(count: int) -> None:
    for message in (Commit(1, 0, 7, _ENTRIES[:count]), Restore(("näme" * 9,) * count)):
        assert finish(decode_in_parts(_body(message), _KNOWN)) == message


def test_reading_and_writing_stop_often_on_the_way() -> None:
    commit = Commit(1, 0, 7, _ENTRIES)
    assert sum(1 for _ in encode_in_parts(commit)) > 20
    assert sum(1 for _ in decode_in_parts(_body(commit), _KNOWN)) >= len(_ENTRIES)


@pytest.mark.parametrize(
    "body",
    [
        b'{"type":"Commit","step":1,"slot":0,"epoch":1,"entries":[' + b"[" * 400_000,
        b'{"type":"Restore","names":["' + b"x" * 600_000 + b'"]}',
        b'{"type":"Restore","names":[' + b'"a",' * 20_000,
        b'{"type":"Restore","names":[' + b'"a",' * 20_000 + b'"a"]}}',
        b'{"type":"Restore","names":[' + b"1," * 20_000 + b"1]}",
        b'{"type":"Restore","nemes":[' + b'"a",' * 20_000 + b'"a"]}',
        b'{"type":"Nothing","names":[' + b'"a",' * 20_000 + b'"a"]}',
        b'{"names":[' + b'"a",' * 20_000 + b'"a"],"type":"Restore"}',
        b'{"type":"Commit","step":1,"slot":0,"as_before":[' + b"1," * 20_000 + b"1]}",
        b" " * (2 * SHORT_BYTES),
        b"\xff" * (2 * SHORT_BYTES),
    ],
    ids=range(11),
)
def test_a_long_frame_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(FrameError):
        finish(decode_in_parts(body, _KNOWN))


@given(st.binary(max_size=40), st.integers(0, 60_000))
def test_a_damaged_long_frame_is_a_frame_error_or_another_message(noise: bytes, at: int) -> None:
    body = bytearray(_body(Commit(1, 0, 7, _ENTRIES[:1000])))
    body[at : at + len(noise)] = noise
    try:
        finish(decode_in_parts(bytes(body), _KNOWN))
    except FrameError:
        return
    json.loads(body)
