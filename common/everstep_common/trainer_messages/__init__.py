"""Trainer messages: between a job's launcher and training processes and the agent of their node.

Launcher:  Join → Joined | Refused | RefusedForNow, then Start / Stop / End / Notice at any time;
           Preload both ways.
Trainer:   Attach → Attached | Refused,
           Describe → DescribedPart | NothingToRestore | RestoreFailed,
           Restore → RestoredCopies | NothingToRestore | RestoreFailed,
           Reserve → Reserved | Refused,
           Begin → Slot | Skip | Unplanned, Commit → Committed | Refused, AskSkipped → Skipped;
           Progress and the reports of a rank (RankReport) are not answered.
           Before any answer to a question of an attached process: Pending → Await, again and again.
One file for each of them, and one for what a process asks of the vault; all are imported from here.
Times are CLOCK_BOOTTIME nanoseconds of the node; steps count from 0.
"""

from everstep_common.preload import Preload
from everstep_common.reports import (
    RANK_REPORTS,
    DataRange,
    EndAsked,
    GenerationFinished,
    GenerationStopped,
    LauncherLeft,
    RankExited,
    RollbackAsked,
    Standbys,
    Storage,
)
from everstep_common.trainer_messages.launcher import (
    End,
    Identified,
    Join,
    Joined,
    Notice,
    OutputSeen,
    RankProcess,
    Settled,
    Start,
    Started,
    StepSeen,
    Stop,
)
from everstep_common.trainer_messages.refusal import Refused, RefusedForNow
from everstep_common.trainer_messages.trainer import (
    AskSkipped,
    Attach,
    Attached,
    Progress,
    Ready,
    Skipped,
)
from everstep_common.trainer_messages.vault import (
    Await,
    Begin,
    Commit,
    Committed,
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
    "FROM_LAUNCHER",
    "FROM_TRAINER",
    "TO_LAUNCHER",
    "TO_TRAINER",
    "AskSkipped",
    "Attach",
    "Attached",
    "Await",
    "Begin",
    "Commit",
    "Committed",
    "DataRange",
    "Describe",
    "DescribedPart",
    "End",
    "EndAsked",
    "Entry",
    "GenerationFinished",
    "GenerationStopped",
    "Identified",
    "Join",
    "Joined",
    "LauncherLeft",
    "NothingToRestore",
    "Notice",
    "OutputSeen",
    "Pending",
    "Preload",
    "Progress",
    "RankExited",
    "RankProcess",
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
    "Settled",
    "Skip",
    "Skipped",
    "Slot",
    "Standbys",
    "Start",
    "Started",
    "StepSeen",
    "Stop",
    "Storage",
    "Unplanned",
]

# Reports to the controller are among these messages as they are: the agent passes them on.
FROM_LAUNCHER = (
    Join,
    Started,
    StepSeen,
    OutputSeen,
    RankExited,
    GenerationStopped,
    Standbys,
    Preload,
    GenerationFinished,
    EndAsked,
    LauncherLeft,
)
TO_LAUNCHER = (
    Joined,
    Refused,
    RefusedForNow,
    Identified,
    Start,
    Stop,
    End,
    Settled,
    Preload,
    Notice,
)
FROM_TRAINER = (
    Attach,
    Describe,
    Restore,
    Ready,
    Reserve,
    Begin,
    Commit,
    Progress,
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
    Skipped,
    Pending,
)
# With these the agent passes descriptors of sealed memory; with no other message either way.
CARRIERS_TO_TRAINER = (Reserved, RestoredCopies)
