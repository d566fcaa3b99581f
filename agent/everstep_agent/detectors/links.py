"""Link detector: network interfaces and InfiniBand ports that went down or slow."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.condition import BOOT_GRACE_NS, Condition
from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.findings import Finding, FindingKey, Mode, Severity, SuggestedAction

# A port that carries RDMA traffic is one rail of the job: training stops without it.
_RDMA_KINDS = ("infiniband", "roce")


CONDITIONS = (
    Condition(
        name="LinkDown",
        component="link/NAME",
        meaning="a link that was up, or that the operator named, is down in five looks",
        source="links bounce for seconds when a switch is restarted",
        clears_when="the link is up in ten consecutive looks",
        raise_after=5,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="LinkSlow",
        component="link/NAME",
        meaning="a link runs below the best speed that it was seen at",
        source="its own best speed",
        clears_when="the link is back at its best speed in ten looks",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading:
    """One interface or port. ``up`` is None when its state could not be read."""

    name: str
    kind: str
    up: bool | None
    speed_bits_per_s: int = 0
    address: str = ""
    detail: str = ""

    @property
    def watched(self) -> bool:
        """Return whether this is hardware; bridges and containers come and go at will."""
        return self.kind in ("ethernet", *_RDMA_KINDS)


class LinkDetector:
    """Judges links that have been up before, or that the operator named; others may be unused."""

    def __init__(self, required: Iterable[str] = ()) -> None:
        self._known: dict[str, LinkReading] = {
            name: LinkReading(name=name, kind=_kind_of(name), up=None) for name in required
        }
        self._best_speed: dict[str, int] = {}

    def judge(self, links: Sequence[LinkReading]) -> list[Judgement]:
        """Judge one reading of all links."""
        now = {link.name: link for link in links}
        for link in links:
            if link.up and link.watched:
                self._known[link.name] = link
        missing = _missing_kinds(links, self._known.values())
        judgements = [_judge_monitor(missing, len(links))]
        for name, known in self._known.items():
            if known.kind in missing:
                why = f"no {known.kind} link can be read"
                judgements.append(Unknown(FindingKey(f"link/{name}", "LinkDown"), why))
            else:
                judgements += self._judge_one(name, known, now.get(name))
        return judgements

    def _judge_one(
        self, name: str, known: LinkReading, now: LinkReading | None
    ) -> Iterable[Judgement]:
        key = FindingKey(f"link/{name}", "LinkDown")
        if now is None:
            yield _link_down(key, known, f"link {name} has vanished", "no such device")
        elif now.up is None:
            yield Unknown(key, now.detail)
        elif not now.up:
            yield _link_down(key, now, f"link {name} is down", now.detail)
        else:
            yield Healthy(key, now.detail or "up")
            yield self._judge_speed(now)

    def _judge_speed(self, link: LinkReading) -> Judgement:
        key = FindingKey(f"link/{link.name}", "LinkSlow")
        if not link.speed_bits_per_s:
            return Unknown(key, "no speed is known")
        best = max(self._best_speed.get(link.name, 0), link.speed_bits_per_s)
        self._best_speed[link.name] = best
        evidence = f"{link.speed_bits_per_s / 1e9:g} Gbit/s, best {best / 1e9:g} Gbit/s"
        if link.speed_bits_per_s == best:
            return Healthy(key, evidence)
        return Faulty(
            Finding(
                component=key.component,
                condition=key.condition,
                severity=Severity.DEGRADED,
                message=f"link {link.name} runs below its speed: {evidence}",
                evidence=evidence,
                suggested_action=SuggestedAction.REPAIR_HARDWARE,
                rule="speed below the best seen",
            )
        )


def _kind_of(name: str) -> str:
    return "infiniband" if "/" in name else "ethernet"


def _link_down(key: FindingKey, link: LinkReading, message: str, evidence: str) -> Faulty:
    rdma = link.kind in _RDMA_KINDS
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.FATAL if rdma else Severity.DEGRADED,
            message=message,
            evidence=evidence,
            suggested_action=SuggestedAction.REPAIR_HARDWARE,
            rule="link was up before, or is configured",
        )
    )


def _missing_kinds(links: Sequence[LinkReading], known: Iterable[LinkReading]) -> set[str]:
    return {link.kind for link in known} - {link.kind for link in links}


def _judge_monitor(missing: set[str], links: int) -> Judgement:
    """Judge whether a whole class vanished at once: rather the monitor than every port."""
    key = FindingKey("probe/network", "MonitorDegraded")
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
