"""What if a condition were enforced: judged isolations, gone through with budgets in time order.

Nothing is decided by it. The budgets are those that hold now, for the fleet as it is now: what is
asked is what a mode would do from now on, by what has happened.
"""

from bisect import bisect_left, insort
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
        # What is out, by node; and when isolations were.
        self._out: dict[str, set[int]] = defaultdict(set)
        self._out_in: dict[str, int] = defaultdict(int)
        self._times: dict[str, list[int]] = defaultdict(list)
        # What waits for room: the numbers of a node's records with what forbids each; and the
        # nodes, by name, of the same budgets: where one of them has no room, none has.
        self._waiting: dict[str, dict[int, str]] = {}
        self._queues: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._counted: set[tuple[str, str, bool]] = set()
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
        left = {number: why for one in self._waiting.values() for number, why in one.items()}
        for number in sorted(left, key=lambda one: (self._records[one].at_ns, one)):
            self._hold_back(number, left[number])

    def _begin(self, number: int, at_ns: int) -> None:
        record = self._records[number]
        outcome = self._outcome(record)
        if outcome is not None:
            outcome.found.add(record.node)
        happened = record.done and record.condition not in self._enforced
        why = "" if happened else self._refusal(record.node, at_ns)
        if why:
            self._wait(number, why)
        else:
            self._isolate(number, at_ns)
            if record.node in self._waiting:
                self._admit(record.node, at_ns)

    def _end(self, number: int, at_ns: int) -> None:
        record = self._records[number]
        if why := self._waiting.get(record.node, {}).pop(number, ""):
            self._hold_back(number, why)
            self._leave_queue(record.node)
        elif number in self._out[record.node]:
            self._out[record.node].discard(number)
            if not self._out[record.node]:
                del self._out[record.node]
                for scope in self._scopes(record.node):
                    self._out_in[scope] -= 1
            self._fill(at_ns)

    def _fill(self, at_ns: int) -> None:
        """Isolate what waits, by name, as far as there is room."""
        first = {scopes: queue[0] for scopes, queue in self._queues.items()}
        while first and len(self._out) < self._limit[0]:
            scopes = min(first, key=first.__getitem__)
            node = first.pop(scopes)
            if not self._refusal(node, at_ns):
                self._admit(node, at_ns)
                if scopes in self._queues:
                    first[scopes] = self._queues[scopes][0]

    def _wait(self, number: int, why: str) -> None:
        node = self._records[number].node
        if node not in self._waiting:
            insort(self._queues[tuple(self._scopes(node))], node)
        self._waiting.setdefault(node, {})[number] = why

    def _admit(self, node: str, at_ns: int) -> None:
        """Isolate a node for all that waits for it."""
        numbers, self._waiting[node] = self._waiting.get(node, {}), {}
        for number in numbers:
            self._isolate(number, at_ns)
        self._leave_queue(node)

    def _leave_queue(self, node: str) -> None:
        """Have a node wait no more for which nothing waits."""
        if self._waiting[node]:
            return
        del self._waiting[node]
        scopes = tuple(self._scopes(node))
        queue = self._queues.get(scopes, [])
        at = bisect_left(queue, node)
        if at < len(queue) and queue[at] == node:
            del queue[at]
        if not queue:
            self._queues.pop(scopes, None)

    def _isolate(self, number: int, at_ns: int) -> None:
        record, outcome = self._records[number], self._outcome(self._records[number])
        if record.node not in self._out:
            for scope in ("", *self._scopes(record.node)):
                self._times[scope].append(at_ns)
                self._out_in[scope] += 1
            heappush(self._events, (at_ns + _HOUR_NS, _ROOM, number))
        self._out[record.node].add(number)
        if outcome is not None and self._is_first(record, isolated=True):
            outcome.isolated.append(record.node)
            if record.over_ns and record.over_ns - record.at_ns <= BY_ITSELF_NS:
                outcome.by_itself.add(record.node)
            if record.done:
                outcome.done.add(record.node)

    def _hold_back(self, number: int, why: str) -> None:
        record = self._records[number]
        outcome = self._outcome(record)
        if outcome is not None and self._is_first(record, isolated=False):
            outcome.held_back.append(record.node)
            outcome.why = outcome.why or why

    def _is_first(self, record: JudgedIsolation, *, isolated: bool) -> bool:
        """Return whether a node counts for the first time as isolated, or as held back."""
        one = record.condition, record.node, isolated
        is_first = one not in self._counted
        self._counted.add(one)
        return is_first

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
