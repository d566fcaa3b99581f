"""Refusals: which of many alike become a line of the audit list, and with what count. Pure."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

from everstep_controller.core.events import EnrolmentRefused

# Alike ones are told at once, and then once within this time, with their number.
_EVERY_S = 60.0
# What a flood from many addresses may write within that time.
_LINES_MAX = 20
_OTHERS = "many addresses"


class Refusals:
    """Refusals of the last minute, by who was refused for what."""

    def __init__(self) -> None:
        self._told_s: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._waiting: dict[tuple[str, str, str], EnrolmentRefused] = {}

    def note(self, refused: EnrolmentRefused, now_s: float) -> EnrolmentRefused | None:
        """Return what is written down now; None where it waits for others like it."""
        key = (refused.what, refused.node, refused.address)
        self._forget_old(now_s)
        if key not in self._told_s and len(self._told_s) >= _LINES_MAX:
            key, refused = ("", "", ""), replace(refused, address=_OTHERS, node="")
        if key not in self._told_s:
            self._told_s[key] = now_s
            return refused
        before = self._waiting.get(key)
        self._waiting[key] = replace(refused, count=1 + (before.count if before else 0))
        return None

    def due(self, now_s: float) -> Iterator[EnrolmentRefused]:
        """Yield those whose minute is over."""
        for key in [key for key in self._waiting if self._is_over(key, now_s)]:
            self._told_s[key] = now_s
            self._told_s.move_to_end(key)
            yield self._waiting.pop(key)

    def _forget_old(self, now_s: float) -> None:
        for key in [key for key in self._told_s if self._is_over(key, now_s)]:
            if key not in self._waiting:
                del self._told_s[key]

    def _is_over(self, key: tuple[str, str, str], now_s: float) -> bool:
        return now_s - self._told_s.get(key, float("-inf")) >= _EVERY_S
