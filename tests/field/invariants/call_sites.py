"""Call sites of warnings in the product, as data: the finding of each, or why it has none.

A test reads the sources: a warning that is not in this table fails it, and so does a row of none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

_LINE = re.compile(r"^(?P<logger>everstep[\w.]*): (?P<text>.*)", re.DOTALL)
# A conversion of logging's: %s, %d, %g, %.1f.
_CONVERSION = re.compile(r"%[\d.]*[sdgf]")
# What `log_limit` says of lines that it did not write, with the words of their call behind it.
_COUNTED = re.compile(r"\d+ more lines in a minute, caused by .*: ", re.DOTALL)


class Known(Enum):
    """What is known of a warning."""

    # A finding tells people of the same.
    FINDING = "finding"
    # It needs none while a fault explains it; without one it is news.
    FAULT = "fault"
    # It needs none, ever.
    REASON = "reason"
    # It must never be seen in the field.
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class CallSite:
    """A call of a logger: its module, its words, and what is known of it."""

    module: str
    words: str
    known: Known
    why: str
    conditions: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return what matches a line that it wrote; for words that are a variable, any line."""
        parts = [".*" if self.words.isidentifier() else _escaped(self.words)]
        return re.compile("".join(parts), re.DOTALL)


def _escaped(words: str) -> str:
    return ".*".join(re.escape(part) for part in _CONVERSION.split(words))


def find_site(line: str) -> CallSite | None:
    """Return the call site that wrote a line; None where none is known."""
    said = _LINE.match(line)
    if said is None:
        return None
    fit = [
        site
        for site in _of_logger(said["logger"])
        if site.pattern.fullmatch(said["text"]) is not None
        or (_COUNTED.match(said["text"]) and said["text"].endswith(f": {site.words}"))
    ]
    # Of several the one that says most.
    return max(fit, key=lambda site: len(site.words), default=None)


def find_job_site(line: str) -> CallSite | None:
    """Return the call site of the SDK that wrote a line of a job; None where none is known.

    A user's script decides how its lines look: without a word of it "everstep: " stands before it.
    """
    fit = [
        site
        for site in _of_logger(_T)
        if not site.words.isidentifier() and site.pattern.search(line) is not None
    ]
    return max(fit, key=lambda site: len(site.words), default=None)


@cache
def _of_logger(logger: str) -> tuple[CallSite, ...]:
    return tuple(site for site in CALL_SITES if site.module == logger)


_A, _C, _T = "everstep_agent", "everstep_controller", "everstep"
_F, _X, _R, _N = Known.FINDING, Known.FAULT, Known.REASON, Known.NEVER
_RESTARTED = "an agent that starts anew does without what it cannot read"
_DESCRIPTORS = "the caller waits in the backlog, and nothing is lost"
_REFUSED_WIRE = "what no controller of this version sends is refused and counted"


def _agent() -> Iterator[CallSite]:
    a = f"{_A}."
    yield CallSite(f"{a}injections.injector", "injection %s: %s for %g s", _R, "an operator asked")
    yield CallSite(f"{a}injections.injector", "injection %s: %s", _R, "an operator asked for it")
    yield CallSite(f"{a}daemon", "%s", _N, "installing.md says which addresses to set")
    yield CallSite(
        f"{a}injections.memory",
        "what the last agent had injected cannot be read: %s",
        _N,
        _RESTARTED,
    )
    yield CallSite(
        *(f"{a}injections.stopping", "process %d cannot be stopped: %s", _R),
        "the answer to the operator says it, too",
    )
    yield CallSite(f"{a}ipc.listeners", "%s: %s", _X, _DESCRIPTORS)
    yield CallSite(
        *(f"{a}ipc.socket_disposal", "text", _F, "users who hold sockets are limited and named"),
        ("UserLimited",),
    )
    yield CallSite(
        *(f"{a}jobs.job.autonomous_restart", "job %s: %s", _X),
        "a restart without a controller is an incident of the job once there is one again",
    )
    yield CallSite(
        *(f"{a}jobs.job.device_release", "%s after %g s: %s", _F, "memory of devices is held"),
        ("AcceleratorMemoryKept", "GpuMemoryLeft", "GpuMemoryUnowned"),
    )
    yield CallSite(
        *(f"{a}jobs.job.device_release", "whether the memory of GPUs is free is not known: %s", _F),
        "the driver does not answer",
        ("GpuDriverUnavailable", "ProbeFailed", "ProbeHang"),
    )
    yield CallSite(
        *(f"{a}jobs.job.spare", "job %s: ignored: a preload that is none", _N),
        "a launcher of ours sends none",
    )
    yield CallSite(
        f"{a}jobs.job.stopping",
        "job %s: the launcher is not counted on: %s; killing its ranks: processes %s",
        *(_X, "the job's incident tells of its launcher"),
    )
    yield CallSite(
        *(f"{a}jobs.job.stopping", "process %d cannot be killed: the agent needs CAP_KILL", _F),
        "ranks of a launcher that is gone go on",
        ("RanksHeld",),
    )
    yield CallSite(
        f"{a}jobs.sessions.launcher",
        "job %s: killed, but held in the kernel by a device or a file system: processes %s",
        *(_F, "the kernel holds ranks"),
        ("RanksStuckInKernel", "RanksHeld"),
    )
    yield CallSite(f"{a}jobs.sessions.server", "text", _X, "bytes that are no frame are refused")
    yield CallSite(
        *(f"{a}jobs.state.remembered_ends", "which jobs have ended cannot be read: %s", _N),
        _RESTARTED,
    )
    yield CallSite(
        f"{a}jobs.state.store", "what was known of job %s cannot be read: %s", _N, _RESTARTED
    )
    yield CallSite(
        *(f"{a}liveness", "peer %s: could not be asked from here", _X),
        "the controller counts it as no evidence",
    )
    yield CallSite(
        f"{a}message_fitting",
        "a %s of %d bytes is too long for the controller, and was shortened to %d",
        *(_N, "nothing of the field is so long"),
    )
    yield CallSite(
        *(f"{a}message_fitting", "Hello is too long with the inventory: %d bytes", _N),
        "no machine of the field has so much",
    )
    yield CallSite(f"{a}metrics.server", "metrics: %s", _X, _DESCRIPTORS)
    yield CallSite(
        f"{a}monitoring.findings",
        "the open findings of the last agent cannot be read: %s",
        *(_N, _RESTARTED),
    )
    yield CallSite(
        f"{a}monitoring.findings",
        "this agent does not know the conditions %s",
        *(_N, "all agents of the field are of one version, and no site's rules are taken away"),
    )
    yield CallSite(f"{a}monitoring.findings", "raised %s on %s: %s", _R, "it is a finding")
    yield CallSite(
        f"{a}monitoring.memory", "the counters of the last agent cannot be read: %s", _N, _RESTARTED
    )
    yield CallSite(
        *(f"{a}monitoring.memory", "the Xids that the last agent saw cannot be read: %s", _N),
        _RESTARTED,
    )
    yield CallSite(
        f"{a}orders",
        "refused: %s has term %d, the highest seen is %d",
        *(_F, "a controller with an old journal halts"),
        ("ControllerHalted",),
    )
    yield CallSite(
        f"{a}orders",
        "the controller has lost records that it had acknowledged; was its journal restored from a "
        "backup?",
        *(_X, "a controller with an old journal halts, or has recovered"),
    )
    yield CallSite(f"{a}orders", "ignored: %s", _N, _REFUSED_WIRE)
    yield CallSite(
        *(f"{a}orders", "ignored: %s of the controller: %s", _F, "an order cannot be read"),
        ("OrderRejected",),
    )
    yield CallSite(
        *(f"{a}peer_confirmation", "%s: cannot be asked: %s", _X),
        "the controller counts it as no evidence",
    )
    yield CallSite(
        *(f"{a}persistence.data_folder", "nothing will outlive this agent: %s", _F),
        "the agent's disk is broken",
        ("OutboxNotDurable",),
    )
    yield CallSite(
        *(f"{a}persistence.data_folder", "%s: %s; running without its lock", _F),
        "the agent's disk is broken",
        ("OutboxNotDurable",),
    )
    yield CallSite(
        *(f"{a}probes.accelerators.tool", "%s: process %d cannot be killed", _F),
        "a vendor's tool hangs",
        ("ProbeHang", "ProbeFailed"),
    )
    yield CallSite(
        f"{a}probes.accelerators.tool",
        "process %d is protected as the agent is: oom_score_adj: %s",
        *(_N, "a process may always make itself the first to be killed"),
    )
    yield CallSite(
        *(f"{a}probes.links.netlink", "%s", _R), "links are polled then; the node's notes say it"
    )
    yield CallSite(
        *(f"{a}sources.link_readings", "%s: %s", _R), "the node's notes list what it is blind to"
    )
    yield CallSite(
        *(f"{a}storage.job_storage", "job %s: %s: %s", _F, "steps in storage cannot be listed"),
        ("StorageFailing",),
    )
    again = "it is tried again; steps that go on not being stored are StorageFailing"
    yield CallSite(f"{a}storage.persister", "job %s: %s could not be stored: %s", _X, again)
    yield CallSite(f"{a}storage.publisher", "job %s: latest could not be moved: %s", _X, again)
    yield CallSite(
        *(f"{a}storage.worker_pool", "storage worker %d hangs in the kernel and does not die", _F),
        "the file system hangs",
        ("StorageFailing", "MountHang"),
    )
    yield CallSite(
        *(f"{a}supervise", "task %s failed: %s; it is tried again each second", _F),
        "a part of the agent is broken",
        ("TaskFailed", "ProbeFailed"),
    )
    yield from _uplink_of_agents()
    yield from _vault_of_agents()


def _uplink_of_agents() -> Iterator[CallSite]:
    a = f"{_A}."
    yield CallSite(
        *(f"{a}uplink", "the controller acts on nothing: %s", _F),
        "a controller with an old journal halts",
        ("ControllerHalted",),
    )
    yield CallSite(
        *(f"{a}uplink", "the controller did not hear within %g s that this agent ends", _X),
        "it is away, or the agent is cut off",
    )
    yield CallSite(f"{a}uplink", "ignored: ping of the controller: %s", _N, _REFUSED_WIRE)
    yield CallSite(f"{a}uplink", "ignored: word of a halt: %s", _N, _REFUSED_WIRE)
    yield CallSite(
        f"{a}uplink",
        "controller %s names %s as the active one, which is not among those of 'controller' in "
        "this agent's configuration: it is not asked; add it there",
        _N,
        "agents are configured with the addresses of all controllers",
    )
    yield CallSite(
        *(f"{a}uplink", "controller %s: %s", _X),
        "the controller shows the node as away, and doubts it",
    )


def _enrolment_of_agents() -> Iterator[CallSite]:
    a = f"{_A}.enrolment."
    yield CallSite(
        *(
            f"{a}renewer",
            "the certificate of this node was not renewed, and ends in %.1f days: %s",
            _X,
        ),
        "the controller is away, or has refused it, which is in its event list",
    )
    yield CallSite(f"{a}renewer", "%s: %s", _N, "a joined node has its certificate")
    yield CallSite(
        f"{_A}.commands.pod_enrolment",
        "this pod has no certificate yet, and asks again: %s",
        _N,
        "no agent of the field is a pod",
    )
    yield CallSite(
        *(f"{a}revocations", "the list of revoked certificates is read anew: %s", _N),
        _RESTARTED,
    )


def _vault_of_agents() -> Iterator[CallSite]:
    a = f"{_A}.vault."
    yield CallSite(
        *(f"{a}adoption", "replica of %s cannot be read: %s", _X), "it is given up, and made again"
    )
    yield CallSite(
        *(f"{a}adoption", "kept descriptor %s is given up: %s", _X),
        "an agent that was killed had not yet written down what it is",
    )
    yield CallSite(
        *(f"{a}replication.receiver", "job %s: memory for the replicas of one node only", _R),
        "the ring of replicas does without this node",
    )
    yield CallSite(
        *(f"{a}replication.replicator", "job %s: %s", _X),
        "a copy that does not match is sent again, and never restored",
    )
    yield CallSite(
        *(f"{a}replication.sender", "job %s: file of %s: %s", _X), "storage is away for a while"
    )
    yield CallSite(
        *(f"{a}replication.server", "bulk connection: %s", _X),
        "who is refused has no certificate of the fleet, or was cut off in a handshake",
    )
    yield CallSite(f"{a}replication.listener", "bulk listener: %s", _X, _DESCRIPTORS)
    yield CallSite(
        f"{a}replication.listener",
        "other users of this node are not told apart from agents at the bulk port: %s",
        _N,
        "the shipped unit allows to ask the kernel",
    )
    yield CallSite(
        *(f"{a}restore.source_search", "job %s: restore of %s from %s: %s", _X),
        "another source is taken, and the job's incident names what failed",
    )
    yield CallSite(
        f"{a}restore.source_search",
        "job %s: what rank %d saved under its names is lost; it gets what rank %d did",
        *(_X, "the job's log says so to its user"),
    )
    yield CallSite(
        *(f"{a}slot_allocation", "job %s: %d slots for a rank instead: %s", _X),
        "copies of two generations lie beside one another for a while",
    )
    yield CallSite(
        f"{a}snapshots.database",
        "what the next agent must know of jobs cannot be written: %s",
        *(_F, "the runtime folder is full"),
        ("JobsNotDurable",),
    )
    yield CallSite(
        *(f"{a}transfer.certificates", "no other node will take this one's certificate: %s", _F),
        "peers refuse its transfers",
        ("TransfersRefused",),
    )
    yield CallSite(
        *(f"{a}transfer.certificates", "keeping the certificate that was read before: %s", _X),
        "a certificate is being replaced",
    )
    yield CallSite(
        *(f"{a}transfer.remote_agent", "no transfer with %s: %s", _F),
        "peers refuse its transfers",
        ("TransfersRefused",),
    )


def _controller() -> Iterator[CallSite]:
    c = f"{_C}."
    yield CallSite(
        f"{c}webhooks.sender",
        "webhook %s: %s",
        _R,
        "its receiver is told the same, as io.everstep.not-sent",
    )
    yield CallSite(
        f"{c}webhooks.sender",
        "webhook %s: %s cannot be written: %s; after a restart some events come twice",
        _X,
        "a disk is full, and nothing is lost",
    )
    yield CallSite(
        *(f"{c}webhooks.sender", "webhook %s ended", _F),
        "the controller tells of it while it lasts",
        ("WebhookFailed",),
    )
    yield CallSite(
        *(f"{c}api.fleet.sessions", "%s: a %s of %d bytes is too long to send", _N),
        "no order of the field is so long",
    )
    yield CallSite(
        *(f"{c}api.secret_guard", "%d calls without the secret of this machine refused", _N),
        "the field has certificates",
    )
    broken = "a judge of ours fails only where it is broken"
    yield CallSite(f"{c}inspection.inspector", "a look at the ranks of %s broke", _N, broken)
    yield CallSite(f"{c}inspection.judge_process", "%s: %s", _N, broken)
    yield CallSite(f"{c}runtime.judge_failures", "%s failed again: %s", _N, broken)
    yield CallSite(
        *(f"{c}journal.group_commit", "the journal's thread died", _N),
        "the process ends, and the next one goes on",
    )
    yield CallSite(
        *(f"{c}journal.group_commit", "what is in the journal could not be carried out", _N),
        "the process ends, and the next one goes on",
    )
    yield CallSite(
        *(f"{c}watches.judge_runner", "%s failed", _F, "a judge over samples is broken"),
        ("JudgeFailed",),
    )
    yield from _kubernetes()
    yield from _enrolment()
    yield from _several_processes()
    yield CallSite(_C, "%s", _X, "it cannot start: the unit is shown as failed")
    yield CallSite(_C, "%s; this process ends, and the next one goes on", _N, "the core is broken")
    yield CallSite(
        *(_C, "cannot start with the journal %s: %s", _X), "it cannot start: its unit has failed"
    )
    undamaged = "no fault of the field damages the journal's bytes"
    yield CallSite(
        f"{c}journal.sound_rows",
        "the %s of %s at %s is left out of the history: its row is not as it was written",
        *(_N, undamaged),
    )
    yield CallSite(
        f"{c}api.admin.history_queries", "a row of the history is left out: %s", _N, undamaged
    )
    yield CallSite(
        _C,
        "the journal %s is damaged: %s; nothing of it was loaded or changed. %s; then run "
        "'everstep-controller recover', which rebuilds from the agents what that does not have",
        *(_N, undamaged),
    )
    yield CallSite(
        _C,
        "the journal %s cannot be read: %s; start the version that wrote it, or put back a copy "
        "and run 'everstep-controller recover', which rebuilds from the agents what the copy does "
        "not have",
        *(_N, undamaged),
    )
    yield CallSite(
        f"{c}runtime.cluster_file",
        "%s: cannot be written: %s; if the journal is lost as well, agents have to be told of the "
        "new cluster one by one: make the file, or set cluster_file",
        *(_N, "tmpfiles.d makes it for the controller"),
    )
    yield CallSite(
        f"{c}journal.postgres.lease_session",
        "the new leader of the database lacked %d commits of this controller, from event %d on, "
        "and has been given them again: its replication is not synchronous",
        *(_N, "the field's controller has its journal in a file"),
    )
    yield CallSite(
        *(f"{c}runtime.fold", "event %d (%s) made the core raise", _F, "the core is broken"),
        ("EventRejected",),
    )
    yield CallSite(
        *(f"{c}runtime.fold", "snapshot %d is left out: %s", _N),
        undamaged,
    )
    yield CallSite(
        *(f"{c}runtime.housekeeping", "retention: %s", _F, "its disk is full"), ("JournalFull",)
    )
    yield CallSite(
        *(f"{c}runtime.housekeeping", "history: %s", _F, "its disk is full"), ("JournalFull",)
    )
    yield CallSite(
        *(f"{c}runtime.housekeeping", "%s: %s", _F, "its disk is full"), ("JournalFull",)
    )
    yield CallSite(
        *(f"{c}runtime.runtime", "%s %s: %s", _R), "it is in the list of events, for people"
    )
    yield CallSite(
        *(f"{c}runtime.runtime", "%s; %d events refused", _F, "its disk is full"), ("JournalFull",)
    )
    yield CallSite(
        *(f"{c}watches.slow_monitor", "the judge of slow ranks failed", _N),
        broken,
    )


def _enrolment() -> Iterator[CallSite]:
    c = f"{_C}.enrolment."
    yield CallSite(f"{c}listener", "enrolment: %s", _X, _DESCRIPTORS)
    yield CallSite(
        *(f"{c}service", "no certificate for %s: %s", _N, "the key is where init has put it"),
    )
    yield CallSite(
        *(f"{c}kubernetes_pods", "a pod cannot enrol: %s", _N, "no agent of the field is a pod"),
    )
    yield CallSite(
        *(f"{c}own_certificate", "%s: the controller's certificate was not renewed: %s", _N),
        "its files are the controller's own",
    )


def _several_processes() -> Iterator[CallSite]:
    """Yield those of controllers that stand by, and of processes that accept streams."""
    c, file, none = f"{_C}.", "the field's controller has its journal in a file", "it has no doors"
    yield CallSite(
        f"{c}standby.standby",
        "%s is gone: no sign of it for %.1f s, and the database answers; this standby takes over",
        *(_N, file),
    )
    yield CallSite(f"{c}standby.standby", "this standby cannot follow: %s; it asks again", _N, file)
    yield CallSite(f"{c}doors.doors", "%s", _N, none)
    yield CallSite(
        f"{c}doors.doors", "a process that accepts agents ended (%d), and is started anew", _N, none
    )
    yield CallSite(f"{c}doors.link", "a message of %s could not be handled", _N, none)
    yield CallSite(f"{c}doors.link", "a stream broke", _N, none)
    yield CallSite(f"{c}doors.link", "a door is not understood and is started anew: %s", _N, none)


def _kubernetes() -> Iterator[CallSite]:
    k, failed = f"{_C}.drivers.kubernetes.", ("IsolationDriverFailed",)
    yield CallSite(
        f"{k}authority_map",
        "agents' pods do not get the authority, for the ConfigMap %s/%s is not written: %s",
        *(_N, "no agent of the field is a pod"),
    )
    yield CallSite(
        *(f"{k}nodes", "kubernetes: the nodes are not followed, and this is tried again: %s", _F),
        *("the API server is away", failed),
    )
    yield CallSite(
        *(f"{k}conditions", "kubernetes: a condition is not written, and tried again: %s", _F),
        *("the API server is away", failed),
    )
    yield CallSite(
        f"{k}nodes",
        "kubernetes: the API server is back at version %s after %s: its store was restored from a "
        "backup, and all nodes are read anew",
        *(_N, "no API server of the field is restored from a backup"),
    )
    yield CallSite(
        f"{k}conditions",
        "kubernetes: the condition of %s is not written, and tried again: %s",
        *(_N, "no API server of the field refuses one node"),
    )
    yield CallSite(
        *(f"{k}driver", "kubernetes: marks of %s are not as they should be: %s", _X),
        "the next reading does it",
    )
    yield CallSite(
        *(f"{k}evictions", "kubernetes: pods of %s are not evicted: %s", _X), "it is tried again"
    )
    yield CallSite(
        f"{k}evictions",
        "kubernetes: %d pods were not evicted from %s within %g s, and people should look after "
        "them: %s: %s",
        *(_R, "the condition of the node names them, where people of Kubernetes look"),
    )


def _trainer() -> Iterator[CallSite]:
    yield CallSite(
        _T,
        "snapshot memory cannot be pinned (CUDA error %d), so copies from the GPU are slower; see "
        "'ulimit -l' and the memory limit of the job",
        *(_N, "no machine of the field has a GPU"),
    )
    yield CallSite(
        *(f"{_T}.rank.sdk_log", "sentence", _X), "each sentence has a row of its own below"
    )
    yield CallSite(
        *(_T, "steps are not saved: %s", _X), "the job shows how many steps it skipped, and why"
    )
    yield CallSite(
        *(_T, "steps are saved again; %d were not", _X), "the job shows how many steps it skipped"
    )
    for words in (
        "the agent refused to attach again: %s",
        "attached to the agent again",
        "the agent does not answer; up to %.0f s are left for it",
        "the agent is lost (%s); training goes on without snapshots",
    ):
        yield CallSite(_T, words, _X, "its agent is away, and the node is shown so")
    for words in ("progress is not told: %s", "this is not reported: %s"):
        yield CallSite(_T, words, _N, "no script of the field tells what cannot be told")
    yield CallSite(
        *(_T, "no agent at %s; steps are not saved until it is back", _X),
        "its user is told; the node is shown as away",
    )
    yield CallSite(
        _T,
        "training waits for memory: the agent is making this process's slots, %.2f GiB each",
        *(_R, "its user is told why the first snapshot waits"),
    )
    yield CallSite(
        _T,
        "training waited %.1f s for the memory of its snapshots",
        *(_R, "its user is told why the first snapshot waited"),
    )
    yield CallSite(
        *(_T, "the agent is away; step %d was written to %s", _X),
        "its user is told; the node is shown as away",
    )
    yield CallSite(
        *(_T, "step %d could not be written without the agent: %s", _X),
        "its user is told; the job shows that its steps are not saved",
    )
    yield CallSite(
        *(_T, "no memory yet for the snapshots of this state: %s", _X),
        "its user is told that slots come later",
    )
    yield CallSite(
        *(_T, "%s starts from scratch: rank %d has none in the step", _X),
        "its user changed the state of a script",
    )


CALL_SITES = (*_agent(), *_enrolment_of_agents(), *_controller(), *_trainer())
