"""NVML calls: ask the driver's library for values that may be missing, refused or per GPU."""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from types import ModuleType

# nvmlReturn_t, nvml.h.
_NO_FUNCTION = 13
GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 15, 16, 999
# Errors with which a GPU answers no question at all.
_GONE = frozenset({GPU_IS_LOST, RESET_REQUIRED})

# nvmlFieldValue_t: field, scope, time, latency, nvmlValueType_t, nvmlReturn_t, and the value, whose
# type says what its eight bytes hold. Through ctypes a field costs 2 µs, of 140 in a complete look.
_FIELD_VALUE = struct.Struct("@IIqqiiQ")
_VALUE_BITS = {1: 32, 2: 64, 3: 64, 6: 16}
_SIGNED_BITS = {4: 64, 5: 32}

_UNKNOWN_FROM = 1 << 63

# A field, or a field of one link.
Field = int | tuple[int, int]


class GoneError(Exception):
    """The GPU gives no answer: it is lost, or needs a reset."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def code_of(error: Exception) -> int:
    """Return the nvmlReturn_t of an NVMLError."""
    value = getattr(error, "value", None)
    return value if isinstance(value, int) else UNKNOWN


class Calls:
    """Calls into NVML; remembers which functions this driver's library lacks."""

    def __init__(self, library: ModuleType) -> None:
        self.library = library
        self._missing: set[tuple[str, int]] = set()

    def must(self, name: str, *arguments: object) -> object:
        """Return the answer. Raises GoneError whenever there is none."""
        try:
            return getattr(self.library, name)(*arguments)
        except self.library.NVMLError as error:
            raise GoneError(code_of(error), str(error)) from error

    def may(self, name: str, *arguments: object) -> object:
        """Return the answer, None for what GPU or driver lack. Raises GoneError."""
        function = getattr(self.library, name, None)
        # Missing functions are known by name and number of arguments: newer forms have one more.
        form = (name, len(arguments))
        if function is None or form in self._missing:
            return None
        try:
            return function(*arguments)
        except self.library.NVMLError as error:
            code = code_of(error)
            if code == _NO_FUNCTION:
                self._missing.add(form)
            if code in _GONE:
                raise GoneError(code, str(error)) from error
            return None

    def struct(self, name: str, kind: str, handle: object) -> ctypes.Structure | None:
        """Return the struct that a function fills, None for an unknown one. Raises GoneError."""
        make = getattr(self.library, kind, None)
        if make is None:
            return None
        info: ctypes.Structure = make()
        return None if self.may(name, handle, ctypes.byref(info)) is None else info

    def number(self, name: str, *arguments: object) -> int | None:
        """Return a number, None for an unknown one. Raises GoneError."""
        return _known(self.may(name, *arguments))

    def text(self, name: str, *arguments: object) -> str:
        """Return a text, empty for an unknown one. Raises GoneError."""
        answer = self.may(name, *arguments)
        return "" if answer is None else as_text(answer)

    def fields(self, handle: object, asked: Sequence[Field]) -> Mapping[Field, int]:
        """Return the fields that have a value, all by one call. Raises GoneError."""
        answers = self.may("nvmlDeviceGetFieldValues", handle, list(asked)) if asked else None
        found: dict[Field, int] = {}
        if not isinstance(answers, ctypes.Array):
            return found
        values = _FIELD_VALUE.iter_unpack(memoryview(answers).cast("B"))
        for field, (_, _, _, _, kind, code, raw) in zip(asked, values, strict=False):
            if code == 0:
                number = _known(_number(kind, raw))
                if number is not None:
                    found[field] = number
            elif code in _GONE:
                raise GoneError(code, "the GPU is lost or needs a reset")
        return found


def _number(kind: int, raw: int) -> int | None:
    """Return a value of a type (nvmlValueType_t); None for floating point, which no field has."""
    if bits := _VALUE_BITS.get(kind):
        return raw & (1 << bits) - 1
    if bits := _SIGNED_BITS.get(kind):
        value = raw & (1 << bits) - 1
        return value - (1 << bits) if value >> bits - 1 else value
    return None


def _known(value: object) -> int | None:
    """Return a number; NVML fills all bits where it knows none (NVML_VALUE_NOT_AVAILABLE)."""
    return value if isinstance(value, int) and value < _UNKNOWN_FROM else None


def as_text(value: object) -> str:
    """Return a text that may be bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def as_flag(value: int | None) -> bool | None:
    """Return a number as a flag."""
    return None if value is None else bool(value)


def scaled(value: int | None, divisor: int) -> float | None:
    """Return a number in a larger unit."""
    return None if value is None else value / divisor


def member(answer: object, name: str) -> int | None:
    """Return a number out of a struct that may be missing."""
    return _known(getattr(answer, name, None))
