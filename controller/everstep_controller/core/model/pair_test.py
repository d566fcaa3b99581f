"""Pair test of a node: what is tested, beside whom, and what came of it."""

from dataclasses import dataclass, field
from enum import Enum

from everstep_common.reports import PairTested

# How often all work is done; how long the agents have for it; and how long anybody waits for their
# answers, which includes the way.
PAIR_ROUNDS = 3
PAIR_WORK_NS = 8_000_000_000
PAIR_HOLD_NS = 10_000_000_000


class PairOutcome(Enum):
    """What a pair test shows of the node that it is about."""

    # Its work takes longer than that of its partners, in all rounds.
    SLOW = "slow"
    # It takes as long.
    EQUAL = "equal"
    # It shows nothing: no answer, a refusal, or partners that do not agree.
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class PairRow:
    """A piece of work on the node and on its partner: the median of its rounds, in ns."""

    work: str
    node_ns: int
    partner_ns: int
    partner: str
    slow: bool = False

    @property
    def factor(self) -> float:
        """Return how many times as long it takes on the node."""
        return self.node_ns / self.partner_ns if self.partner_ns else 0.0


@dataclass(frozen=True, slots=True)
class PairResult:
    """Result of a pair test, with the numbers that decided."""

    test: str
    outcome: PairOutcome
    sentence: str
    rows: tuple[PairRow, ...] = ()
    # A fault that was ordered on purpose made the work more.
    injected: bool = False


@dataclass(slots=True)
class RunningPairTest:
    """A pair test that was ordered, with the answers that have come."""

    id: str
    partners: list[str]
    answers: dict[str, PairTested] = field(default_factory=dict)
    # Id of the job that waits for it; "" where nobody does.
    job: str = ""
    # The operator who ordered it; "" for automation.
    operator: str = ""


@dataclass(slots=True)
class PairRecord:
    """Results of a node's pair tests, and what is to be tested."""

    # Since when it is to be tested, by which job's word (its id), and why; 0: it is not.
    nominated_ns: int = 0
    nominated_by: str = ""
    why: str = ""
    # An operator's wish, until it is begun: who wants it, and beside whom ("" for any).
    operator: str = ""
    partner: str = ""
    running: RunningPairTest | None = None
    # The node whose test it takes part in as a partner; "" for none.
    partner_of: str = ""
    # Number of tests so far, so that no two get the same id; when the newest ended.
    count: int = 0
    done_ns: int = 0
    result: PairResult | None = None
    # How long each piece of work took when it was not slow the last time, in ns.
    baseline: dict[str, int] = field(default_factory=dict)
