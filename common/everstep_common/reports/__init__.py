"""Reports: what a launcher, a rank or an agent reports, each fact defined once.

Frames on the agent's Unix socket, protobuf messages to the controller and rows of its journal are
derived from these records (`everstep_common.codec`, `everstep_proto.reports`, the journal's codec).
A fact that grows a field is two lines: one here, one in fleet.proto. A new one of a job is a class
in jobs.py and a line of ``JobReport`` there; what ranks send themselves is in
`everstep_common.rank_messages`.
"""

from everstep_common.rank_messages import RANK_REPORTS, DataRange, RankReport, RollbackAsked
from everstep_common.reports.hello import (
    Accelerator,
    Disk,
    EndedJob,
    Hello,
    Interface,
    Inventory,
    JobOnNode,
    RanksWithoutSnapshot,
)
from everstep_common.reports.jobs import (
    JOB_REPORTS,
    BranchStep,
    BranchSteps,
    DataRanges,
    EndAsked,
    GenerationFinished,
    GenerationStopped,
    JobReport,
    JobRequest,
    LauncherJoined,
    LauncherLeft,
    PauseKind,
    Phase,
    PhaseReached,
    RankExited,
    RanksGoOn,
    RanksStandStill,
    RestartedHere,
    StepPause,
    StepsCompleted,
    Storage,
    StoredStep,
)
from everstep_common.reports.nodes import (
    CheckFinished,
    FindingCleared,
    FindingRaised,
    GoingAway,
    GpuColumns,
    InjectionChanged,
    InjectionState,
    KernelMessage,
    KernelMessages,
    LinkColumns,
    OrderRejected,
    OutputPiece,
    OutputRead,
    PairFigure,
    PairTested,
    PeerEvidence,
    PeerReport,
    Pong,
    RankColumns,
    RanksInspected,
    SampleBatch,
    TcpAnswer,
    TimeReply,
)
from everstep_common.reports.vault import (
    PassedStep,
    PersistFailure,
    Standbys,
    Turnover,
    VaultCopy,
    VaultReport,
)

NodeReport = (
    FindingRaised | FindingCleared | CheckFinished | PairTested | InjectionChanged | OrderRejected
)
Report = JobReport | NodeReport
