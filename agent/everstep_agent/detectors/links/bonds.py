"""Bond detector: slaves that are gone, down, in another group, or unlike the others."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown

CONDITIONS = (
    Condition(
        name="BondDegraded",
        component="link/BOND",
        meaning="a bond has a slave less than it had, a slave that is down, no active slave, or "
        "an 802.3ad slave outside the aggregator that carries traffic",
        source="Linux bonding: mii_status, active_slave, ad_aggregator_id",
        clears_when="every slave is there, up and in use",
        raise_after=3,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="BondUneven",
        component="link/BOND",
        meaning="the slaves of a bond differ in MTU or in speed",
        source="packets that one slave takes and the other drops look like a bad network",
        clears_when="all slaves that are up are alike",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BondSlave:
    """One interface of a bond; ``up`` is None and numbers are 0 where nothing could be read."""

    name: str
    up: bool | None
    mtu: int = 0
    speed_bits_per_s: int = 0
    aggregator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BondReading:
    """One bond. ``active_slave`` is None in modes that have none, ``slaves`` when unreadable."""

    name: str
    mode: str
    slaves: tuple[BondSlave, ...] | None
    active_slave: str | None = None
    aggregator: str = ""


class BondDetector:
    """Detector of bonds; remembers which slaves each had since the agent started."""

    def __init__(self) -> None:
        self._slaves: dict[str, set[str]] = {}

    def judge(self, bonds: Sequence[BondReading]) -> Iterable[Judgement]:
        """Judge one reading of all bonds."""
        for name in self._slaves.keys() - {bond.name for bond in bonds}:
            # The bond is gone; if it comes back, it may have other slaves.
            self._slaves[name].clear()
            for condition in ("BondDegraded", "BondUneven"):
                yield Healthy(FindingKey(f"link/{name}", condition), "the bond was removed")
        for bond in bonds:
            if (slaves := bond.slaves) is None:
                key = FindingKey(f"link/{bond.name}", "BondDegraded")
                yield Unknown(key, "its slaves cannot be read")
                continue
            had = self._slaves.setdefault(bond.name, set())
            had.update(slave.name for slave in slaves)
            lacks = list(_lacks(bond, slaves, had))
            yield _judged(bond.name, "BondDegraded", "runs on less than all its slaves", lacks)
            yield _judged(bond.name, "BondUneven", "has slaves that differ", list(_differs(slaves)))


def _lacks(
    bond: BondReading, slaves: Sequence[BondSlave], had: set[str]
) -> Iterable[tuple[str, str]]:
    """Yield each fault as rule and evidence."""
    if gone := had - {slave.name for slave in slaves}:
        yield "a slave is gone", f"{', '.join(sorted(gone))} no longer belongs to it"
    if down := [slave.name for slave in slaves if slave.up is False]:
        yield "a slave is down", f"{', '.join(down)} of {len(slaves)} slaves down"
    if bond.active_slave == "":
        yield "no active slave", f"mode {bond.mode} without an active slave"
    apart = [
        slave.name
        for slave in slaves
        if slave.up and slave.aggregator and bond.aggregator != slave.aggregator
    ]
    if bond.aggregator and apart:
        yield (
            "a slave is in another aggregator",
            f"{', '.join(apart)} not in aggregator {bond.aggregator}",
        )


def _differs(slaves: Sequence[BondSlave]) -> Iterable[tuple[str, str]]:
    up = [slave for slave in slaves if slave.up]
    for what, values in (
        ("MTU", {slave.name: slave.mtu for slave in up if slave.mtu}),
        ("speed", {s.name: s.speed_bits_per_s // 10**6 for s in up if s.speed_bits_per_s}),
    ):
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{name} {value}" for name, value in values.items())
            yield f"slaves differ in {what}", f"{what}: {shown}"


def _judged(bond: str, condition: str, message: str, found: Sequence[tuple[str, str]]) -> Judgement:
    key = FindingKey(f"link/{bond}", condition)
    if not found:
        return Healthy(key, "all slaves are there, in use and alike")
    return Faulty(
        Finding(
            component=key.component,
            condition=condition,
            severity=Severity.DEGRADED,
            message=f"bond {bond} {message}",
            evidence="; ".join(evidence for _, evidence in found),
            suggested_action=SuggestedAction.REPAIR_HARDWARE,
            rule="; ".join(rule for rule, _ in found),
        )
    )
