"""Judgement: the result of one look at one condition of a component: faulty, healthy or unknown."""

from dataclasses import dataclass

from everstep_common.judging.findings import Finding, FindingKey


@dataclass(frozen=True, slots=True)
class Faulty:
    """The condition holds; ``since_boot_ns``: since then, on the boot clock; None: since now."""

    finding: Finding
    since_boot_ns: int | None = None

    @property
    def key(self) -> FindingKey:
        """Return what was judged."""
        return self.finding.key


@dataclass(frozen=True, slots=True)
class Healthy:
    """The condition does not hold, and this is what shows it."""

    key: FindingKey
    evidence: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The condition could not be read: whatever was known of it stays as it is."""

    key: FindingKey
    reason: str


Judgement = Faulty | Healthy | Unknown
