"""Flight Recorder dumps: what torch's recorder wrote of one rank, reduced to a report. Pure.

Schema 2.3 (torch 2.4) to 2.10 (torch 2.13), of NCCL and gloo, as pickle or JSON. What differs:
numbers are text in JSON and -1 or None where there is none; gloo's operations stay "scheduled" and
are "retired" when they are done; its default group is '' in pg_config and '0' in the operations,
its other groups are not in there; it records no point-to-point operations, but counts them in
pg_status. That counts groups by a number of the process, which the operations lead to a group.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from everstep_common.hangs.dumps.coalesced import WorkCounts, is_counted_apart, without_batches
from everstep_common.hangs.dumps.departures import Called, departure_of
from everstep_common.hangs.dumps.dump_entries import DumpEntry, dump_entry, number_in, text_in
from everstep_common.hangs.dumps.exit_dumps import before_giving_up
from everstep_common.hangs.dumps.noted_calls import NotedCalls
from everstep_common.hangs.dumps.pickles import Effort, PickleError, plain_values
from everstep_common.hangs.reports.members import are_named, members_text, unnamed_members
from everstep_common.hangs.reports.rank_report import (
    BLIND_MAX,
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
from everstep_common.reports.quantities import RANKS_MAX

# 2,000 operations take 1 MB without stacks, and 8 MB with them.
BYTES_MAX = 64 * 1024 * 1024
# Of JSON, which becomes values of up to thirty times its size, by its brackets and commas.
_JSON_ITEMS_MAX = 4_000_000
ENTRIES_MAX = 50_000
# A rank of the largest jobs is in some hundred groups, which have a million members together.
_CONFIGURED_MAX = 20_000
_MEMBERS_MAX = 4_000_000
# Files of torch itself say nothing about where in the program an operation was called.
_OF_TORCH = ("/torch/", "/functorch/")
_FRAMES = 3
# Of one collective: an hour.
_DURATION_MAX_MS = 3.6e6
_NUMBERS = re.compile(r"\d{1,7}")
_STATES = {state.value: state for state in OperationState}
DEFAULT_GROUP = "default_pg"
NOTHING_NOTED = NotedCalls()
# A recorder that has recorded no operation leaves their list out; a report has groups.
_PARTS = frozenset({"entries", "groups", "pg_status"})


class DumpError(ValueError):
    """A dump cannot be used; the message says why in one sentence."""


# Description and members, in the order of their ranks in the group.
_GroupKey = tuple[str, tuple[int, ...]]


def read_dump(data: bytes, effort: Effort | None = None) -> Mapping[str, object]:
    """Return the values of a dump, pickle or JSON, or of a report. Raises DumpError."""
    if len(data) > BYTES_MAX:
        raise DumpError(f"it has {len(data):,} bytes, more than {BYTES_MAX:,}")
    if not data:
        raise DumpError("it is empty: its rank ended while it wrote")
    effort = effort or Effort()
    is_json = data.lstrip()[:1] == b"{"
    values = _json_values(data, effort) if is_json else _pickle_values(data, effort)
    if not isinstance(values, dict) or not _PARTS & values.keys():
        raise DumpError("it is no Flight Recorder dump: it has no entries")
    return values


def _json_values(data: bytes, effort: Effort) -> object:
    items = data.count(b"[") + data.count(b"{") + data.count(b",")
    most = min(_JSON_ITEMS_MAX, effort.operations_max)
    if items > most:
        raise DumpError(f"it has more than {most:,} values")
    effort.operations += items
    try:
        return json.loads(data)
    except RecursionError:
        raise DumpError("its values are nested too deeply") from None
    except ValueError as error:
        raise DumpError(f"it is no JSON, or was cut off: {error}") from None


def _pickle_values(data: bytes, effort: Effort) -> object:
    try:
        return plain_values(data, effort)
    except PickleError as error:
        raise DumpError(str(error)) from error


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
    departure = departure_of(_calls(called, noted))
    return RankHangReport(
        rank=rank,
        world_size=max(world_size, reading.world_size()),
        schema=_word(before.get("version")),
        backend=reading.entries[-1].backend[:40] if reading.entries else "",
        libraries=tuple(_libraries(before)),
        groups=groups,
        groups_left_out=left_out,
        timeout_ms=min((one for one in map(_timeout_ms, reading.entries) if one), default=0),
        departure=departure.words[:500] if departure else "",
        departed_ago=departure.since if departure else 0,
        process=process,
        blind=tuple(reading.blind()),
    )


class _DumpReading:
    """One dump: its operations, its groups, and which belongs to which."""

    def __init__(self, dump: Mapping[str, object], rank: int, world_size: int) -> None:
        self.rank = rank
        self.malformed = 0
        self.configured = _configured(dump.get("pg_config"), world_size)
        self.status = _statuses(dump.get("pg_status"))
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
        ordinals: dict[_GroupKey, int] = {}
        for name in sorted({*self.configured, *entries}, key=_creation):
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
        key: _GroupKey,
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
        numbers, names = sorted(self.status), sorted(self.configured, key=_creation)
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


def _configured(value: object, world_size: int) -> dict[str, _GroupKey]:
    """Return description and members of each group, by its name."""
    if not isinstance(value, dict):
        return {}
    if len(value) > _CONFIGURED_MAX:
        raise DumpError(f"it has {len(value):,} groups, more than {_CONFIGURED_MAX:,}")
    found, left = {}, _MEMBERS_MAX
    for name, one in value.items():
        if isinstance(one, dict):
            # gloo's default group has neither a name nor a description there.
            description = text_in(one.get("desc")) or (str(name) if name else DEFAULT_GROUP)
            members = _members(one.get("ranks"))
            if not members and description == DEFAULT_GROUP:
                members = tuple(range(world_size))
            if members:
                found[str(name)] = (description, members)
            left -= len(members)
            if left < 0:
                raise DumpError(f"its groups have more than {_MEMBERS_MAX:,} members")
    return found


def _members(value: object) -> tuple[int, ...]:
    if isinstance(value, str):
        # 200,000 ranks take seven characters each, with their commas.
        numbers = [int(one) for one in _NUMBERS.findall(value[: 9 * RANKS_MAX])]
    elif isinstance(value, list | tuple):
        numbers = [one for one in value[:RANKS_MAX] if type(one) is int]
    else:
        return ()
    if len(set(numbers)) != len(numbers) or not all(0 <= one < RANKS_MAX for one in numbers):
        raise DumpError("the members of a group are no ranks")
    return tuple(numbers)


def _creation(name: str) -> tuple[int, int, str]:
    # torch numbers groups as they are made; '' is the first.
    if not name:
        return (0, -1, "")
    is_number = name.isascii() and name.isdigit() and len(name) < 10
    return (0, int(name), "") if is_number else (1, 0, name)


def _statuses(value: object) -> dict[int, WorkCounts]:
    if not isinstance(value, dict):
        return {}
    found = {}
    for number, one in value.items():
        key = number_in(number)
        if key is not None and isinstance(one, dict):
            enqueued = number_in(one.get("last_enqueued_collective"))
            completed = number_in(one.get("last_completed_collective"))
            if enqueued is not None and completed is not None:
                found[key] = WorkCounts(max(0, enqueued), max(0, completed))
    return found


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


def blind_report(
    rank: int, reason: str, source: EvidenceSource = EvidenceSource.FLIGHT_RECORDER
) -> RankHangReport:
    """Return the report of a rank of which nothing usable was read."""
    return RankHangReport(rank=rank, blind=(Blind(source, reason[:500]),))


def merged(reports: Iterable[RankHangReport]) -> dict[int, RankHangReport]:
    """Return one report for each rank; of two that contradict each other, neither is used.

    A file of which nothing can be used contradicts nobody.
    """
    found: dict[int, RankHangReport] = {}
    for report in reports:
        known = found.setdefault(report.rank, report)
        if known is report:
            continue
        unusable = [one for one in (known, report) if is_unusable(one)]
        if len(unusable) == 1:
            found[report.rank] = _beside(known if unusable[0] is report else report, unusable[0])
        elif _frontiers(known) == _frontiers(report):
            found[report.rank] = max(known, report, key=_frames_told)
        else:
            told = (
                f"there are two dumps of rank {report.rank}, and they contradict each other; where"
                " two jobs have left theirs here, --prefix chooses one"
            )
            found[report.rank] = blind_report(report.rank, told, EvidenceSource.IDENTITY)
    return found


def is_unusable(report: RankHangReport) -> bool:
    """Return whether nothing could be used of a dump."""
    return bool(report.blind) and not report.groups


def _beside(report: RankHangReport, other: RankHangReport) -> RankHangReport:
    """Return a report that also says why another dump of its rank could not be used."""
    reasons = [replace(one, source=EvidenceSource.FLIGHT_RECORDER) for one in other.blind]
    return replace(report, blind=(*report.blind, *reasons)[:BLIND_MAX])


def _frontiers(report: RankHangReport) -> object:
    groups = ((one.description, one.members, one.ordinal, one.enqueued) for one in report.groups)
    return sorted(groups, key=str), bool(report.blind)


def _frames_told(report: RankHangReport) -> int:
    return sum(len(one.frames) for group in report.groups for one in group.pending)
