"""Orders: what the controller has an agent do, each defined once.

Protobuf messages and rows of the controller's journal are derived from these records, as from
those in `everstep_common.reports`.
"""

from everstep_common.orders.jobs import (
    ClearInjection,
    EndJob,
    ForgetJob,
    HoldLauncher,
    Inject,
    JobOrder,
    KeepJob,
    NodeOrder,
    Order,
    RefuseLauncher,
    RunCheck,
    RunPairTest,
    ShardSource,
    StartGeneration,
    StopGeneration,
)
from everstep_common.orders.liveness import (
    ConfirmPeer,
    Halted,
    PeerList,
    Ping,
    RevokedCertificates,
    RevokedNode,
    TimeRequest,
    WatchedPeer,
)
from everstep_common.orders.questions import InspectRanks, ReadOutput, TellLauncher
from everstep_common.orders.vault import (
    Publish,
    SpareMemory,
    SparePreload,
    StoredFile,
    VaultDirective,
)
