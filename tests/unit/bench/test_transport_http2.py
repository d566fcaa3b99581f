"""Frames and messages of the generator's streams, however the kernel cuts them."""

import struct

from transport_http2 import DATA, frames_of, messages_of
from transport_relay import pack, unpack


def _data(payload: bytes) -> bytes:
    return struct.pack(">BHBBI", 0, len(payload), DATA, 0, 1) + payload


def _message(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4, "big") + content


def test_frames_and_messages_come_whole_however_they_are_cut() -> None:
    sent = _message(b"one") + _message(b"") + _message(b"three" * 100)
    wire = _data(sent[:7]) + _data(sent[7:])
    for size in (1, 3, 8, len(wire)):
        received, data = bytearray(), bytearray()
        messages: list[bytes] = []
        for at in range(0, len(wire), size):
            received += wire[at : at + size]
            for kind, _, stream, payload in frames_of(received):
                assert (kind, stream) == (DATA, 1)
                data += payload
            messages += messages_of(data)
        assert messages == [b"one", b"", b"three" * 100]
        assert not received
        assert not data


def test_a_batch_of_a_relay_gives_each_agent_its_messages_in_order() -> None:
    said = [(0, b"a"), (31, b""), (0, b"b" * 70_000)]
    assert list(unpack(pack(said))) == said
