"""What if a condition were enforced: judged isolations, gone through with budgets in time order.

Nothing is decided by it. The budgets are those that hold now, for the fleet as it is now: what is
asked is what a mode would do from now on, by what has happened.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from everstep_controller.core.model.judged import JudgedIsolation
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import budgets

_HOUR_NS = 3_600_000_000_000
# What is over this soon by itself is told apart: it was perhaps nothing.
BY_ITSELF_NS = 600_000_000_000
# Of the same time: what ends makes room first, then budgets have room again, then new ones begin.
_END, _ROOM, _BEGIN = 0, 1, 2


@dataclass(slots=True)
class WhatIf:
    """What enforcing one condition would have done."""

    condition: str
    # Nodes on which it was found, and of these, each in the order of time: those that would have
    # been isolated, and those for which budgets had no room, with the first of these.
    found: set[str] = field(default_factory=set)
    isolated: list[str] = field(default_factory=list)
    held_back: list[str] = field(default_factory=list)
    why: str = ""
    # Of the isolated: those that were well again within BY_ITSELF_NS, and those that were isolated
    # in truth.
    by_itself: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)


def together(outcomes: Iterable[WhatIf]) -> WhatIf:
    """Return what enforcing several conditions at once would have done; each node counts once.

    A node was well again by itself if it was so of each condition that would have isolated it.
    """
    whole, lasting = WhatIf(""), set[str]()
    for one in outcomes:
        whole.found |= one.found
        whole.isolated += [name for name in one.isolated if name not in whole.isolated]
        whole.by_itself |= one.by_itself
        whole.done |= one.done
        lasting.update(name for name in one.isolated if name not in one.by_itself)
        whole.held_back += [name for name in one.held_back if name not in whole.held_back]
        whole.why = whole.why or one.why
    whole.by_itself -= lasting
    whole.held_back = [name for name in whole.held_back if name not in whole.isolated]
    whole.why = whole.why if whole.held_back else ""
    return whole


def what_if(
    state: State, records: Iterable[JudgedIsolation], enforced: Collection[str], since_ns: int
) -> dict[str, WhatIf]:
    """Return what enforcing these conditions everywhere would have done since a time."""
    trial = _Trial(state, frozenset(enforced), since_ns)
    for record in records:
        if record.done or record.condition in enforced:
            trial.add(record)
    trial.run()
    return trial.outcomes


class _Trial:
    """Budgets of a fleet, through time."""

    def __init__(self, state: State, enforced: frozenset[str], since_ns: int) -> None:
        self._state = state
        self._enforced = enforced
        self._since_ns = since_ns
        self._limit = budgets.level_limit(state), budgets.isolation_limit(state)
        self._events: list[tuple[int, int, int]] = []
        self._records: list[JudgedIsolation] = []
        # What is out, by node; when isolations were; and what waits for room, by its number.
        self._out: dict[str, set[int]] = defaultdict(set)
        self._out_in: dict[str, int] = defaultdict(int)
        self._times: dict[str, list[int]] = defaultdict(list)
        self._waiting: dict[int, str] = {}
        self.outcomes = {name: WhatIf(name) for name in sorted(enforced)}

    def add(self, record: JudgedIsolation) -> None:
        """Take a record that is to be gone through."""
        number = len(self._records)
        self._records.append(record)
        heappush(self._events, (record.at_ns, _BEGIN, number))
        if record.over_ns:
            heappush(self._events, (record.over_ns, _END, number))

    def run(self) -> None:
        """Go through all of them."""
        while self._events:
            at_ns, kind, number = heappop(self._events)
            if kind == _BEGIN:
                self._begin(number, at_ns)
            elif kind == _END:
                self._end(number, at_ns)
            else:
                self._fill(at_ns)
        for number, why in self._waiting.items():
            self._hold_back(number, why)

    def _begin(self, number: int, at_ns: int) -> None:
        record = self._records[number]
        outcome = self._outcome(record)
        if outcome is not None:
            outcome.found.add(record.node)
        if record.done and record.condition not in self._enforced:
            self._isolate(number, at_ns)
        elif why := self._refusal(record.node, at_ns):
            self._waiting[number] = why
        else:
            self._isolate(number, at_ns)

    def _end(self, number: int, at_ns: int) -> None:
        record = self._records[number]
        why = self._waiting.pop(number, None)
        if why is not None:
            self._hold_back(number, why)
        elif number in self._out[record.node]:
            self._out[record.node].discard(number)
            if not self._out[record.node]:
                del self._out[record.node]
                for scope in self._scopes(record.node):
                    self._out_in[scope] -= 1
            self._fill(at_ns)

    def _fill(self, at_ns: int) -> None:
        """Isolate what waits, by name, as far as there is room."""
        for number in sorted(self._waiting, key=lambda one: (self._records[one].node, one)):
            if len(self._out) >= self._limit[0]:
                return
            if not self._refusal(self._records[number].node, at_ns):
                del self._waiting[number]
                self._isolate(number, at_ns)

    def _isolate(self, number: int, at_ns: int) -> None:
        record, outcome = self._records[number], self._outcome(self._records[number])
        if record.node not in self._out:
            for scope in ("", *self._scopes(record.node)):
                self._times[scope].append(at_ns)
                self._out_in[scope] += 1
            heappush(self._events, (at_ns + _HOUR_NS, _ROOM, number))
        self._out[record.node].add(number)
        if outcome is not None and record.node not in outcome.isolated:
            outcome.isolated.append(record.node)
            if record.over_ns and record.over_ns - record.at_ns <= BY_ITSELF_NS:
                outcome.by_itself.add(record.node)
            if record.done:
                outcome.done.add(record.node)

    def _hold_back(self, number: int, why: str) -> None:
        record = self._records[number]
        outcome = self._outcome(record)
        if outcome is not None and record.node not in outcome.held_back:
            outcome.held_back.append(record.node)
            outcome.why = outcome.why or why

    def _outcome(self, record: JudgedIsolation) -> WhatIf | None:
        """Return where a record counts; None for what is older, or happens anyway."""
        counts = record.at_ns >= self._since_ns
        return self.outcomes.get(record.condition) if counts else None

    def _refusal(self, node: str, at_ns: int) -> str:
        if node in self._out:
            return ""
        if len(self._out) >= self._limit[0]:
            return f"the budget of {self._limit[0]} isolated nodes"
        if self._within(("", self._limit[1]), at_ns):
            return f"the budget of {self._limit[1]} isolations an hour"
        for part in budgets.part_budgets(self._state, self._scopes(node)):
            if self._out_in[part.scope] >= part.at_once:
                return f"the budget of {part.scope}: {part.at_once} isolated nodes"
            if self._within((part.scope, part.per_hour), at_ns):
                return f"the budget of {part.scope}: {part.per_hour} isolations an hour"
        return ""

    def _within(self, limit: tuple[str, int], at_ns: int) -> bool:
        scope, most = limit
        self._times[scope] = [one for one in self._times[scope] if one > at_ns - _HOUR_NS]
        return len(self._times[scope]) >= most

    def _scopes(self, node: str) -> Iterator[str]:
        yield from self._state.index.scopes_of(node)
