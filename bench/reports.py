"""Report benchmark: record to bytes and back, against hand-written conversion and the limits.

Each value is what one message takes, both ways together unless it says otherwise. ``by hand`` is
the code that the codec replaced: each field named once for each direction, with the checks of then.
The limits are what nobody can avoid: protobuf's own SerializeToString and FromString of
the same message, json for frames, msgspec for the journal. A round times each contender in turn, so
that what disturbs the machine disturbs all of them.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from table import Row, arguments, row, show

from everstep_common import frames
from everstep_common.reports import (
    DataRange,
    LauncherJoined,
    RankExited,
    Storage,
    StoredStep,
)
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError
from everstep_proto.reports import record_of, report_of

MESSAGES = 2000
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
    latest=StoredStep(
        generation=11,
        step=41_000,
        world_size=1024,
        manifest_hash="3c" * 16,
        size_bytes=2**40,
        skipped=(DataRange(100, 120),),
    ),
    stored_generation=11,
)
Work = Callable[[], object]


def contenders(report: RankExited | LauncherJoined) -> Mapping[str, Work]:
    """Return what is measured of one report: names, and the work of one message."""
    record = record_of(report, "llama")
    data, parse = record.SerializeToString(), fleet_pb2.Record.FromString
    kind = type(report)
    body = frames.encode(report)[frames.HEADER_BYTES :]
    plain, known = json.loads(body), {kind.__name__: kind}
    journal, read = msgspec.json.Encoder(), msgspec.json.Decoder(kind)
    row_of = journal.encode(report)
    to_hand, from_hand = _BY_HAND[kind]
    return {
        "protobuf alone": lambda: (record.SerializeToString(), parse(data)),
        "by hand": lambda: (to_hand(report).SerializeToString(), from_hand(parse(data))),
        "codec": lambda: (record_of(report, "llama").SerializeToString(), report_of(parse(data))),
        "codec, to the wire": lambda: record_of(report, "llama"),
        "by hand, to the wire": lambda: to_hand(report),
        "codec, from the wire": lambda: report_of(record),
        "by hand, from the wire": lambda: from_hand(record),
        "json alone": lambda: (json.dumps(plain, separators=(",", ":")), json.loads(body)),
        "frame": lambda: (frames.encode(report), frames.decode(body, known)),
        "journal (msgspec)": lambda: (journal.encode(report), read.decode(row_of)),
    }


# --- by hand, as it was --------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_TEXT_MAX = 4096


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise WireError(f"job {value!r:.80} is not a name")
    return value


def _exited_to(report: RankExited) -> fleet_pb2.Record:
    body = fleet_pb2.RankExited(
        generation=report.generation,
        rank=report.rank,
        exit_code=report.exit_code,
        signal=report.signal,
        at_boot_ns=report.at_boot_ns,
        last_line=report.last_line[:500],
        kind=report.kind[:40],
        core_file=report.core_file[:_TEXT_MAX],
        exception=report.exception[:500],
        core_dumped=report.core_dumped,
        step=report.step,
    )
    return fleet_pb2.Record(job="llama", rank_exited=body)


def _exited_from(record: fleet_pb2.Record) -> tuple[str, RankExited]:
    wire = record.rank_exited
    return _name(record.job), RankExited(
        generation=wire.generation,
        rank=wire.rank,
        exit_code=wire.exit_code,
        signal=wire.signal,
        last_line=wire.last_line[:_TEXT_MAX],
        at_boot_ns=wire.at_boot_ns,
        kind=wire.kind[:_TEXT_MAX],
        exception=wire.exception[:_TEXT_MAX],
        core_dumped=wire.core_dumped,
        step=wire.step if wire.HasField("step") else None,
        core_file=wire.core_file[:_TEXT_MAX],
    )


def _joined_to(report: LauncherJoined) -> fleet_pb2.Record:
    latest, storage = report.latest, report.storage
    body = fleet_pb2.LauncherJoined(
        token_sha256=report.token_sha256,
        uid=report.uid,
        nodes_min=report.nodes_min,
        nodes_max=report.nodes_max,
        processes_per_node=report.processes_per_node,
        reform=report.reform,
        restarts_max=report.restarts_max,
        free_port=report.free_port,
        running_generation=report.running_generation,
        snapshot_every_min=max(0, report.snapshot_every_min),
        snapshot_every_max=max(0, report.snapshot_every_max),
        storage=None
        if storage is None
        else fleet_pb2.Storage(
            path=storage.path[:_TEXT_MAX],
            every_steps=max(0, storage.every_steps),
            every_ns=max(0, storage.every_ns),
            keep=min(10_000, max(2, storage.keep)),
        ),
        latest=None
        if latest is None
        else fleet_pb2.StoredStep(
            generation=latest.generation,
            step=latest.step,
            world_size=latest.world_size,
            manifest_hash=bytes.fromhex(latest.manifest_hash),
            size_bytes=latest.size_bytes,
            skipped=[fleet_pb2.DataRange(first=one.first, last=one.last) for one in latest.skipped],
        ),
        stored_generation=report.stored_generation,
        fresh=report.fresh,
        skipped=[fleet_pb2.DataRange(first=one.first, last=one.last) for one in report.skipped],
        job_id=report.job_id,
        replica_nodes=report.replica_nodes,
        program=report.program[:200],
    )
    return fleet_pb2.Record(job="llama", launcher_joined=body)


def _joined_from(record: fleet_pb2.Record) -> tuple[str, LauncherJoined]:
    wire = record.launcher_joined
    if not 1 <= wire.nodes_min <= wire.nodes_max or not wire.processes_per_node:
        raise WireError(f"job {record.job!r:.80} wants {wire.nodes_min}:{wire.nodes_max} nodes")
    if wire.nodes_min % wire.replica_nodes or wire.nodes_max % wire.replica_nodes:
        raise WireError(f"no multiples of {wire.replica_nodes}")
    return _name(record.job), LauncherJoined(
        uid=wire.uid,
        token_sha256=wire.token_sha256,
        nodes_min=wire.nodes_min,
        nodes_max=wire.nodes_max,
        processes_per_node=wire.processes_per_node,
        reform=wire.reform,
        restarts_max=wire.restarts_max,
        free_port=wire.free_port,
        running_generation=wire.running_generation,
        storage=_storage(wire.storage) if wire.HasField("storage") else None,
        latest=_stored(wire.latest) if wire.HasField("latest") else None,
        snapshot_every_min=wire.snapshot_every_min,
        snapshot_every_max=wire.snapshot_every_max,
        stored_generation=wire.stored_generation,
        fresh=wire.fresh,
        skipped=_ranges(wire.skipped),
        job_id=wire.job_id,
        replica_nodes=wire.replica_nodes,
        program=wire.program[:200],
    )


def _storage(wire: fleet_pb2.Storage) -> Storage:
    if not wire.path or wire.every_ns < 0:
        raise WireError(f"storage {wire.path!r:.80} is no place and time")
    return Storage(
        path=wire.path[:_TEXT_MAX],
        every_steps=wire.every_steps,
        every_ns=wire.every_ns,
        keep=wire.keep,
    )


def _stored(wire: fleet_pb2.StoredStep) -> StoredStep:
    if not wire.world_size or not wire.manifest_hash:
        raise WireError(f"stored step {wire.step} without its ranks or its hash")
    return StoredStep(
        generation=wire.generation,
        step=wire.step,
        world_size=wire.world_size,
        manifest_hash=wire.manifest_hash.hex(),
        size_bytes=wire.size_bytes,
        skipped=_ranges(wire.skipped),
    )


def _ranges(wire: Sequence[fleet_pb2.DataRange]) -> tuple[DataRange, ...]:
    found = tuple(DataRange(one.first, one.last) for one in wire)
    if any(one.first > one.last for one in found):
        raise WireError("data that is left out and is no range")
    return found[-1000:]


_BY_HAND: Mapping[type, tuple[Callable[..., fleet_pb2.Record], Callable[..., object]]] = {
    RankExited: (_exited_to, _exited_from),
    LauncherJoined: (_joined_to, _joined_from),
}
# What each contender is compared with.
_AGAINST = {
    "codec": "by hand",
    "by hand": "protobuf alone",
    "codec, to the wire": "by hand, to the wire",
    "codec, from the wire": "by hand, from the wire",
    "frame": "json alone",
    "journal (msgspec)": "json alone",
}


def rows(report: RankExited | LauncherJoined, repeats: int) -> Iterator[Row]:
    """Yield what one report costs, each contender in each round."""
    works = contenders(report)
    spent: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            spent[name].append(_timed(work))
    what, found = type(report).__name__, dict[str, Row]()
    for name, samples in spent.items():
        found[name] = row(f"{what}: {name}", samples[1:], "µs")
    for name, samples in spent.items():
        against = found.get(_AGAINST.get(name, ""))
        yield row(f"{what}: {name}", samples[1:], "µs", against)


def _timed(work: Work) -> float:
    began = time.process_time()
    for _ in range(MESSAGES):
        work()
    return (time.process_time() - began) / MESSAGES * 1e6


def main() -> None:
    """Print the table."""
    parsed = arguments(__doc__ or "").parse_args()
    show([*rows(EXITED, parsed.repeats), *rows(JOINED, parsed.repeats)], parsed.json)


if __name__ == "__main__":
    main()
