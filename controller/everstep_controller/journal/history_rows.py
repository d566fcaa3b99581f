"""Contents of history rows: what each kind tells, as JSON that later versions read as well."""

import zlib
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from everstep_controller.journal.port import HistoryKind, HistoryRow

# Shorter ones gain nothing.
_PACKED_FROM = 200
# What zlib's streams begin with, and no JSON does.
_PACKED = b"\x78"


class UnreadableHistoryError(ValueError):
    """A row has no content that this version knows; one sentence."""


class JobHour(msgspec.Struct, frozen=True, omit_defaults=True):
    """Time of a job from its start to the end of an hour: nanoseconds by category."""

    totals: Mapping[str, int]
    # On so many nodes at the end of it. ``node_ns`` are nanoseconds of nodes, where it has not been
    # that many all the time.
    nodes: int = 1
    node_ns: Mapping[str, int] = {}
    # Devices that it uses of each node.
    devices_per_node: int = 1
    # The most nodes that it may have.
    nodes_max: int = 0
    # Incidents so far that nobody had planned.
    failures: int = 0
    name: str = ""
    queue: str = ""
    account: str = ""

    def weighed(self) -> Mapping[str, int]:
        """Return nanoseconds of nodes by category."""
        if self.node_ns:
            return self.node_ns
        return {name: amount * self.nodes for name, amount in self.totals.items()}


class IncidentPartTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault of an incident."""

    at_ns: int
    cause: str
    node: str
    message: str


class IncidentTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Incident of a job: what it was, what it cost, who had part in it, and by what evidence."""

    job: str
    cause: str
    message: str
    # Whether it is a failure: nobody had planned it.
    failure: bool
    # 0 while it is open.
    over_ns: int = 0
    name: str = ""
    queue: str = ""
    account: str = ""
    # The node that is blamed, and the device there; "": none.
    node: str = ""
    device: str = ""
    # The generation that it ended, and the nodes of that, as Slurm folds their names.
    generation: int = 0
    members: str = ""
    # Cost by stage, in nanoseconds, and in nanoseconds of nodes.
    costs: Mapping[str, int] = {}
    node_costs: Mapping[str, int] = {}
    devices_per_node: int = 1
    plan: str = ""
    step_before: int | None = None
    step_restored: int | None = None
    step_resumed: int | None = None
    verdict: str = ""
    parts: tuple[IncidentPartTold, ...] = ()
    # Who died of what, in sentences; and what the judgement rested on.
    deaths: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


class NodeDayTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Day of a node on which it was not just healthy: nanoseconds by state, findings, work lost."""

    spent_ns: Mapping[str, int]
    isolated_ns: int = 0
    # Findings that were raised, by condition.
    findings: Mapping[str, int] = {}
    # Of incidents that it is blamed for and that began on this day: how many, and what they cost,
    # in nanoseconds of jobs and of these jobs' nodes.
    incidents: int = 0
    lost_ns: int = 0
    lost_node_ns: int = 0


class FleetDayTold(msgspec.Struct, frozen=True, omit_defaults=True):
    """Day of all nodes together: nanoseconds of nodes by state."""

    nodes: int
    spent_ns: Mapping[str, int]
    isolated_ns: int = 0
    devices: int = 0


Content = JobHour | IncidentTold | NodeDayTold | FleetDayTold
ContentT = TypeVar("ContentT", bound=JobHour | IncidentTold | NodeDayTold | FleetDayTold)
_KINDS: Mapping[type[Any], HistoryKind] = {
    JobHour: HistoryKind.JOB_HOUR,
    IncidentTold: HistoryKind.INCIDENT,
    NodeDayTold: HistoryKind.NODE_DAY,
    FleetDayTold: HistoryKind.FLEET_DAY,
}
_CONTENTS: Mapping[HistoryKind, type[Content]] = {kind: one for one, kind in _KINDS.items()}
_ENCODER = msgspec.json.Encoder(order="deterministic")


def kind_of(content: Content) -> HistoryKind:
    """Return the kind of rows that tell this."""
    return _KINDS[type(content)]


def history_row(key: str, begin_ns: int, at_ns: int, content: Content) -> HistoryRow:
    """Return the row of a content."""
    body = _ENCODER.encode(content)
    packed = zlib.compress(body) if len(body) >= _PACKED_FROM else body
    return HistoryRow(kind_of(content), key, begin_ns, at_ns, packed)


def text_of(row: HistoryRow) -> str:
    """Return the content of a row as JSON. Raises UnreadableHistoryError."""
    return _ENCODER.encode(content_of(row, _CONTENTS[row.kind])).decode()


def content_of(row: HistoryRow, kind: type[ContentT]) -> ContentT:
    """Return the content of a row. Raises UnreadableHistoryError."""
    try:
        packed = row.content.startswith(_PACKED)
        body = zlib.decompress(row.content) if packed else row.content
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, zlib.error, UnicodeDecodeError) as error:
        place = f"the {row.kind.value} of {row.key} at {row.begin_ns}"
        raise UnreadableHistoryError(f"{place} cannot be read: {error}") from error
