"""Handlers record what an event says; what follows is decided after them, and only there."""

import ast
import typing
from functools import partial
from pathlib import Path

import pytest

import everstep_controller
from everstep_controller.core import actions, events, fleet, hangs, jobs, nodes, planned, recovery
from everstep_controller.core.actions import Announce, SetTimer
from everstep_controller.core.dispatch import controller
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.events import kind_of
from everstep_controller.core.model.node import AUTOMATION, MAINTENANCE
from everstep_controller.core.model.state import State
from everstep_controller.core.registry import merge_handlers, merge_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_marks import Fleet

PACKAGES = (controller, nodes, jobs, recovery, hangs, planned, fleet)
HANDLERS = merge_handlers(package.HANDLERS for package in PACKAGES)
TIMERS = merge_timers(package.TIMERS for package in PACKAGES)
SOURCE = Path(everstep_controller.__file__).parent


def test_every_handler_gets_a_turn_in_which_nothing_can_be_ordered() -> None:
    for taken in (*HANDLERS.values(), *TIMERS.values()):
        handler = taken.func if isinstance(taken, partial) else taken
        assert typing.get_type_hints(handler)["turn"] is Turn, handler
    allowed = {name for name in vars(Reconciliation) if not name.startswith("_")}
    assert "order" in allowed - set(vars(Turn))


def test_only_the_dispatch_of_events_begins_to_decide() -> None:
    begun = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            made = isinstance(node, ast.Call) and "Reconciliation" in ast.unparse(node.func)
            reached = isinstance(node, ast.Attribute) and node.attr == "_actions"
            if made or (reached and file.name != "turn.py"):
                begun.append(file.relative_to(SOURCE).as_posix())
    assert begun == ["core/dispatch/core.py"]


def _decided(state: State) -> dict[str, object]:
    """Return what only reconciliation may change."""
    automatic = (AUTOMATION, MAINTENANCE)
    found: dict[str, object] = {
        f"node {node.name}": (
            node.state,
            [(c.since_ns, c.draining) for c in node.isolation.claims if c.owner in automatic],
        )
        for node in state.nodes.values()
    }
    for job in state.jobs.values():
        members = tuple(job.generation.members)
        found[f"job {job.id}"] = (job.state, job.generation.cause, members, job.recovery.restarts)
    for window in state.windows.values():
        found[f"window {window.id}"] = (window.state, window.vacated)
    for incident in state.incidents.values():
        found[f"incident {incident.id}"] = (incident.cause, incident.over_ns)
    return found


class Handled(Core):
    """A core that shows each event to its handler alone before it takes it."""

    def handle(self, event: events.JournaledEvent, now_ns: int) -> list[actions.Action]:
        turn = Turn(decode_state(encode(self.state)), now_ns)
        before = _decided(turn.state)
        if isinstance(event, events.TimerDue):
            turn.drop_timer(event.timer)
            kind, _, name = event.timer.partition("/")
            TIMERS[TimerKind(kind)](turn, name)
        else:
            HANDLERS[kind_of(event)](turn, event)
        after = _decided(turn.state)
        changed = {name for name in before.keys() & after.keys() if before[name] != after[name]}
        assert not changed, f"{event} decided on {changed} in its handler"
        ordered = [one for one in turn.actions if not isinstance(one, Announce | SetTimer)]
        assert not ordered, f"{event} ordered {ordered} in its handler"
        return super().handle(event, now_ns)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_its_handler_decides_nothing(seed: int) -> None:
    fleet = Fleet(seed)
    fleet.core = Handled(fleet.core.state)
    for _ in range(150):
        fleet.anything()


def test_what_was_told_is_forgotten_when_it_is_decided_on() -> None:
    fleet = Fleet(7)
    for _ in range(100):
        fleet.anything()
        state = fleet.core.state
        assert not state.joining
        assert not state.orphaned
        for job in state.jobs.values():
            assert job.news == type(job.news)()
        for node in state.nodes.values():
            assert node.news == type(node.news)()
