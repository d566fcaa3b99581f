"""Snapshots of a job as the command line would be told of them: of four ranks, or of 16,384."""

from everstep_proto.generated import admin_pb2

NOW_NS = 1_800_000_000_000_000_000
_SECOND = 1_000_000_000
_GIB = 1 << 30
MISSING = "step 130 is not complete: rank 2 has no verified copy of it yet"
CRASHED = "restored, and not yet 10 steps further"
NOT_SHARED = "the files of rank 3 are not there: /scratch/ckpt is not shared by node-1 and node-4"


def tier(
    name: str, parts: int, nodes: list[str], copies: int = 0, size_bytes: int = _GIB
) -> admin_pb2.TierLine:
    """Return the copies of a step in one tier."""
    return admin_pb2.TierLine(
        tier=name, copies=copies or parts, parts=parts, nodes=nodes, size_bytes=parts * size_bytes
    )


def step(
    number: int, state: str, tiers: list[admin_pb2.TierLine], **more: object
) -> admin_pb2.StepLine:
    """Return a step of four parts, made a second after the one before it."""
    parts = int(str(more.pop("parts", 4)))
    held = max(one.parts for one in tiers)
    return admin_pb2.StepLine(
        generation=2,
        step=number,
        ended_ns=NOW_NS - (131 - number) * _SECOND,
        state=state,
        parts=parts,
        parts_held=held,
        size_bytes=held * _GIB,
        tiers=tiers,
        **more,  # type: ignore[arg-type]
    )


NODES = ["node-1", "node-2", "node-3", "node-4"]

STORAGE = admin_pb2.StorageLine(
    path="/scratch/ckpt",
    every_steps=20,
    every_ns=600 * _SECOND,
    keep=2,
    step=120,
    has_step=True,
    generation=2,
    size_bytes=4 * _GIB,
    stored_ns=NOW_NS - 8 * _SECOND,
    pending=[140],
    failure=NOT_SHARED,
    failed_step=100,
)

CADENCE = admin_pb2.Cadence(
    every=2,
    reason="one step in 2 is snapshotted: a snapshot stalls 800.0 ms of a step of 3000 ms, and a "
    "fault is expected every 2.8 h",
    skipped=3,
    slots=3,
    slot_taken_p50_ns=6_300_000_000,
    slot_taken_p99_ns=7_450_000_000,
)

SNAPSHOTS = admin_pb2.Snapshots(
    job="demo",
    state="running",
    generation=2,
    step=130,
    has_step=True,
    restore_step=129,
    has_restore=True,
    restore_generation=2,
    restore_reason="step 129 is the newest that is complete in the memory of 4 nodes",
    not_newer=MISSING,
    recoverable_step=128,
    has_recoverable=True,
    recoverable_age_ns=3 * _SECOND,
    steps_behind=2,
    members=4,
    steps=[
        step(130, "partial", [tier("own memory", 3, ["node-1", "node-2", "node-4"])],
             reason=MISSING),
        step(129, "complete", [tier("own memory", 4, NODES), tier("peer memory", 3, NODES[:3])]),
        step(128, "complete", [tier("own memory", 4, NODES), tier("peer memory", 4, NODES)]),
        step(120, "probation", [tier("local disk", 4, NODES), tier("shared storage", 4, [])],
             reason=CRASHED),
    ],
    cadence=CADENCE,
    storage=STORAGE,
    bad_copies=1,
)  # fmt: skip


def large() -> admin_pb2.Snapshots:
    """Return the snapshots of a job of 16,384 ranks on 2,048 nodes, half of them with odd names."""
    nodes = [f"gpu-{n:05d}" for n in range(1, 4096, 2)]
    tiers = [tier("own memory", 16_384, nodes), tier("peer memory", 16_380, nodes)]
    steps = [step(1_000_000_204 - n, "complete", tiers, parts=16_384) for n in range(4)]
    return admin_pb2.Snapshots(
        job="llama-405b",
        state="running",
        generation=117,
        step=1_000_000_204,
        has_step=True,
        restore_step=1_000_000_204,
        has_restore=True,
        restore_generation=2,
        restore_reason="step 1000000204 is the newest that is complete in the memory of 2048 nodes",
        recoverable_step=1_000_000_203,
        has_recoverable=True,
        recoverable_age_ns=12 * _SECOND,
        steps=steps,
        cadence=admin_pb2.Cadence(every=1),
    )


def copies(step_wanted: int | None, node: str) -> list[admin_pb2.CopyLine]:
    """Return the copies in memory of step 129, and one of 128 on a node that is away."""
    found = [
        admin_pb2.CopyLine(
            generation=2, step=129, rank=rank, tier="own memory", node=name, size_bytes=_GIB,
            root_hash="0123456789abcdef" * 2, layout="fedcba9876543210" * 2,
        )
        for rank, name in enumerate(NODES)
    ]  # fmt: skip
    away = admin_pb2.CopyLine(
        generation=2, step=128, rank=0, tier="peer memory", node="node-4", size_bytes=_GIB,
        root_hash="00" * 16, unreachable=True,
    )  # fmt: skip
    return [
        copy
        for copy in [*found, away]
        if step_wanted in (None, copy.step) and node in ("", copy.node)
    ]


FORGOTTEN = admin_pb2.ForgetJobReply(
    job="demo",
    dropped=NODES[:3],
    dropped_bytes=9 * _GIB,
    away=["node-4"],
    away_bytes=3 * _GIB,
    stays="/scratch/ckpt",
)
