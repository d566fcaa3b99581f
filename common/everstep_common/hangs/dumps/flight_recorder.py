"""Flight Recorder dumps: what torch's recorder wrote of one rank, reduced to a report. Pure.

Schema 2.3 (torch 2.4) to 2.10 (torch 2.13), of NCCL and gloo, as pickle or JSON. What differs:
numbers are text in JSON and -1 or None where there is none; gloo's operations stay "scheduled" and
are "retired" when they are done; its default group is '' in pg_config and '0' in the operations,
its other groups are not in there; it records no point-to-point operations, but counts them in
pg_status. That counts groups by a number of the process, which the operations lead to a group.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from everstep_common.hangs.dumps.coalesced import WorkCounts, is_counted_apart, without_batches
from everstep_common.hangs.dumps.dump_entries import DumpEntry, dump_entry, number_in, text_in
from everstep_common.hangs.dumps.dump_groups import (
    DEFAULT_GROUP,
    GroupKey,
    configured_groups,
    creation_order,
    work_counts,
)
from everstep_common.hangs.dumps.dump_values import DumpError
from everstep_common.hangs.dumps.exit_dumps import before_giving_up
from everstep_common.hangs.dumps.noted_calls import NotedCalls
from everstep_common.hangs.dumps.program_divergence import Called, departure_of
from everstep_common.hangs.reports.members import are_named, members_text, unnamed_members
from everstep_common.hangs.reports.rank_report import (
    GROUPS_MAX,
    PENDING_MAX,
    Blind,
    EvidenceSource,
    GroupReport,
    Library,
    Operation,
    OperationState,
    RankHangReport,
)
from everstep_common.hangs.reports.recent_collectives import Sample, recent_of

ENTRIES_MAX = 50_000
# Files of torch itself say nothing about where in the program an operation was called.
_OF_TORCH = ("/torch/", "/functorch/")
_FRAMES = 3
# Of one collective: an hour.
_DURATION_MAX_MS = 3.6e6
_STATES = {state.value: state for state in OperationState}
NOTHING_NOTED = NotedCalls()


def recent_of_dump(dump: Mapping[str, object], rank: int, *, world_size: int = 0) -> RankHangReport:
    """Return when the rank that a dump is said to be of enqueued its newest collectives.

    Raises DumpError where the dump is another rank's, or is none.
    """
    reading = _DumpReading(dump, rank, world_size)
    groups, left_out = reading.recent_groups()
    return RankHangReport(
        rank=rank,
        world_size=max(world_size, reading.world_size()),
        schema=_word(dump.get("version")),
        backend=reading.entries[-1].backend[:40] if reading.entries else "",
        groups=groups,
        groups_left_out=left_out,
        blind=tuple(reading.blind()),
    )


def report_of_dump(
    dump: Mapping[str, object],
    rank: int,
    *,
    world_size: int = 0,
    noted: NotedCalls = NOTHING_NOTED,
) -> RankHangReport:
    """Return the report of the rank that a dump is said to be of.

    ``noted`` has what that rank has noted itself.

    Raises DumpError where the dump is another rank's, or is none.
    """
    before, process = before_giving_up(dump)
    reading = _DumpReading(before, rank, world_size)
    groups, left_out = reading.groups()
    # Also of what it called when the others had given up.
    called = reading.entries if before is dump else _DumpReading(dump, rank, world_size).entries
    return RankHangReport(
        rank=rank,
        world_size=max(world_size, reading.world_size()),
        schema=_word(before.get("version")),
        backend=reading.entries[-1].backend[:40] if reading.entries else "",
        libraries=tuple(_libraries(before)),
        groups=groups,
        groups_left_out=left_out,
        timeout_ms=min((one for one in map(_timeout_ms, reading.entries) if one), default=0),
        departure=departure_of(_calls(called, noted))[:500],
        process=process,
        blind=tuple(reading.blind()),
    )


class _DumpReading:
    """One dump: its operations, its groups, and which belongs to which."""

    def __init__(self, dump: Mapping[str, object], rank: int, world_size: int) -> None:
        self.rank = rank
        self.malformed = 0
        self.configured = configured_groups(dump.get("pg_config"), world_size)
        self.status = work_counts(dump.get("pg_status"))
        entries = sorted(self._read_entries(dump.get("entries")), key=lambda one: one.record)
        self.entries = without_batches(entries, _word(dump.get("version")), self.status)
        self.names = self._names_bynumber_in()
        self._check_identity()

    def world_size(self) -> int:
        """Return the number of ranks, as the default group tells; 0 where it does not."""
        sizes = [len(m) for d, m in self.configured.values() if d == DEFAULT_GROUP]
        return max(sizes, default=0)

    def blind(self) -> Iterator[Blind]:
        """Yield what of the dump could not be used."""
        if self.malformed:
            told = f"{self.malformed} of its operations are malformed and left out"
            yield Blind(EvidenceSource.FLIGHT_RECORDER, told)
        if not self.entries and not any(one.enqueued for one in self.status.values()):
            yield Blind(EvidenceSource.FLIGHT_RECORDER, "it has recorded no operation at all")

    def groups(self) -> tuple[tuple[GroupReport, ...], int]:
        """Return the groups of more than one member, and how many there was no room for."""
        found = [group for _, group in self._named_groups()]
        found.sort(key=lambda one: (not one.pending_count, not one.enqueued))
        return tuple(found[:GROUPS_MAX]), max(0, len(found) - GROUPS_MAX)

    def recent_groups(self) -> tuple[tuple[GroupReport, ...], int]:
        """Return the same with their newest collectives, and without what waits in them."""
        samples = {name: _samples(entries) for name, entries in self._entries_by_name().items()}
        recent = recent_of(samples)
        found = [
            replace(group, pending=(), pending_count=0, done="", recent=recent.get(name))
            for name, group in self._named_groups()
        ]
        found.sort(key=lambda one: (one.recent is None, not one.enqueued))
        return tuple(found[:GROUPS_MAX]), max(0, len(found) - GROUPS_MAX)

    def _entries_by_name(self) -> dict[str, list[DumpEntry]]:
        entries: dict[str, list[DumpEntry]] = {}
        for entry in self.entries:
            entries.setdefault(self._config_name(entry), []).append(entry)
        return entries

    def _named_groups(self) -> Iterator[tuple[str, GroupReport]]:
        """Yield the groups of more than one member, with their names in this process."""
        entries = self._entries_by_name()
        numbers = {name: number for number, name in self.names.items()}
        ordinals: dict[GroupKey, int] = {}
        for name in sorted({*self.configured, *entries}, key=creation_order):
            key = self.configured.get(name) or (entries[name][0].description, ())
            ordinal = 0
            if key[1]:
                ordinal = ordinals[key] = ordinals.get(key, -1) + 1
            if len(key[1]) != 1:
                status = self.status.get(numbers[name]) if name in numbers else None
                yield name, self._group(name, key, ordinal, entries.get(name, []), status)

    def _group(
        self,
        name: str,
        key: GroupKey,
        ordinal: int,
        entries: list[DumpEntry],
        status: WorkCounts | None,
    ) -> GroupReport:
        description, members = key
        has_p2p = is_counted_apart(entries)
        by_gloo = any(one.backend == "gloo" for one in entries)
        trusted = None if has_p2p or by_gloo else status
        pending = [one for one in entries if not _is_done(one, trusted)]
        done = [one for one in entries if not one.is_p2p and _is_done(one, trusted)]
        enqueued, completed = _frontier(entries, pending, trusted)
        has_newest = bool(done) and done[-1].collective == completed
        p2p: tuple[int | None, int | None] = (None, None)
        if has_p2p:
            p2p = _p2p_frontier(entries, pending)
        elif by_gloo and status and enqueued and status.enqueued > enqueued:
            p2p = (status.enqueued - enqueued, None)
        return GroupReport(
            description=description[:200],
            members=members_text(members) if members else unnamed_members(name),
            size=len(members),
            enqueued=enqueued,
            completed=completed,
            p2p_enqueued=p2p[0],
            p2p_completed=p2p[1],
            pending_count=len(pending),
            pending=tuple(_operation(one, members) for one in _first_of_each(pending)),
            done=f"{done[-1].name} {_shapes(done[-1].raw)}"[:200] if has_newest else "",
            ordinal=ordinal,
        )

    def _read_entries(self, values: object) -> Iterator[DumpEntry]:
        if not isinstance(values, list):
            raise DumpError("its entries are no list")
        if len(values) > ENTRIES_MAX:
            raise DumpError(f"it has {len(values):,} operations, more than {ENTRIES_MAX:,}")
        for value in values:
            entry = dump_entry(value)
            if entry is None:
                self.malformed += 1
            else:
                yield entry

    def _config_name(self, entry: DumpEntry) -> str:
        """Return the name of an operation's group in pg_config; its own if it is not in there."""
        if entry.group_name not in self.configured and entry.description == DEFAULT_GROUP:
            return "" if "" in self.configured else entry.group_name
        return entry.group_name

    def _names_bynumber_in(self) -> dict[int, str]:
        """Return the groups by the number that pg_status counts them by.

        Operations tell it of their own group. Both are numbered as they were made, so where there
        are as many of one as of the other, and no operation contradicts, the order tells the rest.
        """
        told: dict[int, str] = {}
        for entry in self.entries:
            name = self._config_name(entry)
            if told.setdefault(entry.group, name) != name:
                raise DumpError("it contradicts itself: one group number has two names")
        numbers, names = sorted(self.status), sorted(self.configured, key=creation_order)
        ordered = dict(zip(numbers, names, strict=False)) if len(numbers) == len(names) else {}
        named = all(name.isdigit() or not name for name in names)
        if named and all(ordered.get(number, name) == name for number, name in told.items()):
            return ordered | told
        return told

    def _check_identity(self) -> None:
        for description, members in self.configured.values():
            if members and self.rank not in members:
                ranks = members_text(members)
                told = ranks if are_named(ranks) else "others"
                raise DumpError(
                    f"it is not rank {self.rank}'s: its group {description[:80]} has ranks {told}"
                )
        for entry in self.entries:
            known = self.configured.get(self._config_name(entry))
            if entry.ends is None or known is None:
                continue
            members, own = known[1], entry.ends[0]
            if own >= len(members) or members[own] != self.rank:
                told = f"it tells of a {entry.name} of another"
                raise DumpError(f"it is not rank {self.rank}'s: {told}")


def _is_done(entry: DumpEntry, status: WorkCounts | None) -> bool:
    if not entry.done:
        return False
    # NCCL also retires what it gave up after its timeout.
    gave_up = entry.backend == "nccl" and entry.raw.get("state") != "completed"
    return not (gave_up and status and entry.collective > status.completed)


def _frontier(
    entries: list[DumpEntry], pending: list[DumpEntry], status: WorkCounts | None
) -> tuple[int | None, int | None]:
    """Return the last collective enqueued and completed, from the ring and pg_status."""
    if not entries:
        return (status.enqueued, min(status.completed, status.enqueued)) if status else (None, None)
    waiting = [one.collective for one in pending if not one.is_p2p]
    enqueued = max(one.collective for one in entries)
    completed = min(waiting) - 1 if waiting else enqueued
    if status:
        enqueued = max(enqueued, status.enqueued)
        completed = max(status.completed, completed if waiting else 0)
    return enqueued, max(0, min(completed, enqueued))


def _p2p_frontier(entries: list[DumpEntry], pending: list[DumpEntry]) -> tuple[int, int]:
    waiting = [one.p2p for one in pending if one.is_p2p]
    enqueued = max(one.p2p for one in entries)
    return enqueued, max(0, min(waiting) - 1) if waiting else enqueued


def _first_of_each(pending: list[DumpEntry]) -> list[DumpEntry]:
    """Return the operations that say most: the first collective, the first of each peer's."""
    first: dict[object, DumpEntry] = {}
    for entry in pending:
        first.setdefault((entry.name, entry.ends) if entry.is_p2p else "collective", entry)
    return list(first.values())[:PENDING_MAX]


def _operation(entry: DumpEntry, members: tuple[int, ...]) -> Operation:
    peer = None
    if entry.ends is not None and entry.ends[1] < len(members):
        peer = members[entry.ends[1]]
    state = _STATES.get(text_in(entry.raw.get("state")), OperationState.SCHEDULED)
    return Operation(
        sequence=entry.p2p if entry.is_p2p else entry.collective,
        name=entry.name,
        shapes=_shapes(entry.raw),
        state=OperationState.COMPLETED if entry.done else state,
        created_ns=max(0, number_in(entry.raw.get("time_created_ns")) or 0),
        frames=tuple(_frames(entry.raw.get("frames"))),
        peer=peer,
    )


def _shapes(raw: Mapping[str, object]) -> str:
    inputs = _tensors(raw.get("input_sizes"), raw.get("input_dtypes"))
    outputs = _tensors(raw.get("output_sizes"), raw.get("output_dtypes"))
    return (inputs if inputs == outputs else f"{inputs} -> {outputs}")[:200]


def _tensors(sizes: object, types: object) -> str:
    if not isinstance(sizes, list | tuple):
        return ""
    names = types if isinstance(types, list | tuple) else []
    told = []
    for place, size in enumerate(sizes[:8]):
        numbers = size[:8] if isinstance(size, list | tuple) else []
        kind = text_in(names[place]) if place < len(names) else ""
        told.append(f"{'x'.join(map(_size, numbers))} {kind}".strip())
    more = [f"and {len(sizes) - 8} more"] if len(sizes) > 8 else []
    return ", ".join(told + more)


def _size(value: object) -> str:
    """Return one size of a tensor; whatever else is in its place may be larger than memory."""
    number = number_in(value)
    return "?" if number is None else str(number)


def _frames(value: object) -> Iterator[str]:
    """Yield where the program called, innermost first, without torch's own frames."""
    frames = value[:200] if isinstance(value, list) else []
    frames = [one for one in frames if isinstance(one, dict)]
    own = [one for one in frames if not _is_of_torch(text_in(one.get("filename")))]
    for frame in (own or frames)[:_FRAMES]:
        file = text_in(frame.get("filename")).rpartition("/")[2]
        yield f"{file}:{number_in(frame.get('line')) or 0} {text_in(frame.get('name'))}"[:120]


def _is_of_torch(file: str) -> bool:
    return any(part in file for part in _OF_TORCH)


def _libraries(dump: Mapping[str, object]) -> Iterator[Library]:
    version = _word(dump.get("nccl_version") or dump.get("comm_lib_version"))
    if version:
        yield Library("nccl", version)


def _timeout_ms(entry: DumpEntry) -> int:
    return min(max(0, number_in(entry.raw.get("timeout_ms")) or 0), 2**53)


def _samples(entries: Iterable[DumpEntry]) -> list[Sample]:
    """Return the collectives of a group, with what is the same of them in each step."""
    found = []
    for entry in entries:
        created_ns = number_in(entry.raw.get("time_created_ns")) or 0
        if not entry.is_p2p and created_ns > 0:
            label = f"{entry.name} {_shapes(entry.raw)}"[:200]
            found.append(Sample(entry.collective, created_ns, label, _duration_us(entry)))
    return found


def _duration_us(entry: DumpEntry) -> int | None:
    """Return how long an operation took on its device, where the recorder measures that."""
    told = entry.raw.get("duration_ms")
    return int(1000 * told) if isinstance(told, float) and 0 <= told < _DURATION_MAX_MS else None


def _calls(entries: Iterable[DumpEntry], noted: NotedCalls) -> list[Called]:
    """Return all that a rank is known to have called, oldest first."""
    recorded = [
        (
            number_in(one.raw.get("time_created_ns")) or 0,
            Called(f"{one.name}{one.ends or ''} of {one.description}", _shapes(one.raw)),
        )
        for one in entries
    ]
    return noted.among(recorded) if noted.calls else [one for _, one in recorded]


def _word(value: object) -> str:
    return text_in(value)[:40]
