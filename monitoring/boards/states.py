"""States of nodes and jobs as bars over time: a number for each in a query, and its colour."""

from collections.abc import Sequence
from enum import Enum

from boards.panels import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, YELLOW
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState

_COLORS: dict[Enum, str] = {
    NodeState.HEALTHY: GREEN,
    NodeState.JOINING: BLUE,
    NodeState.VALIDATING: BLUE,
    NodeState.PROBATION: YELLOW,
    NodeState.SUSPECT: ORANGE,
    NodeState.REPAIRING: PURPLE,
    NodeState.MAINTENANCE: GREY,
    NodeState.LOST: RED,
    NodeState.RETIRED: GREY,
    JobState.RUNNING: GREEN,
    JobState.FORMING: PURPLE,
    JobState.REPLANNING: PURPLE,
    JobState.STARTING: BLUE,
    JobState.RESTORING: BLUE,
    JobState.WARMING: BLUE,
    JobState.WAITING_CAPACITY: ORANGE,
    JobState.WAITING_STATE: YELLOW,
    JobState.BACKING_OFF: YELLOW,
    JobState.STALLED: RED,
    JobState.STOPPING: GREY,
    JobState.CLOSING: GREY,
    JobState.ENDED: GREY,
}
# States that a bar over time would only be filled with.
_DULL = (NodeState.HEALTHY, NodeState.RETIRED)


def shown(kind: type[Enum]) -> list[Enum]:
    """Return the states of a kind that bars show."""
    return [state for state in kind if state not in _DULL]


def coded(series: str, states: Sequence[Enum], labels: str = "") -> str:
    """Return a query whose value is the place of the state that a series has as a label."""
    parts = (
        f'{series}{{{labels}state="{state.value}"}} * {place}' for place, state in enumerate(states)
    )
    return " or ".join(parts)


def words(states: Sequence[Enum]) -> list[tuple[str, str, str]]:
    """Return the value, the word and the colour of each state, for `panels.States`."""
    return [(str(place), str(state.value), _COLORS[state]) for place, state in enumerate(states)]
