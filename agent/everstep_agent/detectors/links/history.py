"""Link history detector: drops, flaps, and short losses of a link between two readings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep_agent.detectors.links.limits import LinkLimits
from everstep_agent.detectors.readings.counters import RateWindow
from everstep_common.judging.condition import (
    BOOT_GRACE_NS,
    HOUR_NS,
    MINUTE_NS,
    SECOND_NS,
    Condition,
)
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

_LIMITS = LinkLimits()

CONDITIONS = (
    Condition(
        name="LinkDropped",
        window_ns=4 * MINUTE_NS,
        component="link/NAME",
        meaning=f"a link was down for {_LIMITS.drop_s / 60:g} min or longer",
        source="gpud: what renegotiates is back sooner",
        clears_when=f"the link has been up for {_LIMITS.drop_kept_s / 60:g} min without a break",
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="LinkFlapping",
        window_ns=HOUR_NS,
        component="link/NAME",
        meaning=f"a link came back {_LIMITS.flap_returns} times in "
        f"{_LIMITS.flap_window_s / 3600:g} h after it was down for {_LIMITS.flap_down_s:g} s or "
        f"longer, or was lost {_LIMITS.losses_per_hour} times in an hour, as polls or the port's "
        "own counter of losses tell",
        source="gpud (returns), NVSentinel (losses in an hour)",
        clears_when=f"the link was not lost for {_LIMITS.flap_quiet_s / 60:g} min",
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="LinkBounced",
        window_ns=MINUTE_NS,
        component="link/NAME",
        meaning="the port's own counter says that the link was lost, and no poll saw it down",
        source="link_downed of InfiniBand, carrier_down_count of Ethernet: any growth",
        clears_when=f"no such loss for {_LIMITS.bounce_quiet_s / 60:g} min",
        boot_grace_ns=BOOT_GRACE_NS,
    ),
)


@dataclass(slots=True)
class _Past:
    """What is remembered of one link."""

    returns: RateWindow
    losses: RateWindow
    up: bool | None = None
    # Since when the link is up or down, and since when it lost nothing (boot clock).
    since_ns: int = 0
    calm_ns: int = 0
    dropped: bool = False
    flapping: str = ""
    # Losses seen as a link that was down and not counted by the port's counter yet; losses that
    # only the counter shows, because the link was up again at the next reading.
    seen: int = 0
    bounced: int = 0
    bounced_ns: int = field(default=-1)


class LinkHistory:
    """History of every link; the counters of losses come in more rarely than polls."""

    def __init__(self, limits: LinkLimits = _LIMITS) -> None:
        self._limits = limits
        self._links: dict[str, _Past] = {}

    def judge_state(self, name: str, up: bool | None, now: Moment) -> Iterable[Judgement]:
        """Judge the state of a link that was looked at."""
        past = self._past(name, now)
        if up is None:
            return
        if past.up is None:
            past.up, past.since_ns = up, now.boot_ns
        elif up != past.up:
            self._turned(past, up, now)
        if not up:
            past.calm_ns = now.boot_ns
            past.dropped = past.dropped or self._for(past, self._limits.drop_s, now)
        yield self._judge_drop(name, past, now)
        yield self._judge_flaps(name, past, now)

    def lost(self, name: str, losses: int, now: Moment) -> Iterable[Judgement]:
        """Take how often the port says that it lost its link since it was asked before."""
        past = self._past(name, now)
        unseen = max(0, losses - past.seen)
        past.seen = max(0, past.seen - losses)
        if unseen:
            past.calm_ns = past.bounced_ns = now.boot_ns
            past.bounced += unseen
            self._count_losses(past, unseen, now)
        yield self._judge_bounces(name, past, now)

    def _past(self, name: str, now: Moment) -> _Past:
        if name not in self._links:
            window_ns = int(self._limits.flap_window_s * SECOND_NS)
            self._links[name] = _Past(RateWindow(window_ns), RateWindow(HOUR_NS))
            self._links[name].calm_ns = self._links[name].bounced_ns = now.boot_ns
        return self._links[name]

    def _for(self, past: _Past, seconds: float, now: Moment) -> bool:
        return now.boot_ns - past.since_ns >= seconds * SECOND_NS

    def _turned(self, past: _Past, up: bool, now: Moment) -> None:
        if not up:
            past.seen += 1
            self._count_losses(past, 1, now)
        elif self._for(past, self._limits.flap_down_s, now):
            returns = past.returns.add_growth(1, now.boot_ns)
            if returns >= self._limits.flap_returns:
                hours = self._limits.flap_window_s / 3600
                past.flapping = f"came back {returns} times in {hours:g} h"
        past.up, past.since_ns = up, now.boot_ns

    def _count_losses(self, past: _Past, losses: int, now: Moment) -> None:
        in_hour = past.losses.add_growth(losses, now.boot_ns)
        if in_hour >= self._limits.losses_per_hour:
            past.flapping = f"was lost {in_hour} times in an hour"

    def _judge_drop(self, name: str, past: _Past, now: Moment) -> Judgement:
        key = FindingKey(f"link/{name}", "LinkDropped")
        kept = self._limits.drop_kept_s
        if past.up and self._for(past, kept, now):
            past.dropped = False
            return Healthy(key, f"up for {kept / 60:g} min")
        if not past.dropped:
            return Unknown(key, "not watched for long enough")
        minutes = self._limits.drop_s / 60
        return _degraded(key, f"link {name} dropped", f"it was down for {minutes:g} min or longer")

    def _judge_flaps(self, name: str, past: _Past, now: Moment) -> Judgement:
        key = FindingKey(f"link/{name}", "LinkFlapping")
        quiet = self._limits.flap_quiet_s
        if now.boot_ns - past.calm_ns >= quiet * SECOND_NS:
            past.flapping = ""
            return Healthy(key, f"not lost for {quiet / 60:g} min")
        if not past.flapping:
            return Unknown(key, "not watched for long enough")
        return _degraded(key, f"link {name} flaps", past.flapping)

    def _judge_bounces(self, name: str, past: _Past, now: Moment) -> Judgement:
        key = FindingKey(f"link/{name}", "LinkBounced")
        quiet = self._limits.bounce_quiet_s
        if now.boot_ns - past.bounced_ns >= quiet * SECOND_NS:
            past.bounced = 0
            return Healthy(key, f"no loss for {quiet / 60:g} min")
        if not past.bounced:
            return Unknown(key, "not watched for long enough")
        message = f"link {name} was lost and came back between two polls"
        return _degraded(key, message, f"{past.bounced} losses that no poll saw")


def _degraded(key: FindingKey, message: str, evidence: str) -> Faulty:
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.DEGRADED,
            message=message,
            evidence=evidence,
            suggested_action=SuggestedAction.REPAIR_HARDWARE,
            rule="history of the link",
        )
    )
