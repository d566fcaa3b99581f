"""Deaths of ranks and judgements about them, as the state keeps both."""

from bisect import insort
from dataclasses import dataclass
from enum import Enum

from everstep_common.failure_texts import unvarying
from everstep_common.failures import ENDED_ITSELF, Side, side

# When one rank dies, thousands may follow; more than these would explain nothing more.
DEATHS_MAX = 64

JUDGEMENTS_MAX = 16

STRIKES_MAX = 8


class Remedy(Enum):
    """What is done about a fault."""

    RESTART = "restart"
    REPLACE = "replace"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One rank that ended before its generation did."""

    generation: int
    rank: int
    node: str
    at_ns: int
    exit_code: int = 0
    signal: int = 0
    kind: str = ""
    exception: str = ""
    last_line: str = ""
    core_dumped: bool = False
    # The last step that it completed, or that the job had completed when it told of none.
    step: int | None = None
    # Where its core dump is, or the command that shows it.
    core_file: str = ""

    @property
    def explains(self) -> bool:
        """Whether it can be why others died; a broken collective is only what follows."""
        return side(self.kind) is not Side.CONSEQUENCE

    @property
    def signature(self) -> str:
        """What is equal in two deaths of the same cause."""
        how = unvarying(self.kind, self.exception)
        return f"{self.kind}: {how or f'exit {self.exit_code}, signal {self.signal}'}"

    @property
    def ended_before_any_step(self) -> bool:
        """Whether the script ended itself before its first step, which no node makes it do."""
        return self.kind == ENDED_ITSELF and self.step is None

    def sentence(self) -> str:
        """Return what happened, in words."""
        how = f"was killed by signal {self.signal}" if self.signal else f"exited {self.exit_code}"
        said = self.exception or self.last_line
        told = [part for part in (said, "core dumped" if self.core_dumped else "") if part]
        detail = f" ({', '.join(told)})" if told else ""
        return f"rank {self.rank} on {self.node} {how}{detail}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What was made of the end of one generation, and what was done then."""

    generation: int
    at_ns: int
    remedy: Remedy
    sentence: str
    evidence: tuple[str, ...] = ()
    # Whom it blames; empty when nobody on a node is.
    node: str = ""
    signature: str = ""
    step: int | None = None
    # The plan that followed: "in place from step 5".
    tried: str = ""


@dataclass(frozen=True, slots=True)
class Strike:
    """A death on a node that could have been the node's fault."""

    at_ns: int
    job: str
    sentence: str


def add_death(deaths: list[Death], death: Death) -> None:
    """Take one more death; of each generation, those are kept that explain most, earliest first."""
    if deaths and deaths[0].generation != death.generation:
        deaths.clear()
    insort(deaths, death, key=_order)
    del deaths[DEATHS_MAX:]


def _order(death: Death) -> tuple[bool, int, int]:
    return (not death.explains, death.at_ns, death.rank)
