"""Days of nodes: for how long each was in each state and what was found there, day by day."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

DAY_NS = 86_400_000_000_000
# Whoever writes them down may be away for a weekend.
_DAYS_KEPT = 4


@dataclass(slots=True)
class NodeDay:
    """One day, in UTC: nanoseconds by state, and in isolation whatever the state."""

    begin_ns: int
    spent_ns: dict[str, int] = field(default_factory=dict)
    isolated_ns: int = 0
    # By condition, how many findings were raised.
    findings: dict[str, int] = field(default_factory=dict)

    def add(self, state: str, lasted_ns: int, *, isolated: bool) -> None:
        """Add time in a state."""
        if lasted_ns:
            self.spent_ns[state] = self.spent_ns.get(state, 0) + lasted_ns
            self.isolated_ns += lasted_ns if isolated else 0

    def copy(self) -> "NodeDay":
        """Return a day that changes on its own."""
        return replace(self, spent_ns=dict(self.spent_ns), findings=dict(self.findings))


@dataclass(slots=True)
class FleetDay:
    """One day of several nodes together."""

    begin_ns: int
    nodes: int = 0
    devices: int = 0
    spent_ns: dict[str, int] = field(default_factory=dict)
    isolated_ns: int = 0

    def add(self, day: NodeDay, devices: int) -> None:
        """Add the same day of a node with so many devices."""
        self.nodes += 1
        self.devices += devices
        self.isolated_ns += day.isolated_ns
        for state, lasted_ns in day.spent_ns.items():
            self.spent_ns[state] = self.spent_ns.get(state, 0) + lasted_ns

    def copy(self) -> "FleetDay":
        """Return a day that changes on its own."""
        return replace(self, spent_ns=dict(self.spent_ns))


@dataclass(slots=True)
class NodeDays:
    """The newest days of a node, oldest first, and how it is since a time after them."""

    days: list[NodeDay] = field(default_factory=list)
    # 0: nothing is known of it yet.
    since_ns: int = 0
    state: str = ""
    isolated: bool = False
    # Findings that are open, by their keys.
    open: list[str] = field(default_factory=list)

    def go_on(self, now_ns: int, state: str, *, isolated: bool) -> None:
        """Have the node be in a state from now on."""
        if self.since_ns:
            from_ns = (now_ns // DAY_NS - _DAYS_KEPT + 1) * DAY_NS
            self.days = list(self.until(now_ns, from_ns))
        self.since_ns, self.state, self.isolated = max(now_ns, self.since_ns), state, isolated

    def raise_finding(self, condition: str, now_ns: int) -> None:
        """Count a finding that was raised now, once the time until now is counted."""
        begin_ns = now_ns // DAY_NS * DAY_NS
        if not self.days or self.days[-1].begin_ns != begin_ns:
            self.days.append(NodeDay(begin_ns))
        found = self.days[-1].findings
        found[condition] = found.get(condition, 0) + 1

    def until(self, now_ns: int, from_ns: int = 0) -> Iterator[NodeDay]:
        """Yield the days from the begin of one on, the last of them as far as it is over."""
        if not self.since_ns:
            return
        told = {day.begin_ns: day.copy() for day in self.days if day.begin_ns + DAY_NS > from_ns}
        at_ns = max(self.since_ns, from_ns)
        while at_ns < now_ns:
            begin_ns = at_ns // DAY_NS * DAY_NS
            end_ns = min(begin_ns + DAY_NS, now_ns)
            day = told.setdefault(begin_ns, NodeDay(begin_ns))
            day.add(self.state, end_ns - at_ns, isolated=self.isolated)
            at_ns = end_ns
        yield from (told[begin_ns] for begin_ns in sorted(told))


def add_days(known: list[FleetDay], days: NodeDays, devices: int, now_ns: int) -> None:
    """Add the newest days of a node that is removed to those of others that were."""
    from_ns = (now_ns // DAY_NS - _DAYS_KEPT + 1) * DAY_NS
    found = {one.begin_ns: one for one in known if one.begin_ns >= from_ns}
    for day in days.until(now_ns, from_ns):
        found.setdefault(day.begin_ns, FleetDay(day.begin_ns)).add(day, devices)
    known[:] = [found[begin_ns] for begin_ns in sorted(found)]
