"""Frames between a job's processes and the agent: whole, hostile, cut, and with descriptors."""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common import frames, launcher_messages, rank_messages
from everstep_common.bounds import MisfitError, Reader
from everstep_common.frames import Channel, FrameError, body_length, decode, encode
from everstep_common.json_readers import reader_of, thorough_reader
from everstep_common.rank_messages import Begin, Commit, Entry, Slot
from everstep_common.reports import LauncherLeft
from fakes.report_values import records

KNOWN = {kind.__name__: kind for kind in rank_messages.FROM_TRAINER}
COMMIT = Commit(7, 1, 3, (Entry("w", 0, 8, "<f8", (1,)), Entry("b", 64, 8)))


@pytest.fixture
def pair() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, [Begin, Commit, Slot], (Slot,))
    with theirs:
        yield channel, theirs
    channel.close()


def _open_fds() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_message_survives_the_frame() -> None:
    frame = encode(COMMIT)
    assert body_length(frame[:4]) == len(frame) - 4
    assert decode(frame[4:], KNOWN) == COMMIT


_ALL = {
    kind.__name__: kind
    for kind in (
        *launcher_messages.FROM_LAUNCHER,
        *launcher_messages.TO_LAUNCHER,
        *rank_messages.FROM_TRAINER,
        *rank_messages.TO_TRAINER,
    )
}


@pytest.mark.parametrize("kind", _ALL.values(), ids=_ALL)
@given(data=st.data())
@settings(max_examples=30, derandomize=True, database=None)
def test_every_message_survives_its_frame_and_is_what_json_says(
    kind: type, data: st.DataObject
) -> None:
    message = data.draw(records(kind))
    body = encode(message)[4:]
    assert decode(body, _ALL) == message
    named = json.loads(body)
    assert json.dumps(named, separators=(",", ":")).encode() == body
    # What the compiled reader takes at once is what the thorough one makes of it.
    del named["type"]
    assert thorough_reader(kind)(named) == message


_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_VALUES = _LEAVES | st.lists(_LEAVES, max_size=3) | st.dictionaries(st.text(), _LEAVES, max_size=3)


@pytest.mark.parametrize("kind", _ALL.values(), ids=_ALL)
@given(data=st.data())
@settings(max_examples=40, derandomize=True, database=None)
def test_a_message_with_one_wrong_value_is_read_as_field_by_field_or_not_at_all(
    kind: type, data: st.DataObject
) -> None:
    named = json.loads(encode(data.draw(records(kind)))[4:])
    del named["type"]
    if named:
        named[data.draw(st.sampled_from(sorted(named)))] = data.draw(_VALUES)
    found = [_outcome(reader(kind), named) for reader in (reader_of, thorough_reader)]
    assert repr(found[0]) == repr(found[1])


def _outcome(read: Reader, value: object) -> object:
    try:
        return read(value)
    except MisfitError as error:
        return (error.where, error.problem)


def test_every_message_of_the_protocol_has_its_own_name() -> None:
    kinds = {
        *launcher_messages.FROM_LAUNCHER,
        *launcher_messages.TO_LAUNCHER,
        *rank_messages.FROM_TRAINER,
        *rank_messages.TO_TRAINER,
    }
    assert len({kind.__name__ for kind in kinds}) == len(kinds)
    assert not any(hasattr(kind, "type") for kind in kinds)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"{}",
        b'{"type": "Begin"}',
        b'{"type": "Begin", "step": "1"}',
        b'{"type": "Begin", "step": 1e400}',
        b'{"type": "Begin", "step": 1, "more": 2}',
        b'{"type": ["Begin"], "step": 1}',
        b'{"type": "Slot", "slot": 0, "epoch": 1}',
        b'{"type": "__class__"}',
        b"[" * 200_000,
        b'{"type": "Begin", "step": ' + b"9" * 5_000 + b"}",
    ],
)
def test_a_hostile_body_is_refused(payload: bytes) -> None:
    with pytest.raises(FrameError):
        decode(payload, KNOWN)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_message_or_a_frame_error(payload: bytes) -> None:
    with contextlib.suppress(FrameError):
        assert type(decode(payload, KNOWN)) in rank_messages.FROM_TRAINER


@given(st.sampled_from([encode(COMMIT)[4:], encode(Begin(3))[4:]]), st.data())
def test_a_frame_with_one_byte_changed_is_a_message_or_a_frame_error(
    payload: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(payload) - 1))
    changed = payload[:at] + bytes([data.draw(st.integers(0, 255))]) + payload[at + 1 :]
    with contextlib.suppress(FrameError):
        decode(changed, KNOWN)


def test_a_hostile_length_allocates_nothing() -> None:
    with pytest.raises(FrameError, match="above the limit"):
        body_length(struct.pack(">I", 2**32 - 1))


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(FrameError, match="too large"):
        encode(LauncherLeft("x" * frames.FRAME_BYTES_MAX, by_user=True))


def test_messages_cross_a_socket_in_order(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(encode(Begin(1)) + encode(COMMIT))
    assert channel.receive(1) == (Begin(1), [])
    assert channel.receive(1) == (COMMIT, [])
    channel.send(Begin(2))
    assert json.loads(other.recv(1000)[4:]) == {"type": "Begin", "step": 2, "wait_s": None}


def test_a_timeout_in_the_middle_of_a_frame_loses_nothing(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, other = pair
    frame = encode(COMMIT)
    for part in (frame[:2], frame[2:20]):
        other.sendall(part)
        with pytest.raises(TimeoutError):
            channel.receive(0.001)
    other.sendall(frame[20:] + encode(Begin(2)))
    assert channel.receive(1) == (COMMIT, [])
    assert channel.receive(1) == (Begin(2), [])


def test_descriptors_belong_to_the_frame_they_came_with(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, other = pair
    memory = os.memfd_create("slot")
    os.write(memory, b"state")
    other.sendall(encode(Begin(1)))
    socket.send_fds(other, [encode(Slot(0, 1))], [memory])
    os.close(memory)
    assert channel.receive(1) == (Begin(1), [])
    message, (received,) = channel.receive(1)
    assert message == Slot(0, 1)
    assert os.pread(received, 10, 0) == b"state"
    assert not os.get_inheritable(received)
    os.close(received)


def test_descriptors_of_a_frame_that_is_refused_or_cut_are_closed() -> None:
    before = _open_fds()
    for payload in (b"\0\0\0\2{}", b"\0\0\0\2{"):
        ours, theirs = socket.socketpair()
        channel = Channel(ours, [Begin], (Begin,))
        with open("/dev/null", "rb") as null, theirs:
            socket.send_fds(theirs, [payload], [null.fileno()])
        with pytest.raises(ConnectionError):
            channel.receive(1)
        channel.close()
    assert _open_fds() == before


def test_descriptors_beside_a_message_that_has_none_are_refused_and_closed(
    pair: tuple[Channel, socket.socket],
) -> None:
    channel, other = pair
    before = _open_fds()
    with open("/dev/null", "rb") as null:
        socket.send_fds(other, [encode(Begin(1))], [null.fileno()])
    with pytest.raises(FrameError, match="came with a Begin, which has none"):
        channel.receive(1)
    assert _open_fds() == before


def test_a_channel_without_carriers_takes_no_descriptor_at_all() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, [Begin])
    with open("/dev/null", "rb") as null, theirs:
        before = _open_fds()
        socket.send_fds(theirs, [encode(Begin(1))], [null.fileno()])
        assert channel.receive(1) == (Begin(1), [])
        assert _open_fds() == before
    channel.close()


def test_the_end_of_the_connection_is_an_error(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    other.sendall(encode(Begin(1))[:-1])
    other.close()
    with pytest.raises(ConnectionError, match="closed the connection"):
        channel.receive(1)


def test_a_large_frame_crosses_in_pieces(pair: tuple[Channel, socket.socket]) -> None:
    channel, other = pair
    commit = Commit(1, 0, 1, tuple(Entry(f"layer.{i}", i * 64, 64) for i in range(20_000)))
    sender = threading.Thread(target=other.sendall, args=(encode(commit),))
    sender.start()
    assert channel.receive(10) == (commit, [])
    sender.join()
