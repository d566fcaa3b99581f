"""Job facts: what the agent knows of a job and must still know after its own restart."""

import hashlib
import logging
from dataclasses import dataclass, field

from everstep_agent.ipc.processes import ProcessIdentity
from everstep_agent.jobs.autonomous_restart_policy import Autonomy
from everstep_agent.vault.memory.capacity import MemoryForecast
from everstep_agent.vault.snapshots.cadence import Cadence
from everstep_common.trainer_messages import Storage
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class JobFacts:
    """One job on this node. ``start`` and ``directive`` are the controller's words, encoded."""

    job: str
    # Of the launcher that may come back; -1 when whoever comes is checked by the controller alone.
    uid: int = -1
    # Whose snapshots are here, also when no launcher is.
    owner: int = -1
    token_sha256: str = ""
    start: bytes = b""
    directive: bytes = b""
    # Stop was ordered up to this generation, and answered up to that one.
    stop_ordered: int = 0
    stopped: int = 0
    phases: tuple[int, ...] = ()
    free_port: int = 0
    launcher: ProcessIdentity | None = None
    processes: tuple[ProcessIdentity, ...] = ()
    # Killed, but held in the kernel: ranks of which that is known here, and all as the launcher
    # named them when it stopped its newest generation.
    held: tuple[ProcessIdentity, ...] = ()
    abandoned: tuple[int, ...] = ()
    # The controller said that it is over here.
    ended: bool = False
    succeeded: bool = False
    # All went well, and the last step is in no storage.
    unsaved: bool = False
    # It has ended, and a launcher came under its name since: generations may begin again.
    past: bool = False
    # Token of whoever made the snapshots that are here, also when no launcher is.
    owner_token_sha256: str = ""
    # It has ended, and the next job of its name goes on from what is here.
    wanted: bool = False
    transfer_key: bytes = b""
    # Where the launcher wants its steps, and with which rights its files are opened there.
    storage: Storage | None = None
    gid: int = -1
    groups: tuple[int, ...] = ()
    umask: int = 0o077
    # Which steps the controller wants, with the rules that ranks behind the newest one follow.
    cadence: Cadence = field(default_factory=Cadence)
    # Which job of the name its launcher is of, and why that one has ended, once it has.
    job_id: int = 0
    end_reason: str = ""
    # What is done in the controller's place while it is away.
    own: Autonomy = field(default_factory=Autonomy)
    # What its launcher was told will be there for the ranks of its first generation here.
    promised: MemoryForecast | None = None

    @property
    def plan(self) -> fleet_pb2.StartGeneration:
        """Return the newest plan; generation 0 when there was none."""
        return fleet_pb2.StartGeneration.FromString(self.start)

    @property
    def leaves_state(self) -> bool:
        """Whether its memory is kept after its end, for a while or for the next job of its name."""
        return not self.succeeded or self.unsaved


def token_hash(token: str) -> str:
    """Return what is kept and sent of a job token."""
    return hashlib.sha256(token.encode()).hexdigest()
