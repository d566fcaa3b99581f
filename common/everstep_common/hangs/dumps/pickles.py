"""Pickle reader for plain values: it runs nothing, and memory and depth are bounded. Pure.

Whoever unpickles a file with Python's own reader runs what the file says. This one knows the
operations that make plain values (dict, list, tuple, text, number, bool, None) and refuses all
others by name: an import, a call, an object. torch's Flight Recorder writes with twenty of them.

``pickle.Unpickler`` with ``find_class`` refused is not as safe, however its memory is bounded: a
tuple that is two million deep, as a key, ends its process by SIGSEGV, 430 bytes of tuples that hold
each other twice keep one call in C busy for ever, and with the reader program that it runs in the
other ranks would be lost that are read there.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

# A recorder of 2,000 operations with stacks takes some 100,000 values; a file of one-byte
# operations could make as many values as it has bytes.
VALUES_MAX = 4_000_000
# Each value takes some two: to make it, to remember it, and to add it to another.
OPERATIONS_MAX = 3 * VALUES_MAX
# A value may be held several times, so a file of 400 bytes can hold more than any memory.
HELD_MAX = 4 * VALUES_MAX
DEPTH_MAX = 64
# Sequence ids and times take 8 bytes.
_LONG_MAX_BYTES = 16

# What a file must not ask for, with the words for it.
_REFUSED: Mapping[int, str] = MappingProxyType(
    {
        ord("c"): "to import a Python object",
        0x93: "to import a Python object",
        ord("i"): "to import and call a Python object",
        ord("o"): "to call a Python object",
        ord("R"): "to call a Python object",
        ord("b"): "to set the state of a Python object",
        0x81: "to make a Python object",
        0x92: "to make a Python object",
        ord("P"): "for an object kept outside of the file",
        ord("Q"): "for an object kept outside of the file",
        0x82: "for an extension",
        0x83: "for an extension",
        0x84: "for an extension",
    }
)


class PickleError(ValueError):
    """Bytes are no pickle of plain values; the message says why in one sentence."""


class _Mark:
    """Place on the stack where a list, tuple or dict begins."""


_MARK = _Mark()


class _Reading:
    """State of one reading: the bytes, the place in them, the stack and the memo."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}
        self.made = 0
        # Depth of each container that holds something, and how many values are in it and below.
        self.sizes: dict[int, tuple[int, int]] = {}
        # What others hold, by id, which is nobody else's for as long as it is here.
        self.held: dict[int, object] = {}

    def read_bytes(self, count: int) -> bytes:
        """Return the next bytes. Raises PickleError where there are fewer."""
        end = self.at + count
        if end > len(self.data):
            raise PickleError(f"the file ends early, after {len(self.data)} bytes")
        found = self.data[self.at : end]
        self.at = end
        return found

    def line(self) -> bytes:
        """Return what stands before the next line break, of 64 bytes at most."""
        end = self.data.find(b"\n", self.at, self.at + 64)
        if end < 0:
            raise PickleError(f"at byte {self.at}: expected a short line")
        found = self.data[self.at : end]
        self.at = end + 1
        return found

    def push(self, value: object) -> None:
        """Put a value on the stack. Raises PickleError where there are too many."""
        self.made += 1
        if self.made > VALUES_MAX:
            raise PickleError(f"it has more than {VALUES_MAX:,} values")
        self.stack.append(value)

    def pop(self) -> object:
        """Take the value on the top off the stack."""
        if not self.stack or self.stack[-1] is _MARK:
            raise PickleError(f"at byte {self.at}: a value is missing")
        return self.stack.pop()

    def pop_to_mark(self) -> list[object]:
        """Take the values since the newest mark off the stack."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                found = self.stack[place + 1 :]
                del self.stack[place:]
                return found
        raise PickleError(f"at byte {self.at}: a list has no beginning")

    def container(self, kind: type) -> object:
        """Return the list or dict on the top, to which values are added."""
        if not self.stack or type(self.stack[-1]) is not kind:
            raise PickleError(f"at byte {self.at}: there is no {kind.__name__} to add to")
        if id(self.stack[-1]) in self.held:
            raise PickleError(f"at byte {self.at}: it adds to a value that another one holds")
        return self.stack[-1]

    def note_size(self, holder: object, values: Sequence[object]) -> None:
        """Raises PickleError where containers are nested too deeply, or hold too much."""
        depth, size = self.sizes.get(id(holder), (1, 1))
        size += len(values)
        for one in values:
            if isinstance(one, list | dict | tuple):
                inner = self.sizes.get(id(one), (1, 1))
                depth, size = max(depth, inner[0] + 1), size + inner[1]
                self.held[id(one)] = one
        if depth > DEPTH_MAX:
            raise PickleError(f"its values are nested more than {DEPTH_MAX} deep")
        if size > HELD_MAX:
            raise PickleError(f"it holds more than {HELD_MAX:,} values, one in another")
        self.sizes[id(holder)] = (depth, size)


@dataclass(slots=True)
class Effort:
    """How many operations a reading may take, and how many it has taken."""

    operations_max: int = OPERATIONS_MAX
    operations: int = 0


def plain_values(data: bytes, effort: Effort | None = None) -> object:
    """Return what a pickle of plain values holds. Raises PickleError."""
    reading, effort, count = _Reading(data), effort or Effort(), 0
    try:
        for count in range(min(effort.operations_max, OPERATIONS_MAX)):  # noqa: B007
            code = reading.read_bytes(1)[0]
            if code == _STOP:
                return _only_value(reading)
            operation = _OPERATIONS.get(code)
            if operation is None:
                raise PickleError(_refusal(code, reading))
            operation(reading)
    finally:
        effort.operations += count
    raise PickleError(f"it has more than {effort.operations_max:,} operations")


def _only_value(reading: _Reading) -> object:
    value = reading.pop()
    if reading.stack:
        raise PickleError("it holds more than one value")
    return value


def _refusal(code: int, reading: _Reading) -> str:
    asked = _REFUSED.get(code)
    if asked is None:
        return f"byte {reading.at - 1} is {code:#04x}, which is no operation of a plain pickle"
    name = ""
    if code in (ord("c"), ord("i")):
        lines = reading.data[reading.at : reading.at + 200].split(b"\n")[:2]
        name = " (" + ".".join(ascii(one.decode("latin-1"))[1:-1] for one in lines) + ")"
    return f"it asks {asked}{name}, which no dump does; nothing of it was executed"


_STOP = ord(".")


def _append_all(reading: _Reading, values: list[object]) -> None:
    holder = reading.container(list)
    assert isinstance(holder, list)
    holder.extend(values)
    reading.note_size(holder, values)


def _set_all(reading: _Reading, values: list[object]) -> None:
    holder = reading.container(dict)
    assert isinstance(holder, dict)
    if len(values) % 2:
        raise PickleError(f"at byte {reading.at}: a key has no value")
    keys = values[::2]
    if not all(map(_may_be_key, keys)):
        raise PickleError(f"at byte {reading.at}: a key is no text or number of 64 bits")
    holder.update(zip(keys, values[1::2], strict=True))
    reading.note_size(holder, values[1::2])


def _may_be_key(key: object) -> bool:
    """Return whether a dictionary finds a key at once: larger integers can all have one hash."""
    if isinstance(key, int):
        return -(2**63) <= key < 2**63
    return key is None or isinstance(key, str | float)


def _push_holder(reading: _Reading, made: list[object] | tuple[object, ...]) -> None:
    reading.push(made)
    if made:
        reading.note_size(made, made)


def _popped(reading: _Reading, count: int) -> list[object]:
    return [reading.pop() for _ in range(count)][::-1]


def _long(reading: _Reading, size: int) -> None:
    if size > _LONG_MAX_BYTES:
        raise PickleError(f"at byte {reading.at}: an integer of {size} bytes")
    reading.push(int.from_bytes(reading.read_bytes(size), "little", signed=True))


def _text(reading: _Reading, size: int) -> None:
    reading.push(reading.read_bytes(size).decode("utf-8", "replace"))


def _bytes(reading: _Reading, size: int) -> None:
    reading.push(reading.read_bytes(size))


def _int_line(reading: _Reading) -> None:
    line = reading.line()
    try:
        reading.push(line == b"01" if line in (b"00", b"01") else int(line.rstrip(b"L")))
    except ValueError:
        raise PickleError(f"at byte {reading.at}: {line!r:.40} is no number") from None


def _float_line(reading: _Reading) -> None:
    line = reading.line()
    try:
        reading.push(float(line))
    except ValueError:
        raise PickleError(f"at byte {reading.at}: {line!r:.40} is no number") from None


def _get(reading: _Reading, key: int) -> None:
    try:
        reading.push(reading.memo[key])
    except KeyError:
        raise PickleError(f"at byte {reading.at}: it refers to a value that it has not") from None


def _put(reading: _Reading, key: int) -> None:
    if not reading.stack or reading.stack[-1] is _MARK:
        raise PickleError(f"at byte {reading.at}: a value is missing")
    if len(reading.memo) >= VALUES_MAX:
        raise PickleError(f"it remembers more than {VALUES_MAX:,} values")
    reading.memo[key] = reading.stack[-1]


def _skip(reading: _Reading, count: int) -> None:
    # The version of the protocol, or the length of a frame: neither changes what follows.
    reading.read_bytes(count)


def _mark(reading: _Reading) -> None:
    reading.stack.append(_MARK)


def _u1(reading: _Reading) -> int:
    return reading.read_bytes(1)[0]


def _u2(reading: _Reading) -> int:
    return int.from_bytes(reading.read_bytes(2), "little")


def _u4(reading: _Reading) -> int:
    return int.from_bytes(reading.read_bytes(4), "little")


def _u8(reading: _Reading) -> int:
    return int.from_bytes(reading.read_bytes(8), "little")


def _i4(reading: _Reading) -> int:
    return int.from_bytes(reading.read_bytes(4), "little", signed=True)


def _double(reading: _Reading) -> float:
    found: float = struct.unpack(">d", reading.read_bytes(8))[0]
    return found


# By the opcodes of Lib/pickle.py of CPython 3.11.
_OPERATIONS: Mapping[int, Callable[[_Reading], None]] = MappingProxyType(
    {
        0x80: lambda r: _skip(r, 1),
        0x95: lambda r: _skip(r, 8),
        ord("("): _mark,
        ord("N"): lambda r: r.push(None),
        0x88: lambda r: r.push(True),
        0x89: lambda r: r.push(False),
        ord("J"): lambda r: r.push(_i4(r)),
        ord("K"): lambda r: r.push(_u1(r)),
        ord("M"): lambda r: r.push(_u2(r)),
        ord("I"): _int_line,
        ord("L"): _int_line,
        0x8A: lambda r: _long(r, _u1(r)),
        0x8B: lambda r: _long(r, _u4(r)),
        ord("G"): lambda r: r.push(_double(r)),
        ord("F"): _float_line,
        ord("X"): lambda r: _text(r, _u4(r)),
        0x8C: lambda r: _text(r, _u1(r)),
        0x8D: lambda r: _text(r, _u8(r)),
        ord("U"): lambda r: _text(r, _u1(r)),
        ord("T"): lambda r: _text(r, _u4(r)),
        ord("B"): lambda r: _bytes(r, _u4(r)),
        ord("C"): lambda r: _bytes(r, _u1(r)),
        ord("]"): lambda r: r.push([]),
        ord("}"): lambda r: r.push({}),
        ord(")"): lambda r: r.push(()),
        ord("l"): lambda r: _push_holder(r, r.pop_to_mark()),
        ord("t"): lambda r: _push_holder(r, tuple(r.pop_to_mark())),
        0x85: lambda r: _push_holder(r, tuple(_popped(r, 1))),
        0x86: lambda r: _push_holder(r, tuple(_popped(r, 2))),
        0x87: lambda r: _push_holder(r, tuple(_popped(r, 3))),
        ord("a"): lambda r: _append_all(r, _popped(r, 1)),
        ord("e"): lambda r: _append_all(r, r.pop_to_mark()),
        ord("s"): lambda r: _set_all(r, _popped(r, 2)),
        ord("u"): lambda r: _set_all(r, r.pop_to_mark()),
        ord("q"): lambda r: _put(r, _u1(r)),
        ord("r"): lambda r: _put(r, _u4(r)),
        0x94: lambda r: _put(r, len(r.memo)),
        ord("h"): lambda r: _get(r, _u1(r)),
        ord("j"): lambda r: _get(r, _u4(r)),
    }
)
