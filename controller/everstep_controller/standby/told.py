"""What a controller tells the others of itself, beside the journal. Pure."""

import json
from dataclasses import asdict, dataclass, fields
from typing import TypeGuard

_TEXT_MAX = 200
# Major, minor and patch.
_PARTS = 3
# A process's number in the protocol, and more events than any journal has.
_PID_MAX, _NUMBER_MAX = 2**32 - 1, 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerTold:
    """A controller of a cluster, in its own words."""

    # Under which agents and people reach it; "" where it did not say.
    address: str = ""
    host: str = ""
    pid: int = 0
    version: str = ""
    # Of one that stands by: the newest event that it has folded, and for how long it has lacked
    # some that are in the journal.
    seq: int = 0
    behind_s: float = 0.0

    def encode(self) -> str:
        """Return it as a text."""
        return json.dumps(asdict(self))


def controller_told(text: str) -> ControllerTold:
    """Return what a text tells; of one that is none, or that a hand has written, what it has."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = {}
    if not isinstance(told, dict):
        told = {}
    kept: dict[str, object] = {}
    for field in fields(ControllerTold):
        value, default = told.get(field.name), field.default
        most = _PID_MAX if field.name == "pid" else _NUMBER_MAX
        if isinstance(value, str) and isinstance(default, str):
            kept[field.name] = plain(value)
        elif isinstance(default, int | float) and _is_count(value, most):
            kept[field.name] = type(default)(value)
    return ControllerTold(**kept)  # type: ignore[arg-type]


def _is_count(value: object, most: int) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and 0 <= value <= most  # no NaN is


def plain(text: str) -> str:
    """Return a text as a terminal and the metadata of a call take it: ASCII, and not too long."""
    return "".join(one if " " <= one <= "~" else "?" for one in text[:_TEXT_MAX])


def skew_problem(own: str, writer: str) -> str:
    """Return why a standby of a version may not follow a controller of another; "" where it may.

    It folds what that one has decided by its own rules. So it may be newer, by one minor version,
    and never older: it does not know what a newer one writes.
    """
    mine, theirs = _numbers(own), _numbers(writer)
    if not mine or not theirs or mine == theirs:
        return ""
    if mine < theirs:
        return (
            f"the controller that writes the journal has version {writer}, this standby {own}: "
            "install the newer version here first, then start the standby again"
        )
    if (mine[0], mine[1] - theirs[1]) not in ((theirs[0], 0), (theirs[0], 1)):
        return (
            f"the controller that writes the journal has version {writer}, this standby {own}: a "
            "standby is newer by one minor version at most; upgrade the other one first"
        )
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")[:3]
    are_numbers = version.isascii() and len(parts) == _PARTS and all(map(str.isdigit, parts))
    return tuple(map(int, parts)) if are_numbers else ()
