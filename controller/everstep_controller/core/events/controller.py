"""Events of the controller itself: its own affairs, its drivers, and its decisions on snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from everstep_common.judging.findings import Finding, FindingKey, Measurement
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.hang import SeenHang
from everstep_controller.core.model.isolation import IsolationResult, SeenHold
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.core.model.snapshots import Cadence, RecoveryStepChosen


@dataclass(frozen=True, slots=True)
class ControllerStarted:
    """A controller process begins; the term grows by one."""

    version: str
    # The machine that it runs on, as agents name theirs; "" where that is not known.
    machine: str = ""


@dataclass(frozen=True, slots=True)
class ClusterNamed:
    """The cluster of this controller: its id, and the newest term that the cluster file knows.

    The file lies beside the configuration. A term in it that is newer than the journal's says that
    the journal is old.
    """

    cluster_id: str
    term: int = 0


@dataclass(frozen=True, slots=True)
class ControllerStalled:
    """The controller stood still for so long, or was away; what it did not hear is no evidence.

    The shell hands it in before any timer that came due meanwhile, and after what is in its
    sockets.
    """

    duration_ns: int


@dataclass(frozen=True, slots=True)
class RollCalled:
    """Count of agents that answered a roll call, of nodes from which something is expected.

    Told as soon as they are more than half, or when the time for answers is over.
    """

    id: str
    heard: int


@dataclass(frozen=True, slots=True)
class SettingsApplied:
    """The configuration that holds from now on."""

    settings: Settings
    # Names of the drivers: whom to tell that a node is to be left alone.
    isolation_drivers: tuple[str, ...] = ()
    # Groups of nodes by their names.
    groups: Mapping[str, Group] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimerDue:
    """A timer that the core set came due."""

    timer: str


@dataclass(frozen=True, slots=True)
class EventRejected:
    """An event made the core raise; the state is what it was before it."""

    sequence: int
    kind: str
    error: str
    node: str
    job: str


@dataclass(frozen=True, slots=True)
class RecordRejected:
    """Records of a kind that an agent sent cannot be used; they are acknowledged and left out.

    ``job`` and ``error`` are those of the first of them; ``job`` is empty where it names none.
    ``user`` is the uid whose jobs all of them are of; empty where that is not known, and in
    journals from before it was noted.
    """

    node: str
    kind: str
    job: str
    error: str
    count: int
    user: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryBegun:
    """An operator ordered to rebuild what the journal lost from what the agents know."""

    operator: str


@dataclass(frozen=True, slots=True)
class VerdictChanged:
    """A judge of the controller finds something about a node, or (None) finds it over.

    The numbers that decided are part of the event: the samples that they come from are not kept.
    """

    # "" for a finding about a failure domain, which the key names.
    node: str
    key: FindingKey
    finding: Finding | None
    evidence: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class HangJudged:
    """Verdict on a job that stands still: the ranks that hold it back, by their own reports."""

    job: str
    generation: int
    sentence: str
    # None: by an older version, for people only.
    seen: SeenHang | None = None


@dataclass(frozen=True, slots=True)
class SlowJudged:
    """The slow parts of a job have changed; without parts nobody makes the others wait.

    The numbers that decided are part of the event: the seconds that they come from are not kept.
    """

    job: str
    generation: int
    sentence: str
    parts: tuple[SlowPart, ...] = ()
    # What else makes steps long, in order (core/accounting/slow_time.py).
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimeoutJudged:
    """Ranks that did not come, in a generation that ended because others gave up waiting.

    The nodes are those of the ranks that it names; none where no rank is at fault.
    """

    job: str
    generation: int
    sentence: str
    nodes: tuple[str, ...] = ()
    # It names ranks, and not just those of which nothing is known.
    is_conclusive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEnrolled:
    """A certificate was signed for a node that joins by a token, and has not left this process.

    Times are Unix time, by which certificates count.
    """

    node: str
    token: str
    key_sha256: str
    serial: str
    since_s: int
    ends_s: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnrolled:
    """A certificate was signed for the node of a pod, which Kubernetes has vouched for.

    It has not left this process. Times are Unix time, by which certificates count.
    """

    node: str
    # Namespace and name, and the uid, which no other pod ever has.
    pod: str
    uid: str
    key_sha256: str
    serial: str
    since_s: int
    ends_s: int
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateRenewed:
    """A certificate was signed in the place of one that a node's agent has."""

    node: str
    # Serial of the one that it has; since when that one counts, in Unix time.
    before: str
    since_s: int
    serial: str
    key_sha256: str
    ends_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentRefused:
    """Requests for a certificate were refused; alike ones within a minute are one event."""

    # "enrolment" or "renewal".
    what: str
    node: str
    address: str
    reason: str
    count: int = 1


ControllerEvent = (
    ControllerStarted
    | ClusterNamed
    | ControllerStalled
    | RollCalled
    | SettingsApplied
    | TimerDue
    | EventRejected
    | RecordRejected
    | RecoveryBegun
    | VerdictChanged
    | HangJudged
    | SlowJudged
    | TimeoutJudged
    | NodeEnrolled
    | PodEnrolled
    | CertificateRenewed
    | EnrolmentRefused
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverReported:
    """A call of an isolation driver has ended.

    A reading has ``read``, or ``failure``: why it came to nothing. ``seen`` is how it differs from
    what the controller knew: a scheduler may withhold whole racks for months. An apply has results,
    one for each node that was asked for.
    """

    driver: str
    read: bool = False
    seen: tuple[SeenHold, ...] = ()
    # All nodes that do not answer the scheduler, with what it says of each.
    down: tuple[tuple[str, str], ...] = ()
    results: tuple[IsolationResult, ...] = ()
    failure: str = ""
    # Of each node that it says something else of by now: all of that, by the keys of groups.
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepRecoverable:
    """A step is recoverable without any one node, and no row of progress has said so.

    Told while steps are slow or none is made, and at once when a planned restart waits for it.
    """

    job: str
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class KeeperChosen:
    """A node is to keep copies of a job: replicas of one on one node, or what waits is guarded."""

    job: str
    node: str


@dataclass(frozen=True, slots=True)
class CadenceChosen:
    """From now on other steps of a job are snapshotted."""

    job: str
    cadence: Cadence


@dataclass(frozen=True, slots=True)
class StoringMeasured:
    """The newest step that came to storage was so long on its way."""

    job: str
    took_ns: int


@dataclass(frozen=True, slots=True)
class LayoutLearned:
    """All parts of a generation's state, told when all its ranks have committed a step."""

    job: str
    generation: int
    layouts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FinalSaveEnded:
    """The last step of a job that shall end is in storage, or will not come there."""

    job: str
    generation: int
    message: str
    # The step will not come to storage.
    missed: bool = False


VaultEvent = (
    StepRecoverable
    | KeeperChosen
    | CadenceChosen
    | StoringMeasured
    | LayoutLearned
    | RecoveryStepChosen
    | FinalSaveEnded
)
