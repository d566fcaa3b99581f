"""Roll calls: who is asked, whose answers count, and when a call is over."""

import asyncio

from everstep_controller.api.fleet.roll_calls import RollCalls
from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core.actions import CallRoll
from everstep_controller.core.events import Event, RollCalled
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.node_liveness import NodeLiveness
from everstep_controller.core.model.state import State

_CALL = CallRoll(id="roll/7", reason="n4 is silent", expected=5, timeout_ns=3_600_000_000_000)


def _state() -> State:
    nodes = {
        f"n{number}": NodeRecord(f"n{number}", liveness=NodeLiveness(connected=True))
        for number in range(5)
    }
    nodes["n4"].liveness.connected = False
    nodes["n3"].state = NodeState.MAINTENANCE
    return State(nodes=nodes)


def _play(answers: list[tuple[str, str]], call: CallRoll = _CALL) -> tuple[list[Event], list[bool]]:
    """Return what a roll call led to with these answers, and which of them were taken for some."""
    posted: list[Event] = []

    async def play() -> list[bool]:
        state, sessions = _state(), Sessions()
        for name in state.nodes:
            sessions.open(name, f"{name}-box")
        rolls = RollCalls(lambda: state, sessions, posted.append)
        rolls.call(call)
        return [rolls.take_answer(*answer) for answer in answers]

    return posted, asyncio.run(play())


def test_a_roll_call_is_over_as_soon_as_more_than_half_of_the_fleet_has_answered() -> None:
    posted, taken = _play([("n0", "roll/7"), ("n1", "roll/7"), ("n2", "roll/7"), ("n2", "roll/7")])
    assert posted == [RollCalled("roll/7", 3)]
    assert taken == [True] * 4


def test_neither_a_second_answer_counts_nor_one_of_a_node_in_maintenance() -> None:
    posted, _ = _play([("n0", "roll/7"), ("n0", "roll/7"), ("n3", "roll/7"), ("n1", "roll/7")])
    assert not posted


def test_a_roll_call_is_over_when_all_have_answered_who_were_asked() -> None:
    call = CallRoll(id="roll/7", reason="n4 is silent", expected=50, timeout_ns=_CALL.timeout_ns)
    posted, _ = _play([("n0", "roll/7"), ("n1", "roll/7"), ("n2", "roll/7")], call)
    assert posted == [RollCalled("roll/7", 3)]


def test_answers_to_other_pings_are_left_to_others_and_late_ones_are_dropped() -> None:
    posted, taken = _play([("n0", "n4/silent/3"), ("n0", "roll/6")])
    assert (posted, taken) == ([], [False, True])
