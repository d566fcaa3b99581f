"""Remedies: a table of what is done about a fault, by who is at fault and what happened before."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from everstep_common.failures.classification import Side
from everstep_controller.core.model.deaths import Remedy


class History(Enum):
    """Earlier deaths like this one, as far as a remedy depends on them."""

    NEW = auto()
    # Several ranks show it, and the job has not made a step yet.
    FROM_THE_START = auto()
    # An earlier generation, too, ended itself with this code before it had made a step.
    NEVER_STARTED = auto()
    # An earlier generation died of the same, at the same step and on the same node …
    SAME_STEP = auto()
    # … or on another one.
    SAME_STEP_ELSEWHERE = auto()
    # Ranks on several nodes show it, at once or one after the other.
    ON_SEVERAL_NODES = auto()
    # Another death without an explanation was on this node not long ago.
    SAME_NODE = auto()


@dataclass(frozen=True, slots=True)
class Rule:
    """Remedy for one case, and the sentence why."""

    remedy: Remedy
    reason: str


_AGAIN = Rule(
    Remedy.STOP,
    "{what}, the same as generation {before} {where}: the script or its data is at fault; correct "
    "it and start the job again",
)

_NODES_WORD = Rule(Remedy.REPLACE, "{what}: {node} is at fault by its own word{finding}")

RULES: Mapping[tuple[Side, History], Rule] = MappingProxyType(
    {
        (Side.SCRIPT, History.FROM_THE_START): Rule(
            Remedy.STOP,
            "{what}, and {others}: it cannot start anywhere; correct the command or what is "
            "installed, and start the job again",
        ),
        (Side.SCRIPT, History.SAME_STEP): _AGAIN,
        (Side.SCRIPT, History.SAME_STEP_ELSEWHERE): _AGAIN,
        (Side.UNKNOWN, History.SAME_STEP_ELSEWHERE): _AGAIN,
        (Side.UNKNOWN, History.NEVER_STARTED): Rule(
            Remedy.STOP,
            "{what}, the same as generation {before} {where}: the script ends itself; see its "
            "output, correct the command or the script, and start the job again",
        ),
        (Side.UNKNOWN, History.SAME_STEP): Rule(
            Remedy.REPLACE,
            "{what}, the same as generation {before} {where}: {node} is replaced and checked",
        ),
        (Side.UNKNOWN, History.SAME_NODE): Rule(
            Remedy.REPLACE,
            "{what}: the second death without an explanation there, so {node} is replaced and "
            "checked",
        ),
    }
    | {(Side.NODE, history): _NODES_WORD for history in History}
)

# A pair that is not in the table is tried once more.
OTHERWISE: Mapping[Side, str] = MappingProxyType(
    {
        Side.SCRIPT: "{what}: the script's own fault if it comes again {where}",
        Side.NODE: "{what}",
        Side.TRANSIENT: "{what}: of the moment, as far as is known",
        Side.CONSEQUENCE: "{what}: which rank went first is not known",
        Side.UNKNOWN: "{what}: the script or {node}, only a repetition tells",
    }
)
