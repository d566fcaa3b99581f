"""Rank messages: between a training process and the agent of its node.

Attach → Attached | Refused,
Describe → DescribedPart | NothingToRestore | RestoreFailed,
Restore → RestoredCopies | NothingToRestore | RestoreFailed,
Reserve → Reserved | Refused,
Begin → Slot | Skip | Unplanned, Commit → Committed | CommittedAhead | Refused,
AskSkipped → Skipped;
Progress, Paused and the reports of a rank (RankReport) are not answered.
Before any answer to a question of an attached process: Pending → Await, again and again.
All that a process of a job exchanges is here and nothing else: each module that a rank imports
makes every restart longer. With those of launchers: `everstep_common.trainer_messages`.
"""

from everstep_common.rank_messages.process import (
    AskSkipped,
    Attach,
    Attached,
    Paused,
    Progress,
    Ready,
    Refused,
    RefusedForNow,
    Skipped,
)
from everstep_common.rank_messages.reports import (
    RANK_REPORTS,
    DataRange,
    RankReport,
    RollbackAsked,
    SentByRank,
)
from everstep_common.rank_messages.vault import (
    Await,
    Begin,
    Commit,
    Committed,
    CommittedAhead,
    Describe,
    DescribedPart,
    Entry,
    NothingToRestore,
    Pending,
    Reserve,
    Reserved,
    Restore,
    RestoredCopies,
    RestoredCopy,
    RestoreFailed,
    Skip,
    Slot,
    Unplanned,
)

__all__ = [
    "CARRIERS_TO_TRAINER",
    "FROM_TRAINER",
    "RANK_REPORTS",
    "TO_TRAINER",
    "AskSkipped",
    "Attach",
    "Attached",
    "Await",
    "Begin",
    "Commit",
    "Committed",
    "CommittedAhead",
    "DataRange",
    "Describe",
    "DescribedPart",
    "Entry",
    "NothingToRestore",
    "Paused",
    "Pending",
    "Progress",
    "RankReport",
    "Ready",
    "Refused",
    "RefusedForNow",
    "Reserve",
    "Reserved",
    "Restore",
    "RestoreFailed",
    "RestoredCopies",
    "RestoredCopy",
    "RollbackAsked",
    "SentByRank",
    "Skip",
    "Skipped",
    "Slot",
    "Unplanned",
]

FROM_TRAINER = (
    Attach,
    Describe,
    Restore,
    Ready,
    Reserve,
    Begin,
    Commit,
    Progress,
    Paused,
    AskSkipped,
    Await,
    *RANK_REPORTS,
)
TO_TRAINER = (
    Attached,
    Refused,
    DescribedPart,
    RestoredCopies,
    NothingToRestore,
    RestoreFailed,
    Reserved,
    Slot,
    Skip,
    Unplanned,
    Committed,
    CommittedAhead,
    Skipped,
    Pending,
)
# With these the agent passes descriptors of sealed memory; with no other message either way.
CARRIERS_TO_TRAINER = (Reserved, RestoredCopies)
