"""Reports: what a launcher, a rank or an agent reports, each fact defined once.

Frames on the agent's Unix socket, protobuf messages to the controller and rows of its journal are
derived from these records (`everstep_common.codec`, `everstep_proto.reports`, the journal's codec).
A fact that grows a field is two lines: one here, one in fleet.proto. A new one of a job is a class
in jobs.py and a line of ``JobReport`` there; what derives from `RankReport` ranks send themselves.
"""

from everstep_common.reports.hello import (
    Accelerator,
    Disk,
    Hello,
    Interface,
    Inventory,
    JobOnNode,
)
from everstep_common.reports.jobs import (
    JOB_REPORTS,
    RANK_REPORTS,
    DataRange,
    DataRanges,
    EndAsked,
    GenerationFinished,
    GenerationStopped,
    JobReport,
    JobRequest,
    LauncherJoined,
    LauncherLeft,
    Phase,
    PhaseReached,
    RankExited,
    RankReport,
    RestartedHere,
    RollbackAsked,
    StepsCompleted,
    Storage,
    StoredStep,
)
from everstep_common.reports.nodes import (
    CheckFinished,
    FindingCleared,
    FindingRaised,
    GoingAway,
    InjectionChanged,
    InjectionState,
    KernelMessage,
    KernelMessages,
    OrderRejected,
    PeerEvidence,
    PeerReport,
    Pong,
    SampleBatch,
    TcpAnswer,
    TimeReply,
)
from everstep_common.reports.vault import PersistFailure, Standbys, VaultCopy, VaultReport

__all__ = [
    "JOB_REPORTS",
    "RANK_REPORTS",
    "Accelerator",
    "CheckFinished",
    "DataRange",
    "DataRanges",
    "Disk",
    "EndAsked",
    "FindingCleared",
    "FindingRaised",
    "GenerationFinished",
    "GenerationStopped",
    "GoingAway",
    "Hello",
    "InjectionChanged",
    "InjectionState",
    "Interface",
    "Inventory",
    "JobOnNode",
    "JobReport",
    "JobRequest",
    "KernelMessage",
    "KernelMessages",
    "LauncherJoined",
    "LauncherLeft",
    "NodeReport",
    "OrderRejected",
    "PeerEvidence",
    "PeerReport",
    "PersistFailure",
    "Phase",
    "PhaseReached",
    "Pong",
    "RankExited",
    "RankReport",
    "Report",
    "RestartedHere",
    "RollbackAsked",
    "SampleBatch",
    "Standbys",
    "StepsCompleted",
    "Storage",
    "StoredStep",
    "TcpAnswer",
    "TimeReply",
    "VaultCopy",
    "VaultReport",
]

NodeReport = FindingRaised | FindingCleared | CheckFinished | InjectionChanged | OrderRejected
Report = JobReport | NodeReport
