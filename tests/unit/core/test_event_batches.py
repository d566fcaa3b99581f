"""Batches of events: what comes together is recorded in order, decided by once, and told alike."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_common import reports
from everstep_controller.core import actions, events
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.turn import TimerKind
from everstep_controller.journal.codec import UnreadableError, decode_event, encode, kind_of
from unit.core.test_decisions import S, Story

NODES = tuple(f"n{number}" for number in range(9))


class _Fleet(Story):
    """Nine nodes, some of which fall silent; what is told comes alone or together."""

    def __init__(self, *, together: bool) -> None:
        super().__init__(nodes=len(NODES))
        self.together = together
        self.asked: list[actions.ConfirmSilence] = []

    def tell_all(self, told: Sequence[events.Event]) -> None:
        whole = [events.EventBatch(tuple(told))] if self.together and told else told
        for event in whole:
            done = self.core.handle(decode_event(kind_of(event), encode(event)), self.now_ns)
            self.asked += [one for one in done if isinstance(one, actions.ConfirmSilence)]
            for call in [one for one in done if isinstance(one, actions.CallRoll)]:
                heard = events.RollCalled(call.id, self.core.state.index.heard.total)
                self.core.handle(heard, self.now_ns)

    def pass_seconds(self, silent: frozenset[str], quarters: int) -> None:
        """Have timers come due and questions answered."""
        timers = self.core.state.timers
        for _ in range(quarters):
            self.now_ns += S // 4
            asked, self.asked = self.asked, []
            self.tell_all(
                [
                    events.PeerJudged(one.node, one.peer, one.id, False, reports.TcpAnswer.SILENT)
                    for one in asked
                    if one.node not in silent
                ]
            )
            due = sorted(timer for timer, at_ns in timers.items() if at_ns <= self.now_ns)
            self.tell_all([one for one in map(events.TimerDue, due) if events.batch_of(one)])

    def states(self) -> dict[str, tuple[NodeState, bool]]:
        nodes = self.core.state.nodes
        return {name: (nodes[name].state, nodes[name].doubtful) for name in NODES}


@settings(max_examples=20, deadline=None)
@given(st.sets(st.sampled_from(NODES), min_size=1, max_size=4))
def test_nodes_that_fall_silent_together_are_judged_as_one_by_one(names: set[str]) -> None:
    silent = frozenset(names)
    fleets = [_Fleet(together=together) for together in (False, True)]
    for fleet in fleets:
        fleet.tell_all([events.NodeDisconnected(name) for name in sorted(silent)])
        watcher = next(name for name in NODES if name not in silent)
        told = [events.PeerReported(watcher, name, silent=True) for name in sorted(silent)]
        fleet.tell_all(told)
        fleet.pass_seconds(silent, 60)
    alone, together = (fleet.states() for fleet in fleets)
    assert alone == together
    assert {name for name, (state, _) in together.items() if state is NodeState.LOST} == silent


def test_a_job_whose_nodes_stop_together_is_planned_once() -> None:
    story = Story()
    story.run()
    story.exit_rank("n0")
    stopped = reports.GenerationStopped(1, 29500)
    members = story.core.state.newest("j").generation.members
    told = [events.Reported(story.origin(node), story.now_ns, stopped, "j") for node in members]
    done = story.core.handle(events.EventBatch(tuple(told)), story.now_ns + S)
    assert len([one for one in done if isinstance(one, actions.ChooseRecoveryStep)]) == 1
    assert story.core.state.newest("j").generation.number == 2


def test_a_record_that_came_before_counts_once_in_a_batch_too() -> None:
    story = Story()
    story.run()
    count = story.core.state.event_count
    stopped = reports.GenerationStopped(0, 29500)
    told = events.Reported(story.origin("n0"), story.now_ns, stopped, "j")
    story.core.handle(events.EventBatch((told, told)), story.now_ns + S)
    assert story.core.state.event_count == count + 1


def test_a_batch_is_stored_with_the_kinds_of_its_events() -> None:
    batch = events.EventBatch(
        (events.NodeDisconnected("a"), events.PeerReported("b", "a", silent=True))
    )
    assert decode_event(kind_of(batch), encode(batch)) == batch
    with pytest.raises(UnreadableError, match=r"^unknown kind of event: Fancied"):
        decode_event("EventBatch", b'[{"kind": "Fancied", "body": {}}]')
    with pytest.raises(UnreadableError, match=r"^EventBatch: "):
        decode_event("EventBatch", b"7")


@pytest.mark.parametrize("kind", [TimerKind.SILENCE, TimerKind.CONFIRM])
def test_timers_of_silences_are_apart_from_what_agents_tell(kind: TimerKind) -> None:
    assert events.batch_of(events.TimerDue(f"{kind}/n0")) == "timers"
    assert events.batch_of(events.NodeDisconnected("n0")) == "told"
    assert not events.batch_of(events.TimerDue(f"{TimerKind.CHECK}/n0"))
    assert not events.batch_of(events.ControllerStarted("1"))
