"""A book of findings in virtual time: looks go in, and one sees what is open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Finding
from everstep_common.judging.judgement import Judgement

# Long after the boot: no condition is in its grace.
LATER_S = 3600.0


@dataclass
class OpenBook:
    """The book of a node that is looked at in a rhythm."""

    interval_s: float = 10.0
    at_s: float = LATER_S
    boot: str = "boot-1"
    # What passed before this boot, for people's clock.
    before_s: float = 0.0
    book: FindingBook = field(default_factory=lambda: FindingBook(CONDITIONS))

    @property
    def now(self) -> Stamp:
        """Return the time of the next look."""
        wall_ns = int((self.before_s + self.at_s) * 1e9)
        return Stamp(self.boot, int(self.at_s * 1e9), wall_ns)

    def look(self, judge: Callable[[Stamp], Sequence[Judgement]], times: int = 1) -> None:
        """Look so often, an interval apart."""
        for _ in range(times):
            self.book.enter_judgements(judge(self.now), self.now)
            self.at_s += self.interval_s

    def reboot(self) -> None:
        """Begin a new boot an hour ago; nothing was looked at since."""
        self.before_s += self.at_s
        self.at_s, self.boot = LATER_S, self.boot + "'"

    @property
    def open(self) -> set[str]:
        """Return the conditions that are open."""
        return {known.finding.condition for known in self.book.open_findings}

    def finding(self, condition: str) -> Finding:
        """Return the one open finding of a condition."""
        found = [known.finding for known in self.book.open_findings]
        (finding,) = [finding for finding in found if finding.condition == condition]
        return finding
