"""Judgements on links in virtual time, through the book of findings."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.links.reading import LinkReading
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Judgement

# Long after the boot: no condition is in its grace.
_START_S = 3600
SECOND_NS = 10**9


def port(up: bool | None = True, number: int = 0, gbits: int = 400) -> LinkReading:
    """Return a reading of a port of one of eight HCAs of the same build."""
    return LinkReading(
        name=f"mlx5_{number}/1",
        kind="infiniband",
        up=up,
        speed_bits_per_s=gbits * 10**9,
        detail="state 4: ACTIVE" if up else "state 1: DOWN, physical state 2: Polling",
        family="MT4129 MT_0000000838 port 1",
    )


def ethernet(up: bool | None = True, name: str = "eth0") -> LinkReading:
    """Return a reading of an interface."""
    return LinkReading(name=name, kind="ethernet", up=up, speed_bits_per_s=25 * 10**9)


def on(judgements: Iterable[Judgement], condition: str) -> list[Judgement]:
    """Return the judgements on one condition."""
    return [judgement for judgement in judgements if judgement.key.condition == condition]


@dataclass
class Timeline:
    """A book of findings, and the time, which only moves when it is told to."""

    book: FindingBook = field(default_factory=lambda: FindingBook(CONDITIONS))
    seconds: float = 0.0
    boot: str = "boot-1"

    @property
    def now(self) -> Stamp:
        """Return the time."""
        ns = int((_START_S + self.seconds) * SECOND_NS)
        return Stamp(self.boot, ns, ns)

    def take(self, judgements: Iterable[Judgement], seconds: float = 1.0) -> list[str]:
        """Enter judgements, let time pass, and return what was told of it: "+X" and "-X"."""
        changes = self.book.enter_judgements(judgements, self.now)
        self.seconds += seconds
        raised = [f"+{known.finding.condition}" for known in changes.raised]
        return [*raised, *(f"-{cleared.key.condition}" for cleared in changes.cleared)]

    def severity(self, condition: str) -> Severity:
        """Return the severity of the one open finding of a condition."""
        (found,) = (
            known.finding.severity
            for known in self.book.open_findings
            if known.finding.condition == condition
        )
        return found
