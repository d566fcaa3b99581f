"""Ledger categories: all that a job's time can go to, one row each.

A category is its row: the ledger, the CLI's table, the journal and /metrics derive from it. Names
and rules are those of the field: productive is a committed step's time up to the reference step
time, what is above it is slow.*, a step that a rollback takes back becomes lost.recompute.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class Group(Enum):
    """What a category is part of; ETTR is defined over these."""

    # Committed steps, up to the reference step time; and what they took beyond it.
    PRODUCTIVE = "productive"
    SLOW = "slow"
    # Between and beside committed steps, without a fault.
    OVERHEAD = "overhead"
    # Before the first step of a job.
    INITIAL = "initial"
    PLANNED = "planned"
    # What a fault costs, from its onset to the first step after it.
    INCIDENT = "incident"


class Category(Enum):
    """Where time goes; every nanosecond of a job is in exactly one."""

    _value_: str
    group: Group
    # What it is, in a few words, for people.
    meaning: str

    def __new__(cls, name: str, group: Group, meaning: str) -> "Category":
        """Make a row of the table."""
        row = object.__new__(cls)
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
    STALL = "ckpt.stall.memory", Group.OVERHEAD, "training stood still for a snapshot"
    GAP = "gap", Group.OVERHEAD, "between two steps"
    IN_FLIGHT = "inflight", Group.OVERHEAD, "the step that is being made now"
    PLANNED = "planned", Group.PLANNED, "planned work, as the operator said"
    DETECT = "inc.detect", Group.INCIDENT, "fault began, nobody knew yet"
    DIAGNOSE = "inc.diagnose", Group.INCIDENT, "known, not decided yet"
    DRAIN = "inc.drain", Group.INCIDENT, "decided, old processes still ending"
    CAPACITY = "inc.capacity", Group.INCIDENT, "no node was free"
    SCHEDULE = "inc.schedule", Group.INCIDENT, "nodes free, not all bound yet"
    ENV = "inc.env", Group.INCIDENT, "bound, processes not running yet"
    INIT = "inc.init", Group.INCIDENT, "processes start and import"
    RESTORE = "inc.restore", Group.INCIDENT, "state on its way back"
    WARMUP = "inc.warmup", Group.INCIDENT, "restored, until the first step"
    LOST_IN_FLIGHT = "lost.inflight", Group.INCIDENT, "the step that the fault cut off"
    LOST_RECOMPUTE = "lost.recompute", Group.INCIDENT, "steps that had to be done again"


BY_NAME: Mapping[str, Category] = MappingProxyType({row.value: row for row in Category})
