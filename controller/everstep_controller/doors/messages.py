"""What door and controller tell one another of a stream, beside its messages."""

from collections.abc import Iterable, Mapping

import msgspec


class OpenedStream(msgspec.Struct, frozen=True):
    """An agent that has connected to a door."""

    # As gRPC tells it, ``ipv4:10.0.0.7:4242``.
    peer: str
    # What it has shown of itself: gRPC's auth_context.
    shown: dict[str, list[bytes]]


class EndedStream(msgspec.Struct, frozen=True):
    """How a stream ends: a code of gRPC, a sentence, and trailing metadata."""

    code: int
    sentence: str
    told: list[tuple[str, str]] = []


encode = msgspec.msgpack.encode
_OPENED = msgspec.msgpack.Decoder(OpenedStream)
_ENDED = msgspec.msgpack.Decoder(EndedStream)
decode_opened = _OPENED.decode
decode_ended = _ENDED.decode


def shown_of(auth_context: Mapping[str, Iterable[bytes]]) -> dict[str, list[bytes]]:
    """Return what gRPC tells of the other end of a channel, as it travels."""
    return {key: list(values) for key, values in auth_context.items()}


class DoorSettings(msgspec.Struct, frozen=True):
    """What a door is started with."""

    # The address that all doors listen at, and the socket of the controller's own services.
    listen: str
    services: str
    secret_file: str
    ca: str = ""
    certificate: str = ""
    key: str = ""
