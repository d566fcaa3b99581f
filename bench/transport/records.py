"""Record benchmark: reports, orders and frames to their bytes' form and back, against the limits.

Each value is what one message takes one way. Beside a record's message: ``plain`` is what protobuf
itself takes to be given the same values by keyword, and to hand each of them out again, with no
record and no bounds. Beside a frame: the standard library's json of a dictionary. A round times
each contender in turn, so that what disturbs the machine disturbs all.
"""

import argparse
import json
import operator
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from google.protobuf.message import Message
from harness.session import Benchmark, Part
from harness.table import Row, row

from everstep_common import frames, launcher_messages, orders, rank_messages
from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_common.rank_messages import Entry
from everstep_common.reports import (
    CheckFinished,
    DataRange,
    FindingCleared,
    FindingRaised,
    GenerationFinished,
    GenerationStopped,
    InjectionChanged,
    InjectionState,
    KernelMessage,
    LauncherJoined,
    LauncherLeft,
    PeerReport,
    Phase,
    PhaseReached,
    RankExited,
    RestartedHere,
    RollbackAsked,
    SampleBatch,
    StepsCompleted,
    Storage,
    StoredStep,
    TimeReply,
    VaultCopy,
)
from everstep_common.stamp import Stamp
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_from_wire, order_to_wire
from everstep_proto.record_codec import from_wire, to_wire
from everstep_proto.reports import record_of, report_of

MESSAGES = 1000
# A message of ordinary size, each way.
TARGET_US = 10.0
STAMP = Stamp("5c2c4a8e-6f0d-4d8a-9f6e-0a4b6f6f2f11", 8_123_456_789_012, 1_769_860_800_000_000_000)
STORED = StoredStep(
    generation=11,
    step=41_000,
    world_size=1024,
    manifest_hash="3c" * 16,
    size_bytes=2**40,
    skipped=(DataRange(100, 120),),
)
EXITED = RankExited(
    generation=12,
    rank=371,
    exit_code=1,
    signal=0,
    at_boot_ns=8_123_456_789_012,
    last_line="RuntimeError: CUDA error: an illegal memory access was encountered",
    kind="cuda",
    exception="RuntimeError: CUDA error: an illegal memory access was encountered",
    step=41_372,
)
JOINED = LauncherJoined(
    nodes_min=120,
    nodes_max=128,
    processes_per_node=8,
    reform=True,
    restarts_max=20,
    free_port=29_511,
    storage=Storage(path="/checkpoints/llama", every_steps=500, keep=3),
    snapshot_every_max=10,
    job_id="llama-70b-10427",
    program="python train.py --config llama.toml",
    token_sha256="5a" * 32,
    uid=1012,
    latest=STORED,
    stored_generation=11,
)
FINDING = Finding(
    component="gpu/0000:3b:00.0",
    condition="XidFatal",
    severity=Severity.FATAL,
    message="GPU 0000:3b:00.0 has fallen off the bus",
    evidence="NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    suggested_action=SuggestedAction.REBOOT_NODE,
    rule="xid-79",
)
REPORTS = (
    EXITED,
    JOINED,
    LauncherLeft("exited", by_user=False),
    PhaseReached(12, Phase.RESTORED, 8_123_456_789_012),
    RollbackAsked(generation=12, rank=3, at_boot_ns=5, step=41_300, reason="loss is not finite"),
    RestartedHere(
        after_generation=12,
        generation=13,
        restore_step=41_300,
        restore_generation=12,
        decided_boot_ns=5,
        at_boot_ns=6,
        reason="rank 3 was killed by signal 9, and the controller is away",
    ),
    GenerationStopped(12, 29_512, 8_123_456_789_012),
    GenerationFinished(12, 8_123_456_789_012),
    StepsCompleted(
        generation=12,
        first_step=41_370,
        end_boot_ns=tuple(range(10**12, 10**12 + 5)),
        stall_ns=(0,) * 5,
    ),
    FindingRaised(FINDING, STAMP),
    FindingCleared("gpu/0000:3b:00.0", "XidFatal", "the GPU was reset, and no Xid came since"),
    CheckFinished("node/gpu-0042/check/17", passed=True, message="every probe was read"),
    InjectionChanged("injection/7", InjectionState.ACTIVE, "Xid 79 is written to the kernel log"),
)
_ORDER: Mapping[str, Any] = {
    "id": "job/llama-70b-10427/generation/12/node/gpu-0042",
    "node": "",
    "reason": "rank 371 on gpu-0107 exited 1 (CUDA error), replaced by the spare gpu-0042",
}
_SOURCES = tuple(
    orders.ShardSource(
        node=f"gpu-{rank:04}",
        bulk_address=f"10.0.1.{rank}:7301",
        generation=11,
        rank=rank,
        step=41_300,
        root_hash="3c" * 16,
        size_bytes=2**33,
        layout="5a" * 16,
    )
    for rank in range(8)
)
START = orders.StartGeneration(
    **_ORDER,
    job="llama",
    generation=12,
    node_rank=13,
    node_count=128,
    first_rank=104,
    processes=8,
    world_size=1024,
    master_address="gpu-0001",
    master_port=29_511,
    restore_step=41_300,
    transfer_key=b"k" * 32,
    stored=STORED,
    job_id="llama-70b-10427",
)
ORDERS: tuple[orders.Order, ...] = (
    START,
    orders.StopGeneration(**_ORDER, job="llama", generation=11, grace_ns=5 * 10**9),
    orders.EndJob(**_ORDER, job="llama", succeeded=True, job_id="llama-70b-10427"),
    orders.ForgetJob(**_ORDER, job="llama"),
    orders.KeepJob(**_ORDER, job="llama"),
    orders.RefuseLauncher(**_ORDER, job="llama"),
    orders.HoldLauncher(**_ORDER, job="llama", job_id="llama-70b-10427"),
    orders.RunCheck(**_ORDER),
    orders.Inject(**_ORDER, spec="xid:79@0000:3b:00.0", duration_ns=10**10),
    orders.ClearInjection(**_ORDER, injection="injection/7"),
)
# Others on the agent's stream, one of each that comes often.
OTHERS = (
    VaultCopy(
        generation=12,
        rank=104,
        step=41_370,
        root_hash=b"r" * 16,
        size_bytes=2**33,
        layout=b"l" * 16,
    ),
    orders.VaultDirective(
        job="llama",
        generation=12,
        term=7,
        recoverable_step=41_360,
        replica_target="gpu-0043",
        replica_bulk_address="10.0.1.43:7301",
        replica_sources=("10.0.1.41:7301",),
        transfer_key=b"k" * 32,
        persist_steps=(41_000,),
        snapshot_every=10,
        snapshot_from=41_380,
    ),
    TimeReply(10**18, STAMP),
    PeerReport("gpu-0043", silent=True, silent_for_ns=3 * 10**9),
    KernelMessage(STAMP, 3, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
    SampleBatch(1, STAMP, 10**9, b"f" * 5 * 14 * 4),
)
# What a job's processes say, and hear, in each step or each start.
FRAMES = (
    EXITED,
    JOINED,
    rank_messages.Progress(41_370, 8_123_456_789_012, 1_200_000),
    rank_messages.Begin(41_370),
    rank_messages.Slot(1, 41_371),
    rank_messages.Commit(41_370, 1, 41_371, (), as_before=True),
    rank_messages.Commit(
        41_370,
        1,
        41_371,
        tuple(
            Entry(f"model.layers.{i}.mlp.weight", i * 2**20, 2**20, "BF16", (1024, 512))
            for i in range(4)
        ),
    ),
    launcher_messages.Start(
        generation=12,
        node_rank=13,
        node_count=128,
        first_rank=104,
        processes=8,
        world_size=1024,
        master_address="gpu-0001",
        master_port=29_511,
        restore_step=41_300,
        reason=_ORDER["reason"],
    ),
)
Work = Callable[[], object]


def report_works(report: Any) -> Iterator[tuple[str, Work, str]]:  # noqa: ANN401 - any report
    """Yield what is measured of a report: its name, its work, and what it is compared with."""
    record = record_of(report, "llama")
    yield from _plain_works(record)
    yield "to the wire", lambda: record_of(report, "llama"), "plain, to the wire"
    yield "from the wire", lambda: report_of(record), "plain, from the wire"
    journal, read = msgspec.json.Encoder(), msgspec.json.Decoder(type(report))
    line = journal.encode(report)
    yield "to the journal", lambda: journal.encode(report), ""
    yield "from the journal", lambda: read.decode(line), ""


def order_works(order: orders.Order) -> Iterator[tuple[str, Work, str]]:
    """Yield what is measured of an order."""
    message = order_to_wire(order, 7)
    yield from _plain_works(message)
    yield "to the wire", lambda: order_to_wire(order, 7), "plain, to the wire"
    yield "from the wire", lambda: order_from_wire(message), "plain, from the wire"


def record_works(record: Any) -> Iterator[tuple[str, Work, str]]:  # noqa: ANN401 - any record
    """Yield what is measured of another record on the stream."""
    kind: type[Message] = getattr(fleet_pb2, type(record).__name__)
    message = to_wire(record, kind)
    yield from _plain_works(message)
    yield "to the wire", lambda: to_wire(record, kind), "plain, to the wire"
    yield "from the wire", lambda: from_wire(type(record), message), "plain, from the wire"


def frame_works(message: Any) -> Iterator[tuple[str, Work, str]]:  # noqa: ANN401 - any message
    """Yield what is measured of a message between a job's processes and the agent."""
    body = frames.encode(message)[frames.HEADER_BYTES :]
    plain, known = json.loads(body), {type(message).__name__: type(message)}
    yield "json alone, dumps", lambda: json.dumps(plain, separators=(",", ":")).encode(), ""
    yield "json alone, loads", lambda: json.loads(body), ""
    yield "frame written", lambda: frames.encode(message), "json alone, dumps"
    yield "frame read", lambda: frames.decode(body, known), "json alone, loads"


def _plain_works(message: Message) -> Iterator[tuple[str, Work, str]]:
    kind: Any = type(message)
    values, read = _values(message), _plain_reader(message)
    yield "plain, to the wire", lambda: kind(**values), ""
    yield "plain, from the wire", lambda: read(message), ""


def _values(message: Message) -> dict[str, Any]:
    """Return what the constructor of a message takes to make it."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        else:
            one = map(_values, value) if field.is_repeated else _values(value)
            found[field.name] = list(one) if field.is_repeated else one
    return found


def _plain_reader(message: Message) -> Callable[[Message], object]:
    """Return what hands out the values of such a message, also those that are not set."""
    flat, inner = list[str](), dict[str, Callable[[Message], object]]()
    for field in message.DESCRIPTOR.fields:
        if field.message_type is None or field.is_repeated:
            flat.append(field.name)
        elif message.HasField(field.name):
            inner[field.name] = _plain_reader(getattr(message, field.name))
    values = operator.attrgetter(*flat) if flat else _no_values
    if not inner:
        return values
    return lambda one: (values(one), [read(getattr(one, name)) for name, read in inner.items()])


def _no_values(_: Message) -> object:
    return ()


def rows(what: str, works: Iterator[tuple[str, Work, str]], repeats: int) -> Iterator[Row]:
    """Yield what one message costs, each contender in each round."""
    contenders = list(works)
    spent: dict[str, list[float]] = {name: [] for name, _, _ in contenders}
    for _ in range(repeats + 1):
        for name, work, _ in contenders:
            spent[name].append(_timed(work))
    found = {name: row(f"{what}: {name}", samples[1:], "µs") for name, samples in spent.items()}
    for name, _, against in contenders:
        most = TARGET_US if name in _JUDGED else None
        yield row(f"{what}: {name}", spent[name][1:], "µs", found.get(against), most)


_JUDGED = ("to the wire", "from the wire", "frame written", "frame read")


def _timed(work: Work) -> float:
    began = time.process_time()
    for _ in range(MESSAGES):
        work()
    return (time.process_time() - began) / MESSAGES * 1e6


def _all_works() -> Iterator[tuple[str, Iterator[tuple[str, Work, str]]]]:
    for report in REPORTS:
        yield type(report).__name__, report_works(report)
    for order in ORDERS:
        yield type(order).__name__, order_works(order)
    for other in OTHERS:
        yield type(other).__name__, record_works(other)
    for frame in FRAMES:
        yield type(frame).__name__, frame_works(frame)
    yield "StartGeneration with 8 sources", order_works(replace(START, sources=_SOURCES))


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what each record costs."""
    for name, works in _all_works():
        yield from rows(name, works, options.repeats)


BENCHMARK = Benchmark(about=__doc__ or "", parts=[Part("records", 10.0, measure)], repeats=5)
