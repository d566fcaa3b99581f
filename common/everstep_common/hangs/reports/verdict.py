"""HangVerdict on a job that stands still: who holds it back, how, and how that is known."""

from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Items
from everstep_common.hangs.reports.rank_report import RAS_LINES_MAX
from everstep_common.printable import printable

# A verdict with all of them stays below 64 KB.
CULPRITS_MAX = 64
CHAIN_MAX = 12
GROUPS_MAX = 24
BLIND_MAX = 24


class HangClass(Enum):
    """What holds a job back."""

    # Its process ended, and not because it gave up waiting for others.
    DEAD = "dead"
    # Its process does not run: stopped, or in the kernel.
    FROZEN = "frozen"
    # A thread holds the interpreter's lock, in code that never gives it back.
    GIL_HELD = "gil_held"
    # It lives, and has not come to the operation that the others wait in.
    CPU_SIDE = "cpu_side"
    # It has enqueued what the others have, and its GPU did not complete it.
    GPU_SIDE = "gpu_side"
    # It told nothing, and the wait of the others leads to it.
    SILENT = "silent"
    # All have enqueued the operation, and nobody completes it.
    FABRIC = "fabric"
    # It waits in the kernel for what a file system answers, and nobody else holds the job back.
    STORAGE = "storage"
    # The ranks do not call the same operations in the same order: the program.
    DESYNC = "desync"
    # A published fault of a library that the ranks have mapped.
    KNOWN_SOFTWARE = "known_software"
    # Ranks wait, and what there is does not tell for whom.
    UNKNOWN = "unknown"
    # No rank waits for another, as far as can be seen.
    NO_WAIT = "no_wait"


class Confidence(Enum):
    """How sure a verdict is."""

    # Seen directly, or the only explanation with nothing missing that could change it.
    CERTAIN = "certain"
    # The best explanation; what is missing, or a rule of thumb in it, could change it.
    LIKELY = "likely"
    # Several explanations are left.
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Culprit:
    """A rank that holds the others back."""

    rank: q.Rank
    node: q.Line
    kind: HangClass
    reason: q.Line


def named_ranks(text: str) -> str:
    """Return ranks as text with the word for them: "rank 3", "ranks 0-2,7"."""
    return f"rank{'' if text.isdigit() else 's'} {text}"


@dataclass(frozen=True, slots=True)
class WaitStep:
    """One link of the chain of waiting: who waits in which operation, and for whom."""

    # Ranks as text: "0-7".
    waiting: q.Line
    operation: q.Title
    group: q.Title
    awaited: q.Line

    def __str__(self) -> str:
        wait = "waits" if self.waiting.isdigit() else "wait"
        where = f"{self.operation} of {self.group}"
        return printable(
            f"{named_ranks(self.waiting)} {wait} in {where} for {named_ranks(self.awaited)}"
        )


@dataclass(frozen=True, slots=True)
class GroupState:
    """One process group in which somebody waits."""

    group: q.Title
    members: q.Line
    # The newest operation that a member waits in, and the members that do.
    operation: q.Title
    waiting: q.Line
    # Members that have not enqueued it, and members that told nothing.
    behind: q.Line
    unknown: q.Line


@dataclass(frozen=True, slots=True)
class HangVerdict:
    """Verdict on a hang: the culprits, and the evidence."""

    kind: HangClass
    culprits: Annotated[tuple[Culprit, ...], Items(CULPRITS_MAX)]
    confidence: Confidence
    # What happened, in one sentence or two.
    sentence: q.Evidence
    # Possible culprits where none can be named; never acted upon. Ranks as text.
    suspects: q.Line = ""
    chain: Annotated[tuple[WaitStep, ...], Items(CHAIN_MAX)] = ()
    groups: Annotated[tuple[GroupState, ...], Items(GROUPS_MAX)] = ()
    # What could not be seen, and what follows from it.
    blind: Annotated[tuple[q.Line, ...], Items(BLIND_MAX)] = ()
    # What NCCL RAS told beside it; nothing follows from that.
    ras: Annotated[tuple[q.Line, ...], Items(RAS_LINES_MAX)] = ()
    # How many ranks the job has, and how many of them told their operations.
    world_size: q.Ranks = 0
    told: q.Ranks = 0
