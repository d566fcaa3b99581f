"""Long frames: long messages coded in parts, so that an event loop can do other work in between.

Each function is a generator that yields after every small part and returns the result. On the wire
the frames are those of `frames`. What is read here is ASCII without spaces between its parts, and
begins with its type, as every long message of this product is written.
"""

import json
import typing
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import TypeVar

from everstep_common import frames
from everstep_common.bounds import MisfitError, Reader, bound_of
from everstep_common.codec import CodecError, field_readers
from everstep_common.frames import FrameError, MessageError
from everstep_common.hints import hints_of, item_of
from everstep_common.json_readers import made
from everstep_common.json_writers import Writer, writer_of

T = TypeVar("T")
Parts = Generator[None, None, T]

# Bytes that are coded at once, which takes a millisecond or two.
SHORT_BYTES = 32 * 1024
# The largest single item, which is decoded at once; a larger, hostile one is refused before that.
_ITEM_BYTES_MAX = 256 * 1024
# Items of a list that are coded at once: about 25 KiB of shards, half a millisecond.
_ITEMS = 128


def finish(parts: Parts[T]) -> T:
    """Return the result at once, for who has nothing else to do."""
    while True:
        try:
            next(parts)
        except StopIteration as done:
            result: T = done.value
            return result


def encode_in_parts(message: object) -> Parts[list[bytes]]:
    """Return the frame of a message, in pieces. Raises FrameError when it is too large."""
    kind: type = type(message)
    if not any(field.is_list and getattr(message, field.name) for field in _fields_of(kind)):
        return [frames.encode(message)]
    pieces = [f'{{"type":"{kind.__name__}",'.encode()]
    yield from _record_written(message, pieces)
    size = sum(map(len, pieces))
    if size > frames.FRAME_BYTES_MAX:
        raise FrameError(f"{kind.__name__} is too large: {size} bytes")
    frame = [frames.header(size), *pieces]
    return frame if size > SHORT_BYTES else [b"".join(frame)]


def decode_in_parts(payload: bytes | memoryview, known: Mapping[str, type]) -> Parts[object]:
    """Return the message in a frame's body. Raises FrameError for what is not in ``known``."""
    if len(payload) <= SHORT_BYTES:
        return frames.decode(bytes(payload), known)
    try:
        return (yield from _decoded(_Scanner(payload), known))
    except (ValueError, TypeError, RecursionError) as error:  # CodecError is one of these
        reason = str(error) if isinstance(error, CodecError | TypeError) else "not JSON"
        raise FrameError(f"a long frame: {reason}") from error


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a message: what writes it, whether it is a list, and one of records with lists."""

    name: str
    write: Writer
    is_list: bool
    has_lists: bool


@cache
def _fields_of(kind: type) -> tuple[_Field, ...]:
    if not is_dataclass(kind):
        raise TypeError(f"not a message: {kind.__name__}")
    return tuple(
        _Field(
            name,
            writer_of(hint),
            item_of(hint) is not None,
            any(map(_is_list_of_records, _hints_of_items(hint))),
        )
        for name, hint in hints_of(kind).items()
    )


def _hints_of_items(hint: object) -> Iterable[object]:
    """Return the hints of the fields of a list's records."""
    kind, _ = bound_of(item_of(hint))
    return hints_of(typing.cast("type", kind)).values() if is_dataclass(kind) else ()


def _is_list_of_records(hint: object) -> bool:
    """Return whether a field is one; the dimensions of a shard are not counted."""
    kind, _ = bound_of(item_of(hint))
    return is_dataclass(kind)


def _record_written(record: object, pieces: list[bytes]) -> Parts[None]:
    """Append the fields of a record, and what ends it."""
    kind: type = type(record)
    for number, field in enumerate(_fields_of(kind)):
        pieces.append(f'{"," if number else ""}"{field.name}":'.encode())
        yield from _written(field, getattr(record, field.name), pieces)
    pieces.append(b"}")


def _written(field: _Field, value: typing.Any, pieces: list[bytes]) -> Parts[None]:  # noqa: ANN401
    """Append the JSON of a field: lists in parts, and those in what is in short lists, too."""
    if not field.is_list or not value:
        pieces.append(field.write(value).encode())
        return
    nested = field.has_lists and len(value) <= _ITEMS
    for begin in range(0, len(value), 1 if nested else _ITEMS):
        pieces.append(b"," if begin else b"[")
        if nested:
            pieces.append(b"{")
            yield from _record_written(value[begin], pieces)
        else:
            pieces.append(field.write(value[begin : begin + _ITEMS])[1:-1].encode())
        yield
    pieces.append(b"]")


def _decoded(scanner: "_Scanner", known: Mapping[str, type]) -> Parts[object]:
    scanner.expect("{")
    if (scanner.value(), scanner.expect(":")) != ("type", ":"):
        raise FrameError("a long frame that does not begin with its type")
    kind = known.get(str(scanner.value()))
    if kind is None:
        raise FrameError("a frame of unknown type")
    readers, values = field_readers(kind), dict[str, object]()
    while scanner.expect(",}") == ",":
        name = str(scanner.value())
        scanner.expect(":")
        reader = readers.get(name)
        if reader is None:
            raise FrameError(f"{kind.__name__}: unknown field {name!r:.60}")
        if reader.item is None:
            values[name] = reader.value(scanner.value())
        else:
            values[name] = yield from scanner.items(reader.item)
        yield
    scanner.end()
    try:
        return made(kind, values)
    except MisfitError as error:
        raise MessageError(f"{kind.__name__}: {error.problem}") from error


class _Scanner:
    """Reads JSON from its beginning, never more at once than the largest item."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self._payload = memoryview(payload)
        self._decode = json.JSONDecoder().raw_decode
        # A part of the payload as text, where in the payload it begins, and what of it was read.
        self._text, self._begin, self._at = "", 0, 0
        self._advance()

    def expect(self, expected: str) -> str:
        """Return the next character, which must be one of these."""
        found = self._next()
        if not found or found not in expected:
            raise FrameError("a frame that is not JSON")
        self._at += 1
        return found

    def value(self) -> object:
        """Return the next value. Raises ValueError when it is none, or too large."""
        for last in (False, True):
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError:
                if last:
                    raise
            else:
                # A number at the end of the text may have more digits in the next part.
                if last or end < len(self._text):
                    self._at = end
                    return value
            self._advance()
        raise AssertionError("the second attempt returns or raises")

    def items(self, read: Reader) -> Parts[tuple[object, ...]]:
        """Return the list that comes next, each item as it is read."""
        self.expect("[")
        found: list[object] = []
        if self._next() == "]":
            self._at += 1
            return ()
        while True:
            found.append(read(self.value()))
            yield
            if self.expect(",]") == "]":
                return tuple(found)

    def end(self) -> None:
        """Raise FrameError when something is left."""
        if self._begin + self._at != len(self._payload):
            raise FrameError("a frame that goes on after its message")

    def _next(self) -> str:
        if self._at >= len(self._text):
            self._advance()
        return self._text[self._at : self._at + 1]

    def _advance(self) -> None:
        self._begin += self._at
        part = self._payload[self._begin : self._begin + _ITEM_BYTES_MAX]
        self._text, self._at = str(part, "ascii"), 0
