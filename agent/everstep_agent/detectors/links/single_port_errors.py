"""Single-port error detector: a port of a node that retrains while none of its others does.

A link that begins to fail does so long before its rate of errors is one that anybody limits. So
does one of each node that a switch serves when that restarts: a node alone cannot tell which, and
only tells of it. The controller compares nodes (IbErrorsUnlikePeers).
"""

from collections.abc import Iterable, Mapping

from everstep_agent.detectors.readings.counters import Growth, RateWindow
from everstep_common.judging.condition import BOOT_GRACE_NS, HOUR_NS, SECOND_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

COUNTER = "link_error_recovery"
_HOURS = 24
_WINDOW_NS = _HOURS * HOUR_NS
# With fewer peers nobody can say that it is the link, and not what all share.
_PEERS_MIN = 3
# From so many on it is told again, with what it is by then.
_MORE = 3

CONDITIONS = (
    Condition(
        name="IbLoneRecoveries",
        component="link/NAME",
        meaning=f"the link retrained ({COUNTER}) within {_HOURS} h, and none of the node's other "
        f"ports did, of which there are {_PEERS_MIN} or more: information, for its switch may be "
        "why",
        source="ours: a cable that begins to fail retrains for days before its errors reach a rate",
        clears_when=f"no retraining within {_HOURS} h, or another port has one as well",
        boot_grace_ns=BOOT_GRACE_NS,
        window_ns=_WINDOW_NS,
        mode=Mode.ADVISE,
    ),
)


class LoneRecoveries:
    """Detector over the growth of all ports' recoveries, one reading after the other."""

    def __init__(self) -> None:
        self._days: dict[str, RateWindow] = {}
        self._halves: dict[str, RateWindow] = {}

    def judge(self, grown: Mapping[str, Growth], now: Moment) -> Iterable[Judgement]:
        """Judge one reading: by the name of each port, how much its recoveries grew."""
        counts = {
            link: self._days.setdefault(link, RateWindow(_WINDOW_NS)).add_growth(
                _within(growth, _WINDOW_NS), now.boot_ns
            )
            for link, growth in grown.items()
        }
        retrained = sum(1 for count in counts.values() if count)
        # A counter at its largest value tells of nothing more.
        blind = {link for link, growth in grown.items() if growth.saturated and not counts[link]}
        for link, growth in grown.items():
            newest = self._halves.setdefault(link, RateWindow(_WINDOW_NS // 2)).add_growth(
                _within(growth, _WINDOW_NS // 2), now.boot_ns
            )
            if link in blind:
                key = FindingKey(f"link/{link}", "IbLoneRecoveries")
                yield Unknown(key, "the counter stands at its largest value")
                continue
            peers = len(grown) - len(blind) - 1
            yield _judged(link, counts[link], newest, peers, lone=retrained == 1)


def _within(growth: Growth, window_ns: int) -> int:
    """Return the part of a growth that lies in the window, when nobody looked for longer."""
    window_s = window_ns / SECOND_NS
    return growth.count if growth.seconds <= window_s else int(growth.per_second * window_s)


def _judged(link: str, count: int, newest: int, peers: int, *, lone: bool) -> Judgement:
    key = FindingKey(f"link/{link}", "IbLoneRecoveries")
    if not count:
        return Healthy(key, "no growth")
    if peers < _PEERS_MIN:
        return Unknown(key, f"{count} within {_HOURS} h, with {peers} ports to compare with")
    if not lone:
        return Healthy(key, f"{count} within {_HOURS} h, and other ports have some as well")
    growing = ", more in the newer half of them" if newest > count - newest else ""
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.INFO,
            message=f"{link}: the link retrains, and none of the node's others does",
            evidence=f"{count} within {_HOURS} h in {COUNTER}{growing}; {peers} peers have none",
            suggested_action=SuggestedAction.WATCH,
            rule=f"{_MORE} or more while peers have none"
            if count >= _MORE
            else "any growth while peers have none",
        )
    )
