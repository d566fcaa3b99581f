"""Ledger categories: all that a job's time can go to, one row each.

A category is its row. Where planned work goes is a row of ``PLANNED_WORK``, and what is different
for one cause a row of ``CAUSES``: the ledger, ETTR, the command line, the journal and /metrics
derive from them, and the examples of ``category_of`` are run as tests. Names and rules are those of
the field: productive is a committed step's time up to the reference step time, what is above it is
slow.*, a step that a rollback takes back becomes lost.*.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, unique
from types import MappingProxyType

from everstep_common.reports import PauseKind


class Group(Enum):
    """Group of ledger categories; ETTR is defined over these."""

    # Committed steps, up to the reference step time; and what they took beyond it.
    PRODUCTIVE = "productive"
    SLOW = "slow"
    # Between and beside committed steps, without a fault.
    OVERHEAD = "overhead"
    # Nothing covers it.
    UNKNOWN = "unknown"
    # Before the first step of a job.
    INITIAL = "initial"
    PLANNED = "planned"
    # What a fault costs, from its onset to the first step after it.
    INCIDENT = "incident"
    # Of devices alone: no second of a job's wall clock is in it.
    ABSENT = "absent"


@unique
class Category(StrEnum):
    """Ledger category; every nanosecond of a job is in exactly one."""

    _value_: str
    group: Group
    # What it is, in a few words, for people.
    meaning: str

    def __new__(cls, name: str, group: Group, meaning: str) -> "Category":
        """Make a row of the table."""
        row = str.__new__(cls, name)
        row._value_, row.group, row.meaning = name, group, meaning
        return row

    INIT_QUEUE = "init.queue", Group.INITIAL, "waiting for the first nodes"
    INIT_ENV = "init.env", Group.INITIAL, "first start: nodes bound, processes not running yet"
    INIT_PROC = "init.proc", Group.INITIAL, "first start: processes start and import"
    INIT_RESTORE = "init.restore", Group.INITIAL, "first start: loading a state"
    INIT_WARMUP = "init.warmup", Group.INITIAL, "first start: until the first step"
    PRODUCTIVE = (
        "productive", Group.PRODUCTIVE, "committed steps, up to the reference step time"
    )  # fmt: skip
    SLOW = "slow.unattributed", Group.SLOW, "excess of committed steps, cause unknown"
    SLOW_NODE = "slow.node", Group.SLOW, "excess of committed steps: ranks or a place are slow"
    SLOW_DATA = "slow.data", Group.SLOW, "excess of committed steps: each is of other work"
    SLOW_STAGE = "slow.stage", Group.SLOW, "excess of committed steps: a role has more to compute"
    SLOW_PAUSES = "slow.pauses", Group.SLOW, "excess of single steps: storage, loaders, collection"
    STALL = "ckpt.stall.memory", Group.OVERHEAD, "training stood still for a snapshot"
    PERSIST = "ckpt.stall.persist", Group.OVERHEAD, "training waited for a save to storage"
    EVAL = "eval", Group.OVERHEAD, "evaluation, as the script says"
    USER_PAUSE = "user_pause", Group.OVERHEAD, "another pause that the script has declared"
    GAP = "gap", Group.OVERHEAD, "after the last step, until the ranks had ended"
    UNKNOWN = "unknown", Group.UNKNOWN, "the controller was away, and nobody tells what was then"
    IN_FLIGHT = "inflight", Group.OVERHEAD, "the step that is being made now"
    PLANNED = "planned", Group.PLANNED, "planned work, as the operator said"
    DETECT = "inc.detect", Group.INCIDENT, "fault began, nobody knew yet"
    DIAGNOSE = "inc.diagnose", Group.INCIDENT, "known, not decided yet"
    DRAIN = "inc.drain", Group.INCIDENT, "decided, old processes still ending"
    SAVE = "inc.save", Group.INCIDENT, "ranks gone, the last step still on its way to storage"
    CAPACITY = "inc.capacity", Group.INCIDENT, "no node was free"
    BACKOFF = "inc.backoff", Group.INCIDENT, "what ranks died of is outside: until the next attempt"
    SCHEDULE = "inc.schedule", Group.INCIDENT, "nodes free, not all bound yet"
    ENV = "inc.env", Group.INCIDENT, "bound, processes not running yet"
    INIT = "inc.init", Group.INCIDENT, "processes start and import"
    RESTORE = "inc.restore", Group.INCIDENT, "state on its way back"
    WARMUP = "inc.warmup", Group.INCIDENT, "restored, until the first step"
    LOST_IN_FLIGHT = "lost.inflight", Group.INCIDENT, "the step that the fault cut off"
    LOST_RECOMPUTE = "lost.recompute", Group.INCIDENT, "steps that had to be done again"
    LOST_CORRUPT = "lost.corrupt", Group.INCIDENT, "steps taken back, for ranks called them bad"
    DEGRADED = "degraded", Group.ABSENT, "devices that the job may have, and did without"


# Causes of incidents that somebody or the controller wants of a healthy job, and where the time of
# such work goes. "user": who submitted the job, or the scheduler for somebody else, sent its
# launchers away.
PLANNED_WORK: Mapping[str, Category] = MappingProxyType(
    {
        "operator": Category.PLANNED,
        "drain": Category.PLANNED,
        "maintenance": Category.PLANNED,
        "growth": Category.PLANNED,
        "user": Category.PLANNED,
    }
)
# Stages of an incident, and losses, that are a category of their own for one cause.
CAUSES: Mapping[tuple[Category, str], Category] = MappingProxyType(
    {
        (Category.LOST_RECOMPUTE, "rollback"): Category.LOST_CORRUPT,
    }
)
# Where the time of a pause goes that a script declares within a step.
PAUSES: Mapping[PauseKind, Category] = MappingProxyType(
    {
        PauseKind.EVALUATION: Category.EVAL,
        PauseKind.SAVE: Category.PERSIST,
        PauseKind.OTHER: Category.USER_PAUSE,
    }
)
# What the stages of a recovery are in the first start of a job, and of one that has ended well.
_FIRST_START: Mapping[Category, Category] = MappingProxyType(
    {
        Category.CAPACITY: Category.INIT_QUEUE,
        Category.SCHEDULE: Category.INIT_QUEUE,
        Category.ENV: Category.INIT_ENV,
        Category.INIT: Category.INIT_PROC,
        Category.RESTORE: Category.INIT_RESTORE,
        Category.WARMUP: Category.INIT_WARMUP,
        Category.SAVE: Category.PERSIST,
    }
)


def category_of(stage: Category, cause: str | None) -> Category:
    """Return where the time of a stage goes, by the cause of its incident; None: there is none.

    >>> category_of(Category.RESTORE, None).value
    'init.restore'
    >>> category_of(Category.RESTORE, "node").value
    'inc.restore'
    >>> category_of(Category.RESTORE, "operator").value
    'planned'
    >>> category_of(Category.SAVE, None).value
    'ckpt.stall.persist'
    >>> category_of(Category.LOST_RECOMPUTE, "rollback").value
    'lost.corrupt'
    """
    if cause is None:
        return _FIRST_START.get(stage, stage)
    return CAUSES.get((stage, cause)) or PLANNED_WORK.get(cause, stage)


def loss_of(cause: str) -> Category:
    """Return where steps go that an incident takes back; planned work can lose some as well."""
    return CAUSES.get((Category.LOST_RECOMPUTE, cause), Category.LOST_RECOMPUTE)
