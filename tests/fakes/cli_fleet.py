"""A fleet of five nodes and a job, as the command line would be told of it."""

import math

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import DEFINITIONS
from everstep_proto.generated import admin_pb2
from fakes import cli_snapshots

NOW_NS = cli_snapshots.NOW_NS
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


def nodes() -> list[admin_pb2.NodeSummary]:
    """Return five nodes, one lost, one in repair, and one that is doubtful."""
    found = [_node(f"node-{n}") for n in range(1, 6)]
    found[0].groups.extend(["batch", "row-1"])
    found[1].state, found[1].connected = "lost", False
    found[1].reason = "node-1 and node-3 did not hear from it, and its stream is closed"
    found[1].claims.add(owner="automation", reason=found[1].reason, since_ns=NOW_NS - 9 * _SECOND)
    found[2].state, found[2].findings, found[2].reason = "repairing", 1, XID
    found[2].claims.add(owner="automation", reason=XID, since_ns=NOW_NS - 20 * _SECOND)
    found[3].doubt = "its agent does not answer, and its kernel accepts connects"
    found[3].doubted_ns = NOW_NS - 12 * _SECOND
    return found


SUMMARY = admin_pb2.FleetSummary(
    fleet_nodes=5,
    nodes=5,
    states=[
        admin_pb2.NodeCount(name="lost", nodes=1),
        admin_pb2.NodeCount(name="repairing", nodes=1),
        admin_pb2.NodeCount(name="healthy", nodes=3),
    ],
    claims=[admin_pb2.NodeCount(name="automation", nodes=2)],
    findings=[admin_pb2.NodeCount(name="XidFatal", nodes=1)],
    doubtful=1,
    troubled=3,
)
REFUSED_AGENT = admin_pb2.RefusedAgent(
    node="node-9",
    reason="node-9 (10.0.0.9) is of another cluster",
    since_ns=NOW_NS - 70 * _SECOND,
)

INCIDENT = admin_pb2.Incident(
    incident="demo-1",
    subjects=["demo"],
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


def _spent(category: Category, time_ns: int) -> admin_pb2.Category:
    return admin_pb2.Category(name=category.value, time_ns=time_ns, meaning=category.meaning)


LEDGER = admin_pb2.Ledger(
    job="demo",
    wall_ns=100 * _SECOND,
    categories=[
        _spent(Category.INIT_QUEUE, 2 * _SECOND),
        _spent(Category.PRODUCTIVE, 95 * _SECOND + 500_000_000),
        _spent(Category.INIT, 2_500_000_000),
    ],
    ettr_time=0.955,
    ettr_work=0.95,
    incidents=[INCIDENT],
    steps=400,
    budget_per_failure_s=0.5,
    failures=1,
    definitions=DEFINITIONS,
    published=[
        admin_pb2.PublishedRatio(
            name="Llama 3",
            value=0.955,
            definition="time spent on useful training / elapsed time: as ETTR_time.",
            source="The Llama 3 Herd of Models: effective training time",
        )
    ],
    mttf_s=100,
    stages=[admin_pb2.StageTime(stage="all", recoveries=1, p50_s=2.5, p99_s=2.5)],
    budget_burnt=5,
)

_DAY_OF_FLEET = admin_pb2.FleetPeriod(
    begin_ns=NOW_NS // (86_400 * _SECOND) * 86_400 * _SECOND,
    end_ns=NOW_NS,
    jobs=2,
    node_ns=36_000 * _SECOND,
    categories=[
        _spent(Category.PRODUCTIVE, 34_200 * _SECOND),
        _spent(Category.CAPACITY, 1_440 * _SECOND),
        _spent(Category.STALL, 360 * _SECOND),
    ],
    ettr_time=0.95,
    ettr_work=0.95,
    failures=3,
)
FLEET_LEDGER = admin_pb2.FleetLedger(
    by="day",
    periods=[_DAY_OF_FLEET],
    whole=_DAY_OF_FLEET,
    definitions=["ETTR_time = …", "ETTR_work = …"],
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
    storage=cli_snapshots.STORAGE,
    cadence=cli_snapshots.CADENCE,
)

# Two steps a second; one in the middle takes two seconds.
_ENDS = [NOW_NS + place * _SECOND // 2 + (place > 0) * 3 * _SECOND // 2 for place in range(-50, 51)]
STEPS = admin_pb2.Steps(
    job="demo",
    step=range(31, 131),
    start_ns=_ENDS[:-1],
    end_ns=_ENDS[1:],
    training_ns=[400_000_000] * 100,
)
SAMPLES = admin_pb2.Samples(
    node="node-2",
    newest_ns=NOW_NS,
    interval_ns=_SECOND,
    columns=[
        admin_pb2.SampleColumn(name="cpu_busy_ratio", values=[place / 20 for place in range(20)]),
        admin_pb2.SampleColumn(name="gpu_busy_ratio_mean", values=[math.nan] * 20),
        admin_pb2.SampleColumn(
            name="memory_available_bytes", values=[*[math.nan] * 5, *[2**33] * 15]
        ),
        admin_pb2.SampleColumn(name="load_1m", values=[1.0] * 20),
    ],
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


def injection(spec: str) -> admin_pb2.InjectionLine:
    """Return a fault that was ordered on purpose."""
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


def window() -> admin_pb2.MaintenanceWindow:
    """Return a window that moves one job and interrupts another."""
    begin_ns = NOW_NS + 7_200_000_000_000
    return admin_pb2.MaintenanceWindow(
        window="m-3", nodes=["node-1", "node-2"], begin_ns=begin_ns,
        end_ns=begin_ns + 3_600_000_000_000, state="planned", by="ann", reason="fans",
        ordered_ns=NOW_NS, drain_ns=begin_ns - 600_000_000_000, moves=["demo"],
        interrupts=["maintenance m-3 will interrupt other: it has no spare"],
    )  # fmt: skip


_HISTORY = {
    "incident": '{"job":"demo-17","cause":"node","message":"node-1 was lost","failure":true,'
    '"over_ns":5,"node":"node-1","device":"gpu/3","costs":{"inc.detect":60000000000}}',
    "job-hour": '{"totals":{"gap":1000000000,"productive":3600000000000},"nodes":8}',
    "node-day": '{"spent_ns":{"repairing":7200000000000},"isolated_ns":3600000000000,'
    '"findings":{"XidFatal":2},"incidents":1,"lost_ns":59000000000}',
    "fleet-day": '{"nodes":2,"spent_ns":{"healthy":172800000000000}}',
}
HISTORY = tuple(
    admin_pb2.HistoryRow(kind=kind, key="demo-17", begin_ns=86_400 * 10**9, at_ns=1, told=told)
    for kind, told in _HISTORY.items()
)
