"""Maintenance windows: their nodes, times and states; and what may be wrong with an order."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

_S = 1_000_000_000

# An order is on its way for a moment; "now" must not have become the past meanwhile.
_LATE_NS = 60 * _S

# Longer ones are a slip of the keyboard, or an isolation.
_AHEAD_NS_MAX = 366 * 86_400 * _S

_DURATION_NS_MAX = 31 * 86_400 * _S


class WindowState(Enum):
    """State of a maintenance window."""

    PLANNED = "planned"
    # Jobs leave its nodes.
    DRAINING = "draining"
    BEGUN = "begun"
    OVER = "over"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Span:
    """Nodes of a maintenance window, and the time in which nothing is expected of them."""

    nodes: tuple[str, ...]
    begin_ns: int
    end_ns: int


@dataclass(slots=True)
class Window:
    """Maintenance window that an operator has asked for."""

    id: str
    span: Span
    by: str
    reason: str
    ordered_ns: int
    # How long before its beginning jobs leave its nodes.
    lead_ns: int
    state: WindowState = WindowState.PLANNED
    # What has no place elsewhere is stopped, too, so that no step is lost.
    vacated: bool = False
    # The operator who cancelled it; empty while nobody has.
    ended_by: str = ""

    @property
    def open(self) -> bool:
        """Whether something is still to come of it."""
        return self.state in (WindowState.PLANNED, WindowState.DRAINING, WindowState.BEGUN)

    def sentence(self) -> str:
        """Say which window it is."""
        asked = f"{self.by}: {self.reason}" if self.reason else self.by
        return f"maintenance {self.id}, {between(self.span)} ({asked})"


def holding(windows: Iterable[Window], node: str, besides: str = "") -> Window | None:
    """Return the window that keeps a node from new ranks, besides one: the first to begin."""
    held = (WindowState.DRAINING, WindowState.BEGUN)
    found = (one for one in windows if one.state in held and one.id != besides)
    there = (one for one in found if node in one.span.nodes)
    return min(there, key=lambda one: one.span.begin_ns, default=None)


def between(span: Span) -> str:
    """Return from when until when, in UTC."""
    return f"{shown(span.begin_ns)} to {shown(span.end_ns)}"


def shown(at_ns: int) -> str:
    """Return a time as people write it, in UTC."""
    return f"{datetime.fromtimestamp(at_ns // _S, UTC):%Y-%m-%dT%H:%M:%SZ}"


def problem(
    span: Span, known: Collection[str], windows: Iterable[Window], now_ns: int, least_ns: int
) -> str:
    """Return what is wrong with what is asked for, in one sentence; empty for nothing."""
    unknown = [name for name in span.nodes if name not in known]
    if unknown or not span.nodes:
        what = f"no node named {unknown[0]!r}" if unknown else "no node is named"
        return f"{what}; 'everstep nodes' lists the names"
    return _time_problem(span, now_ns, least_ns) or _overlap(span, windows)


def _time_problem(span: Span, now_ns: int, least_ns: int) -> str:
    lasts_ns = span.end_ns - span.begin_ns
    if span.begin_ns < now_ns - _LATE_NS:
        return (
            f"{shown(span.begin_ns)} is past, it is {shown(now_ns)}; "
            "to begin at once, say --from now"
        )
    if span.begin_ns > now_ns + _AHEAD_NS_MAX:
        return f"{shown(span.begin_ns)} is more than a year ahead; say an earlier --from"
    if lasts_ns < least_ns:
        return (
            f"a window of {lasts_ns / _S:g} s is too short, the least is {least_ns / _S:g} s "
            "(maintenance_duration_min_s); for a single restart use 'everstep drain'"
        )
    if lasts_ns > _DURATION_NS_MAX:
        return "a window is no longer than 31 days; to keep a node out use 'everstep isolate'"
    return ""


def _overlap(span: Span, windows: Iterable[Window]) -> str:
    for other in windows:
        shared = sorted(set(span.nodes).intersection(other.span.nodes)) if other.open else []
        apart = span.end_ns <= other.span.begin_ns or other.span.end_ns <= span.begin_ns
        if shared and not apart:
            return (
                f"{shared[0]} has a window then: {other.id}, {between(other.span)}; "
                f"to replace it: everstep maintenance cancel {other.id}"
            )
    return ""
