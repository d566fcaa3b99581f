"""Parser of times as people type them: "now", "in 2h", "2026-12-24T08:00Z"; and of durations."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_S = 1_000_000_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhd])", re.ASCII)
# Nanoseconds are written in 64 bits, which end in 2262.
_YEARS = range(1970, 2200)
# What follows is written in 64 bits, and no time of people's is near that.
_MOST_S = 1000 * 86_400
# Longer words than this are no time, and the sentence about them stays readable.
_LENGTH_MAX = 40
_SAY_PAST = "say 2h (ago), or 2026-12-24T08:00 (UTC)"


class TimeError(ValueError):
    """Text that is no time; one sentence with an example."""


@dataclass(frozen=True, slots=True)
class RequestedTime:
    """A time of the calendar, or one that is counted from now on the controller's clock."""

    at_ns: int | None
    in_ns: int = 0


def parse_time(text: str) -> RequestedTime:
    """Return a time. Raises TimeError."""
    words = text.strip()
    if words.lower() == "now":
        return RequestedTime(None)
    if words.lower().startswith("in "):
        ahead = words[3:].strip()
        if ahead.startswith("-"):
            raise TimeError(f"{_shown(text)} is past; say now, or 'in 2h'")
        return RequestedTime(None, parse_duration_ns(ahead))
    try:
        at = datetime.fromisoformat(words)
    except ValueError as error:
        raise _no_time(text) from error
    if at.year not in _YEARS:
        raise _no_time(text)
    # Without an offset it is UTC, wherever it is typed: nodes and controller may be elsewhere.
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    return RequestedTime(int(at.timestamp()) * _S)


def parse_since(text: str) -> RequestedTime:
    """Return the time from which something is wanted: "2h" ago, or a time. Raises TimeError."""
    words = text.strip().lower().removesuffix("ago").strip()
    if _PART.match(words):
        return RequestedTime(None, parse_duration_ns(words))
    if words.startswith("in ") or words == "now":
        raise TimeError(f"{_shown(text)} is not past; {_SAY_PAST}")
    try:
        return parse_time(text)
    except TimeError as error:
        raise TimeError(f"{_shown(text)} is no time; {_SAY_PAST}") from error


def parse_duration_ns(text: str) -> int:
    """Return how long "90m", "2h 30m" or "1d" is. Raises TimeError."""
    words, total, position = text.strip(), 0.0, 0
    while position < len(words):
        part = _PART.match(words, position)
        if part is None:
            total = 0.0
            break
        total += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    if total >= _MOST_S:
        raise TimeError(f"{_shown(text)} is too long, the most is {_MOST_S // _UNITS['d']}d")
    if not total:
        raise TimeError(f"{_shown(text)} is no length of time; say 45m, 2h, '1h 30m' or 1d")
    return round(total * _S)


def _no_time(text: str) -> TimeError:
    return TimeError(f"{_shown(text)} is no time; say now, 'in 2h', or 2026-12-24T08:00 (UTC)")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]}…")
