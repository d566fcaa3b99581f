"""Speed detector: links that run below what they should, or in half duplex."""

from collections import Counter
from collections.abc import Iterable, Sequence

from everstep_agent.detectors.links.limits import LinkLimits
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

CONDITIONS = (
    Condition(
        name="LinkSlow",
        component="link/NAME",
        meaning="a link runs below its own best speed of this boot, or below what most links of "
        "the same build have",
        source="itself and its peers; a bad cable trains to fewer lanes or a lower "
        "rate and reports no error",
        clears_when="the link has the speed that it should have",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="LinkHalfDuplex",
        component="link/NAME",
        meaning="an Ethernet link negotiated half duplex",
        source="no switch of a cluster offers it; a failed negotiation does",
        clears_when="the link is in full duplex",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
)

# The best speed is remembered with the counters, so that an agent that restarts knows it.
_BEST = "/best_bits_per_s"


class SpeedJudge:
    """Compares every link with itself and with its peers."""

    def __init__(self, counters: Counters, limits: LinkLimits) -> None:
        self._counters = counters
        self._limits = limits
        self._best: dict[str, int] = {}
        self._remembered = {
            name.removeprefix("link/").removesuffix(_BEST): state
            for name, state in counters.remembered().items()
            if name.endswith(_BEST)
        }

    def was_up(self, name: str, boot_id: str) -> bool:
        """Return whether an agent before this one saw the link up in this boot."""
        remembered = self._remembered.get(name)
        return remembered is not None and remembered.boot_id == boot_id

    def judge(self, links: Sequence[LinkReading], now: Moment) -> Iterable[Judgement]:
        """Judge the links that are up."""
        for link in links:
            yield self._judge_speed(link, links, now)
            if link.duplex:
                yield _judge_duplex(link)

    def _judge_speed(
        self, link: LinkReading, links: Sequence[LinkReading], now: Moment
    ) -> Judgement:
        key = FindingKey(f"link/{link.name}", "LinkSlow")
        best = self._best_of(link, now)
        if not link.speed_bits_per_s:
            return Unknown(key, "no speed is known")
        for should, whose, rule in (
            (best, "best", "speed below the best seen"),
            (self._of_peers(link, links), "its peers", "below most links of the same build"),
        ):
            evidence = f"{_gbits(link.speed_bits_per_s)}, {whose} {_gbits(should)}"
            if link.speed_bits_per_s < should:
                return Faulty(
                    Finding(
                        component=key.component,
                        condition=key.condition,
                        severity=Severity.DEGRADED,
                        message=f"link {link.name} runs below its speed: {evidence}",
                        evidence=evidence,
                        suggested_action=SuggestedAction.REPAIR_HARDWARE,
                        rule=rule,
                    )
                )
        return Healthy(key, f"{_gbits(link.speed_bits_per_s)}, best {_gbits(best)}")

    def _best_of(self, link: LinkReading, now: Moment) -> int:
        best = self._best.get(link.name)
        if best is None:
            remembered = self._remembered.get(link.name)
            best = remembered.value if remembered and remembered.boot_id == now.boot_id else 0
        if link.name not in self._best or link.speed_bits_per_s > best:
            best = max(best, link.speed_bits_per_s)
            self._counters.take(f"link/{link.name}{_BEST}", best, now)
            self._best[link.name] = best
        return best

    def _of_peers(self, link: LinkReading, links: Sequence[LinkReading]) -> int:
        """Return the speed that most links of the same build have; 0 when there are too few."""
        if not link.family:
            return 0
        like = [peer.speed_bits_per_s for peer in links if peer.family == link.family]
        ((speed, count),) = Counter(like).most_common(1)
        return speed if count >= self._limits.peers_min and count * 2 > len(like) else 0


def _judge_duplex(link: LinkReading) -> Judgement:
    key = FindingKey(f"link/{link.name}", "LinkHalfDuplex")
    if link.duplex != "half":
        return Healthy(key, f"duplex {link.duplex}")
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.DEGRADED,
            message=f"link {link.name} negotiated half duplex",
            evidence=f"duplex {link.duplex}, {_gbits(link.speed_bits_per_s)}",
            suggested_action=SuggestedAction.REPAIR_HARDWARE,
            rule="half duplex",
        )
    )


def _gbits(bits_per_s: int) -> str:
    return f"{bits_per_s / 1e9:g} Gbit/s"
