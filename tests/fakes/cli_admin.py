"""A fleet of five nodes and a job, as the command line would be told of it."""

from collections.abc import Iterator
from contextlib import contextmanager

from everstep_cli.admin import AdminError, UnknownNameError
from everstep_cli.connection import Connection
from everstep_proto.generated import admin_pb2

NOW_NS = 1_800_000_000_000_000_000
_SECOND = 1_000_000_000
XID = "Xid 79: GPU has fallen off the bus."

FINDING = admin_pb2.FindingLine(
    node="node-3",
    component="gpu/0000:3b:00.0",
    condition="XidFatal",
    severity="fatal",
    message=XID,
    evidence="NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
    suggested_action="reboot_node",
    rule="xid-table-1",
    since_ns=NOW_NS - 20 * _SECOND,
    injected=True,
)


def _node(name: str) -> admin_pb2.NodeSummary:
    return admin_pb2.NodeSummary(
        node=name,
        state="healthy",
        connected=True,
        jobs=["demo"],
        cpu_count=2,
        memory_bytes=24 << 30,
        accelerators="none",
        reason="its checks passed",
        since_ns=NOW_NS - 200 * _SECOND,
    )


def _nodes() -> list[admin_pb2.NodeSummary]:
    nodes = [_node(f"node-{n}") for n in range(1, 6)]
    nodes[1].state, nodes[1].connected = "lost", False
    nodes[1].reason = "node-1 and node-3 did not hear from it, and its stream is closed"
    nodes[1].claims.add(owner="automation", reason=nodes[1].reason, since_ns=NOW_NS - 9 * _SECOND)
    nodes[2].state, nodes[2].findings, nodes[2].reason = "repairing", 1, XID
    nodes[2].claims.add(owner="automation", reason=XID, since_ns=NOW_NS - 20 * _SECOND)
    return nodes


INCIDENT = admin_pb2.Incident(
    incident="demo-1",
    onset_ns=NOW_NS - 60 * _SECOND,
    over_ns=NOW_NS - 58 * _SECOND,
    cause="process",
    node="node-2",
    message="rank 1 on node-2 was killed by signal 9",
    plan="in_place",
    step_before=120,
    step_restored=120,
    has_restored=True,
    costs=[
        admin_pb2.Category(name="inc.detect", time_ns=12_000_000),
        admin_pb2.Category(name="inc.drain", time_ns=180_000_000),
        admin_pb2.Category(name="inc.init", time_ns=1_400_000_000),
    ],
)

LEDGER = admin_pb2.Ledger(
    job="demo",
    wall_ns=100 * _SECOND,
    categories=[
        admin_pb2.Category(name="init.queue", time_ns=2 * _SECOND),
        admin_pb2.Category(name="productive", time_ns=95 * _SECOND + 500_000_000),
        admin_pb2.Category(name="inc.init", time_ns=2_500_000_000),
    ],
    ettr_time=0.955,
    ettr_work=0.95,
    incidents=[INCIDENT],
    steps=400,
    budget_per_failure_s=0.5,
)

JOB = admin_pb2.JobDetail(
    summary=admin_pb2.JobSummary(
        job="demo",
        state="running",
        generation=2,
        step=130,
        has_step=True,
        members=["node-1", "node-2", "node-3", "node-4"],
        spares=["node-5"],
        ettr_time=0.955,
        reason="all ranks make steps",
        uid=1000,
    ),
    nodes_min=3,
    nodes_max=4,
    processes_per_node=1,
    recoverable_step=129,
    has_recoverable=True,
    restarts=1,
    incidents=[INCIDENT],
)

EVENTS = [
    admin_pb2.Event(
        id=1, at_ns=NOW_NS - 60 * _SECOND, reason="RankExited", subject="demo",
        message="rank 1 on node-2 was killed by signal 9",
    ),
    admin_pb2.Event(
        id=2, at_ns=NOW_NS - 9 * _SECOND, reason="NodeLost", subject="node-2",
        message="node-1 and node-3 did not hear from it, and its stream is closed",
    ),
]  # fmt: skip


def _injection(spec: str) -> admin_pb2.InjectionLine:
    return admin_pb2.InjectionLine(
        injection="node-1/inject/1",
        spec=spec,
        state="active",
        message=f"{spec} is injected for 60 s",
        operator="ann",
        reason="drill",
        ordered_ns=NOW_NS - 9 * _SECOND,
        duration_ns=60 * _SECOND,
    )


class FakeAdmin:
    """Answers from the fleet above, and keeps what it was told to change."""

    def __init__(self, trouble: AdminError | None = None) -> None:
        self.told: list[tuple[str, ...]] = []
        self.connections: list[Connection] = []
        self._trouble = trouble

    @contextmanager
    def connect(self, connection: Connection) -> Iterator["FakeAdmin"]:
        """Stand where everstep_cli.grpc_admin.connect stands."""
        self.connections.append(connection)
        yield self

    def nodes(self) -> admin_pb2.ListNodesReply:
        self._fail()
        return admin_pb2.ListNodesReply(nodes=_nodes())

    def node(self, name: str) -> admin_pb2.NodeDetail:
        self._fail()
        for node in _nodes():
            if node.node == name:
                return admin_pb2.NodeDetail(
                    summary=node,
                    agent_version="0.1.0",
                    boot_id="0f5c",
                    kernel="6.1.0",
                    cpu_model="AMD EPYC",
                    disks=[
                        admin_pb2.DiskLine(
                            device="/dev/vda1", mount="/", filesystem="ext4",
                            size_bytes=64 << 30, free_bytes=20 << 30,
                        )
                    ],
                    interfaces=[
                        admin_pb2.InterfaceLine(
                            name="eth0", kind="ethernet", up=True,
                            speed_bits_per_s=25_000_000_000,
                        )
                    ],
                    notes=["NVIDIA driver library not found"],
                    findings=[FINDING] if name == FINDING.node else [],
                    clock_uncertainty_ns=120_000,
                    kernel_messages=[
                        "2026-01-31 12:00:00 error: nvme0n1: I/O Cmd(0x2) [sector 8], timeout"
                    ],
                )  # fmt: skip
        raise UnknownNameError(f"no node named {name!r}; did you mean 'node-1'?")

    def findings(self, node: str) -> admin_pb2.ListFindingsReply:
        self._fail()
        return admin_pb2.ListFindingsReply(findings=[] if node == "node-1" else [FINDING])

    def why(self, name: str) -> admin_pb2.WhyReply:
        self._fail()
        return admin_pb2.WhyReply(
            kind="node", state="lost", answer=EVENTS[1].message, decisions=EVENTS
        )

    def events(self, subject: str, limit: int, follow: bool) -> Iterator[admin_pb2.Event]:
        self._fail()
        yield from [e for e in EVENTS if subject in ("", e.subject)][-limit:]

    def jobs(self) -> admin_pb2.ListJobsReply:
        self._fail()
        return admin_pb2.ListJobsReply(jobs=[JOB.summary])

    def job(self, name: str) -> admin_pb2.JobDetail:
        self._fail()
        if name != "demo":
            raise UnknownNameError(f"no job named {name!r}; did you mean 'demo'?")
        return JOB

    def ledger(self, job: str) -> admin_pb2.Ledger:
        self._fail()
        return LEDGER

    def controller(self) -> admin_pb2.ControllerDetail:
        self._fail()
        return admin_pb2.ControllerDetail(
            version="0.1.0", term=3, mode="enforce", journal_events=812,
            started_ns=NOW_NS - 300 * _SECOND,
        )  # fmt: skip

    def isolate(self, node: str, reason: str) -> admin_pb2.NodeDetail:
        self.told.append(("isolate", node, reason))
        detail = self.node(node)
        detail.summary.claims.add(owner="operator", reason=reason)
        return detail

    def release(self, node: str, reason: str) -> admin_pb2.NodeDetail:
        self.told.append(("release", node, reason))
        return self.node(node)

    def pause(self, subject: str, reason: str) -> admin_pb2.AutomationReply:
        self.told.append(("pause", subject, reason))
        return admin_pb2.AutomationReply(paused=[subject or "fleet"])

    def resume(self, subject: str) -> admin_pb2.AutomationReply:
        self.told.append(("resume", subject))
        return admin_pb2.AutomationReply()

    def inject(self, node: str, spec: str, seconds: float, reason: str) -> admin_pb2.InjectionLine:
        self.told.append(("inject", node, spec, f"{seconds:g}", reason))
        self.node(node)
        line = _injection(spec)
        if spec.startswith("xyz"):
            line.state, line.message = "refused", "there is no injection 'xyz'"
        return line

    def clear_injections(self, node: str, injection: str) -> admin_pb2.InjectionsReply:
        self.told.append(("clear", node, injection))
        return admin_pb2.InjectionsReply()

    def injections(self, node: str) -> admin_pb2.InjectionsReply:
        self.node(node)
        return admin_pb2.InjectionsReply(injections=[_injection("xid:79")])

    def _fail(self) -> None:
        if self._trouble is not None:
            raise self._trouble
