"""Edits of encoded cases: what a broken or hostile sender does to the bytes of a valid message."""

from fuzz.choices import Choices

_POSITIONS = 2**16
# Most cases stay as their shape made them, so that they get past the decoder.
_EDITED_ONE_IN = 5
_EDITS_MAX = 3
_REPEATED = 4096


def _flip(content: bytearray, at: int, value: int) -> None:
    content[at] ^= 1 << value % 8


def _overwrite(content: bytearray, at: int, value: int) -> None:
    content[at] = value


def _insert(content: bytearray, at: int, value: int) -> None:
    content[at:at] = bytes([value])


def _cut(content: bytearray, at: int, value: int) -> None:
    del content[at : at + value + 1]


def _truncate(content: bytearray, at: int, _: int) -> None:
    del content[at:]


def _duplicate(content: bytearray, at: int, value: int) -> None:
    content[at:at] = content[at : at + value + 1]


def _flood(content: bytearray, at: int, value: int) -> None:
    content[at:at] = bytes([value]) * _REPEATED


def _splice(content: bytearray, at: int, value: int) -> None:
    """Go on at another place of the same bytes."""
    content[at:] = content[len(content) * value // 256 :]


_OPERATIONS = (_flip, _overwrite, _insert, _cut, _truncate, _duplicate, _flood, _splice)


def edited(content: bytes, choices: Choices) -> bytes:
    """Return the bytes, now and then after some edits."""
    if not choices.rarely(_EDITED_ONE_IN):
        return content
    changed = bytearray(content)
    for _ in range(1 + choices.below(_EDITS_MAX)):
        edit, place, value = choices.of(_OPERATIONS), choices.below(_POSITIONS), choices.below(256)
        if changed:
            edit(changed, place * len(changed) // _POSITIONS, value)
    return bytes(changed)
