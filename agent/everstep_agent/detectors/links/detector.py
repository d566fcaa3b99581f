"""Link detector: interfaces and ports that lost their link, run too slowly, or keep losing it."""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.links import history as link_history
from everstep_agent.detectors.links import speed as link_speed
from everstep_agent.detectors.links.limits import LinkLimits
from everstep_agent.detectors.links.reading import RDMA_KINDS, LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.condition import BOOT_GRACE_NS, SECOND_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

_LIMITS = LinkLimits()

CONDITIONS = (
    Condition(
        name="LinkDown",
        component="link/NAME",
        meaning="a link that was up, or that the operator named, is down: degraded at the first "
        f"look, fatal for a port that carries RDMA once it stayed down for {_LIMITS.down_s:g} s; "
        "not fatal for a port that is nearest to no accelerator, unless the operator named it; "
        f"one that vanished counts as down after {_LIMITS.vanished_s:g} s",
        source="a port that carries RDMA is one rail of the job, which stops without it; links "
        "bounce for seconds when a switch is restarted",
        clears_when="the link is up",
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="LinkNeverUp",
        component="link/NAME",
        meaning="a port that carries RDMA was never seen up, and of its like on this node at "
        f"least {_LIMITS.peers_min} are up and no more than a quarter are down",
        source="NVSentinel pull request 1462: only what its peers show tells a dead port from an "
        "unused one",
        clears_when="the port is up, or its peers are down as well",
        raise_after=60,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    *link_speed.CONDITIONS,
    *link_history.CONDITIONS,
)

# A flapping link keeps the severity that it had, until it is up for as long as clears it.
_CLEAR_AFTER = 10


@dataclass(slots=True)
class _Outage:
    since_ns: int
    fatal: bool = False
    up_looks: int = 0


class LinkDetector:
    """Detector of links that were up before, or that the operator named; others may be unused.

    What was up in this boot is remembered in ``counters``, together with its best speed.
    """

    def __init__(
        self,
        required: Iterable[str] = (),
        counters: Counters | None = None,
        limits: LinkLimits = _LIMITS,
        monitor: str = "network",
    ) -> None:
        self._known: dict[str, LinkReading] = {
            name: LinkReading(name=name, kind=_kind_of(name), up=None) for name in required
        }
        self._limits = limits
        self._monitor = monitor
        self._required = frozenset(self._known)
        self._seen_up: set[str] = set()
        self._removed: set[str] = set()
        self._outages: dict[str, _Outage] = {}
        # Ports that are no rail of a job, as the PCI tree tells: for storage or management.
        self.beside: Collection[str] = ()
        self._speeds = link_speed.SpeedJudge(counters or Counters(), limits)
        self.history = link_history.LinkHistory(limits)

    def judge(self, links: Sequence[LinkReading], now: Moment) -> list[Judgement]:
        """Judge one reading of all links."""
        by_name = {link.name: link for link in links}
        for link in links:
            if link.watched and (link.up or self._speeds.was_up(link.name, now.boot_id)):
                self._seen_up.add(link.name)
            if link.name in self._seen_up or (link.name in self._known and link.up is not None):
                self._known[link.name] = link
        removed = list(self._removed_bonds(by_name))
        missing = {link.kind for link in self._known.values()} - {link.kind for link in links}
        judgements = [*removed, self._judge_monitor(missing, len(links))]
        for name, known in self._known.items():
            if known.kind in missing:
                # No link of this kind can be read. When they can be again, one after another, the
                # last of them must not count as having been down until then.
                self._outages.pop(name, None)
                why = f"no {known.kind} link can be read"
                judgements.append(Unknown(FindingKey(f"link/{name}", "LinkDown"), why))
            else:
                judgements += self._judge_one(known, by_name.get(name), now)
        up = [link for link in links if link.up and link.name in self._known]
        return [*judgements, *self._speeds.judge(up, now), *self._never_up(links)]

    def _judge_one(
        self, known: LinkReading, link: LinkReading | None, now: Moment
    ) -> Iterable[Judgement]:
        key = FindingKey(f"link/{known.name}", "LinkDown")
        if link is None:
            yield self._vanished(key, known, now)
            return
        yield from self.history.look(known.name, link.up, now)
        if link.up is None:
            yield Unknown(key, link.detail)
        elif not link.up:
            yield self._down(key, link, link.detail, now)
        else:
            self._came_up(known.name)
            yield Healthy(key, link.detail or "up")

    def _removed_bonds(self, links: Container[str]) -> Iterable[Judgement]:
        """Forget bonds that are gone: somebody configured them away, no hardware broke."""
        for name, known in list(self._known.items()):
            if known.kind == "bond" and name not in links and name not in self._required:
                del self._known[name]
                self._outages.pop(name, None)
                self._removed.add(name)
        self._removed.difference_update(self._known)
        for name in self._removed:
            yield Healthy(FindingKey(f"link/{name}", "LinkDown"), "the bond was removed")

    def _vanished(self, key: FindingKey, known: LinkReading, now: Moment) -> Judgement:
        gone_ns = now.boot_ns - self._outage(known.name, now).since_ns
        if known.name in self._seen_up and gone_ns < self._limits.vanished_s * SECOND_NS:
            return Unknown(key, "it has just vanished: its driver may be reloaded")
        return self._down(key, known, "no such device", now)

    def _came_up(self, name: str) -> None:
        if (outage := self._outages.get(name)) is not None:
            outage.up_looks += 1
            if outage.up_looks >= _CLEAR_AFTER:
                del self._outages[name]

    def _outage(self, name: str, now: Moment) -> _Outage:
        """Return since when a link is down that is so now."""
        outage = self._outages.setdefault(name, _Outage(now.boot_ns))
        if outage.up_looks:
            outage.since_ns, outage.up_looks = now.boot_ns, 0
        return outage

    def _down(self, key: FindingKey, link: LinkReading, evidence: str, now: Moment) -> Faulty:
        outage = self._outage(link.name, now)
        # A link that the operator requires and that was never up has not just gone down: no grace.
        stayed = (
            link.name not in self._seen_up
            or now.boot_ns - outage.since_ns >= self._limits.down_s * SECOND_NS
        )
        outage.fatal = outage.fatal or (stayed and self._is_rail(link))
        return Faulty(
            Finding(
                component=key.component,
                condition=key.condition,
                severity=Severity.FATAL if outage.fatal else Severity.DEGRADED,
                message=f"link {link.name} is down"
                if outage.fatal
                else f"link {link.name} has lost its link",
                evidence=evidence,
                suggested_action=SuggestedAction.REPAIR_HARDWARE
                if outage.fatal
                else SuggestedAction.WATCH,
                rule="a port that carries RDMA stayed down"
                if outage.fatal
                else "was up before, or is configured",
            )
        )

    def _is_rail(self, link: LinkReading) -> bool:
        return link.kind in RDMA_KINDS and (
            link.name in self._required or link.name not in self.beside
        )

    def _never_up(self, links: Sequence[LinkReading]) -> Iterable[Judgement]:
        ports = [link for link in links if link.kind in RDMA_KINDS]
        for link in ports:
            key = FindingKey(f"link/{link.name}", "LinkNeverUp")
            if link.up:
                yield Healthy(key, link.detail or "up")
            elif link.up is not None and link.name not in self._known and self._is_rail(link):
                peers = [peer for peer in ports if peer.family == link.family]
                yield _judge_never_up(key, link, peers, self._limits.peers_min)

    def _judge_monitor(self, missing: set[str], links: int) -> Judgement:
        """Judge whether a whole class vanished at once: rather the monitor than every port."""
        key = FindingKey(f"probe/{self._monitor}", "MonitorDegraded")
        if not missing:
            return Healthy(key, "every class of links is readable")
        kinds = ", ".join(sorted(missing))
        return Faulty(
            Finding(
                component=key.component,
                condition=key.condition,
                severity=Severity.DEGRADED,
                message=f"no link of kind {kinds} can be read any more",
                evidence=f"{links} links read",
                suggested_action=SuggestedAction.WATCH,
                rule="a whole class vanished",
            )
        )


def _judge_never_up(
    key: FindingKey, link: LinkReading, like: Sequence[LinkReading], peers_min: int
) -> Judgement:
    up = sum(1 for peer in like if peer.up)
    down = sum(1 for peer in like if peer.up is False)
    evidence = f"{link.detail}; {up} of {len(like)} ports of its kind are up"
    if not link.family or up < peers_min or down * 4 > len(like):
        return Healthy(key, f"may be unused: {evidence}")
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.FATAL,
            message=f"link {link.name} was never up, while its peers are",
            evidence=evidence,
            suggested_action=SuggestedAction.REPAIR_HARDWARE,
            rule="peers of the same kind are up",
        )
    )


def _kind_of(name: str) -> str:
    return "infiniband" if "/" in name else "ethernet"
