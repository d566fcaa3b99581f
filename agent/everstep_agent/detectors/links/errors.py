"""Link error rates: rules on the growth of a link's counters, for InfiniBand and Ethernet alike."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.readings.counters import (
    COUNTER_64,
    Counters,
    Growth,
    RateWindow,
    Register,
)
from everstep_common.judging.condition import BOOT_GRACE_NS, SECOND_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

# Counters are read every few seconds, so a rate that lasts is found at the second reading.
_RATE_LOOKS = 2
# As many readings below the limit as a minute has.
_CALM_LOOKS = 12

CONDITIONS = (
    Condition(
        name="LinkCounterSaturated",
        component="link/NAME",
        meaning="an error counter stands at the largest value of its register (4, 8 or 16 bits "
        "wide) and cannot tell of further errors",
        source="InfiniBand architecture, PortCounters: they stay there until they are reset",
        clears_when="the counter was reset (perfquery -R)",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersReading:
    """Counters of one link, by name; ``blind`` names what is there and cannot be read."""

    link: str
    values: Mapping[str, int]
    blind: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """Rule by which the growth of some counters is a condition.

    ``window_s`` is 0 for a limit in a second, measured from one reading to the next; else the limit
    is for the growth within that window.
    """

    condition: str
    counters: tuple[str, ...]
    limit: float
    what: str
    source: str
    window_s: float = 0.0
    severity: Severity = Severity.DEGRADED
    action: SuggestedAction = SuggestedAction.REPAIR_HARDWARE
    mode: Mode = Mode.OBSERVE

    @property
    def threshold(self) -> str:
        """Return the limit in words, its number included."""
        if not self.window_s:
            return f"{self.limit:g} a second"
        return f"{self.limit:g} within {_span(self.window_s)}"

    def declared(self) -> Condition:
        """Return the condition, as the reference shows it."""
        meaning = f"{self.what} ({', '.join(self.counters)}): {self.threshold} or more"
        rate = not self.window_s
        return Condition(
            name=self.condition,
            component="link/NAME",
            meaning=meaning,
            source=self.source,
            clears_when="fewer" if rate else "fewer within that time",
            raise_after=_RATE_LOOKS if rate else 1,
            clear_after=_CALM_LOOKS if rate else 1,
            boot_grace_ns=BOOT_GRACE_NS,
            # A rate takes looks a minute apart; what is counted over a time, that time.
            window_ns=int((self.window_s or 60.0) * SECOND_NS),
            mode=self.mode,
        )


def _span(seconds: float) -> str:
    for unit, name in ((3600.0, "h"), (60.0, "min")):
        if seconds >= unit:
            return f"{seconds / unit:g} {name}"
    return f"{seconds:g} s"


class ErrorCounters:
    """Detector over the counters of all links of one kind, by a set of rules."""

    def __init__(
        self, rules: Sequence[ErrorRule], registers: Mapping[str, Register], counters: Counters
    ) -> None:
        self._rules = tuple(rules)
        self._registers = registers
        self._counters = counters
        self._wide: set[tuple[str, str]] = set()
        self._windows: dict[tuple[str, str], tuple[RateWindow, int]] = {}
        self._keys: dict[tuple[str, str], FindingKey] = {}
        used = dict.fromkeys(name for rule in rules for name in rule.counters)
        self._used = (*used, *(name for name in registers if name not in used))

    def grow(self, reading: CountersReading, now: Moment) -> dict[str, Growth]:
        """Return how much each counter grew that a rule or a register names."""
        return {
            name: self._counters.add_reading(
                f"link/{reading.link}/{name}",
                reading.values[name],
                now,
                self._register(reading.link, name, reading.values[name]),
            )
            for name in self._used
            if name in reading.values
        }

    def judge(self, link: str, grown: Mapping[str, Growth], now: Moment) -> Iterable[Judgement]:
        """Judge what ``grow`` returned."""
        for rule in self._rules:
            growths = [grown[name] for name in rule.counters if name in grown]
            if growths:
                yield self._judge_rule(rule, link, growths, now)
        full = [name for name, growth in grown.items() if growth.saturated]
        yield _judge_saturated(link, full)

    def _register(self, link: str, name: str, value: int) -> Register:
        """Return the register's width, as narrow as the standard says or the value shows."""
        register = self._registers.get(name, COUNTER_64)
        if value > register.largest:
            self._wide.add((link, name))
        return COUNTER_64 if (link, name) in self._wide else register

    def _judge_rule(
        self, rule: ErrorRule, link: str, growths: Sequence[Growth], now: Moment
    ) -> Judgement:
        key = self._key(link, rule.condition)
        count = sum(growth.count for growth in growths)
        if rule.window_s:
            amount, watched = self._in_window(rule, link, growths, now)
        else:
            amount = sum(growth.per_second for growth in growths)
            watched = any(growth.seconds for growth in growths)
        if amount >= rule.limit:
            return _excess(key, rule, amount)
        if not count and any(growth.saturated for growth in growths):
            return Unknown(key, "the counter stands at its largest value")
        if not watched:
            return Unknown(key, "not watched for long enough")
        return Healthy(key, f"{_number(amount)} of {rule.threshold}" if amount else "no growth")

    def _key(self, link: str, condition: str) -> FindingKey:
        key = self._keys.get((link, condition))
        if key is None:
            key = self._keys[link, condition] = FindingKey(f"link/{link}", condition)
        return key

    def _in_window(
        self, rule: ErrorRule, link: str, growths: Sequence[Growth], now: Moment
    ) -> tuple[float, bool]:
        """Return the growth in the window, and whether it was watched for that long."""
        at = (link, rule.condition)
        if at not in self._windows:
            self._windows[at] = (RateWindow(int(rule.window_s * SECOND_NS)), now.boot_ns)
        window, began_ns = self._windows[at]
        amount = window.add_growth(
            sum(_recent(growth, rule.window_s) for growth in growths), now.boot_ns
        )
        return amount, now.boot_ns - began_ns >= rule.window_s * SECOND_NS


def _recent(growth: Growth, window_s: float) -> int:
    """Return the part of a growth that lies in the window, when nobody looked for longer."""
    if growth.seconds <= window_s:
        return growth.count
    return int(growth.per_second * window_s)


def _excess(key: FindingKey, rule: ErrorRule, amount: float) -> Faulty:
    unit = "a second" if not rule.window_s else f"within {_span(rule.window_s)}"
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=rule.severity,
            message=f"{key.component.removeprefix('link/')}: {rule.what}",
            evidence=f"{_number(amount)} {unit} in {' + '.join(rule.counters)}",
            suggested_action=rule.action,
            rule=f"{rule.threshold} or more",
        )
    )


def _number(amount: float) -> str:
    return f"{amount:.1f}".removesuffix(".0")


def _judge_saturated(link: str, full: Sequence[str]) -> Judgement:
    key = FindingKey(f"link/{link}", "LinkCounterSaturated")
    if not full:
        return Healthy(key, "every counter can still grow")
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.INFO,
            message=f"{link}: error counters are full and tell of no further errors; reset them "
            "(perfquery -R)",
            evidence=", ".join(full),
            suggested_action=SuggestedAction.WATCH,
            rule="a counter at its largest value",
        )
    )
