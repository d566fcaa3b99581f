"""Records of a round: what was done to the fleet and what was seen of it; plain data, kept as JSON.

Times are seconds since the round began, by a clock that no fault steps.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import cast, get_args, get_type_hints


class Excuse(Enum):
    """What a fault explains."""

    REDO = "redo"  # steps that are made again
    OWN_REDO = "own-redo"  # the same of scripts that go back to checkpoints of their own
    UNSAVED = "unsaved"  # steps made meanwhile of which no snapshot can be restored
    LOST = "lost"  # a node that is taken for dead
    ISOLATED = "isolated"  # a node that automation takes out, where it is to enforce
    HELD = "held"  # a node that an operator takes out
    WAIT = "wait"  # a state that lasts longer than its deadline
    SILENCE = "silence"  # commands that nobody answers
    ENDED = "ended"  # a job that ends before its last step
    FORGOTTEN = "forgotten"  # time of a job before it, which is in no ledger
    WORDS = "words"  # warnings in logs
    TRACE = "trace"  # traces of a program whose files are being replaced


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when it began and ended, on which nodes, on whose ranks, what it explains."""

    kind: str
    begun_s: float
    ended_s: float
    nodes: tuple[str, ...] = ()
    job: str = ""
    excuses: tuple[Excuse, ...] = ()
    # How long after its end it still explains something.
    aftermath_s: float = 60.0
    detail: str = ""
    # Why it could not be done; such a fault explains nothing.
    failed: str = ""
    # Whose ranks it breaks, where it concerns more nodes than these.
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node, as the command line showed it."""

    at_s: float
    node: str
    state: str
    connected: bool
    claims: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job, as the command line showed it."""

    at_s: float
    job: str
    state: str
    generation: int = 0
    step: int = -1
    reason: str = ""
    # Who holds it back, in the controller's words; empty where nobody is known to.
    hang: str = ""


@dataclass(frozen=True, slots=True)
class Redo:
    """Steps that a job made again."""

    at_s: float
    job: str
    from_step: int
    to_step: int
    # When the first of them had been made before; None where that was not kept.
    since_s: float | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """What one rank was given, and whether it is what a run without faults had at that step."""

    job: str
    generation: int
    rank: int
    step: int
    right: bool


@dataclass(frozen=True, slots=True)
class LedgerSeen:
    """A job's ledger at its end, in nanoseconds."""

    wall_ns: int
    categories: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended."""

    job: str
    shape: str
    nodes: tuple[str, ...]
    begun_s: float
    ended_s: float
    # Whether it came to its end before the round's patience was over.
    finished: bool
    # Exit codes of its launchers by node: -1 for one that never ended.
    codes: Mapping[str, int]
    # By step, the loss that was written last; and the same of a run without faults.
    steps: int
    losses_equal: bool
    promised_equal: bool
    own_checkpoints: bool = False
    first_difference: str = ""
    ledger: LedgerSeen | None = None
    told: str = ""
    # How many steps lie between two of its own checkpoints; 0: not kept, or it has none.
    checkpoint_steps: int = 0
    # What a step takes at least.
    step_s: float = 0.3
    # How much longer than the job its time here may be: a launcher that starts, a poll. In records
    # that do not say it, the wait for a run without faults as well.
    slack_s: float = 60.0


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line at the level of a warning or above, or with the traces of a crash."""

    at_s: float
    node: str
    unit: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class FindingSeen:
    """A finding that was open."""

    at_s: float
    node: str
    condition: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class EventSeen:
    """An event, as the command line told it."""

    at_s: float
    reason: str
    subject: str
    message: str
    # When it happened, by the controller's clock; None where that was not kept.
    happened_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lateness:
    """By how much a sleep of the canary was longer than it asked for."""

    at_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """Everything that is known of one round."""

    number: int
    seed: int
    lasted_s: float
    machines: Mapping[str, str]  # the rack of each
    faults: tuple[Fault, ...] = ()
    nodes: tuple[NodeSeen, ...] = ()
    jobs: tuple[JobSeen, ...] = ()
    redone: tuple[Redo, ...] = ()
    restores: tuple[Restore, ...] = ()
    results: tuple[JobResult, ...] = ()
    lines: tuple[LogLine, ...] = ()
    findings: tuple[FindingSeen, ...] = ()
    events: tuple[EventSeen, ...] = ()
    late: tuple[Lateness, ...] = ()
    # What `everstep-controller replay` said of the journal; empty: not a difference.
    replay: str = ""
    # Processes, mounts, memory that nobody should hold any more.
    left_behind: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    observation_gaps: tuple[str, ...] = field(default=())
    # When it began, of which commit it was, and the load of this machine over its last 15 minutes.
    date: str = ""
    commit: str = ""
    load: float = 0.0
    # What the controller's automation was told to do; as shipped it only advises.
    mode: str = "enforce"


def write(path: Path, round_: Round) -> None:
    """Keep a round; whoever reads the file never sees half of one."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(round_), default=_plain, indent=1))
    partial.rename(path)


def read(path: Path) -> Round:
    """Return a round that was kept."""
    return cast(Round, _value(Round, json.loads(path.read_text())))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{value!r} cannot be kept")


def _value(kind: object, told: object) -> object:
    """Return a value of a type from what JSON has of it."""
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(told, dict):
        hints = get_type_hints(kind)
        # What came later is not in older records.
        there = [one.name for one in fields(kind) if one.name in told]
        known = {name: _value(hints[name], told[name]) for name in there}
        return kind(**known)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(told)
    if isinstance(told, list):
        return tuple(_value(get_args(kind)[0], one) for one in told)
    parts = [one for one in get_args(kind) if is_dataclass(one)]
    return _value(parts[0], told) if parts and told is not None else told
