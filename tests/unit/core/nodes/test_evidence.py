"""Evidence of silences: who is asked; who was late, or stood still, says nothing."""

import pytest

from everstep_common.reports import JobOnNode, TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.controller import _BY_THE_CLOCK, _FOR_AGENTS
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.timers import TimerKind
from unit.core.test_decisions import S, Story


class _Racks(Story):
    """Nine nodes in racks, each of a row of its own."""

    def __init__(self, racks: int = 3) -> None:
        self._racks = racks
        super().__init__(nodes=9)

    def connect(
        self, node: str, boot: str = "1", jobs: tuple[JobOnNode, ...] = (), outbox: str = ""
    ) -> None:
        del boot, jobs, outbox
        rack = int(node[1:]) % self._racks
        hello = events.NodeConnected(
            node=node,
            boot_id="1",
            agent_version="0.1.0",
            outbox=f"{node}-box",
            highest_term=0,
            host=node,
            domain=f"row{rack}/rack",
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
        )
        self.tell(hello)

    def asked(self, silent: str) -> list[actions.ConfirmSilence]:
        """End a node's stream; return who is asked about it."""
        done = self.tell(events.NodeDisconnected(silent))
        return [one for one in done if isinstance(one, actions.ConfirmSilence)]

    def domain(self, node: str) -> str:
        return self.core.state.nodes[node].spec.domain


def _answer(
    story: Story, asked: list[actions.ConfirmSilence], late_ns: int = 0, after_s: float = 0.1
) -> None:
    for one in asked:
        judged = events.PeerJudged(
            one.node, one.peer, one.id, udp=False, tcp=TcpAnswer.SILENT, late_ns=late_ns
        )
        story.tell(judged, after_s=after_s)


@pytest.mark.parametrize("silent", [f"n{index}" for index in range(9)])
def test_three_peers_outside_the_domains_of_a_silent_node_are_asked(silent: str) -> None:
    story = _Racks()
    asked = story.asked(silent)
    assert len({one.node for one in asked}) == 3
    assert story.domain(silent) not in {story.domain(one.node) for one in asked}


def test_in_the_only_domain_its_own_peers_are_asked() -> None:
    assert len(_Racks(racks=1).asked("n0")) == 3


def test_who_is_asked_is_not_always_the_same() -> None:
    story, asked = _Racks(), set()
    for _ in range(20):
        asked |= {one.node for one in story.asked("n0")}
        story.connect("n0")
    assert len(asked) == 6


@pytest.mark.parametrize(("late_ns", "state"), [(0, NodeState.LOST), (S, NodeState.JOINING)])
def test_what_a_peer_does_not_hear_that_is_late_itself_is_no_evidence(
    late_ns: int, state: NodeState
) -> None:
    story = _Racks()
    before = story.state("n0")
    _answer(story, story.asked("n0"), late_ns)
    story.tell(events.TimerDue("silence/n0"), after_s=20)
    assert story.state("n0") is (NodeState.LOST if state is NodeState.LOST else before)


def test_a_stall_of_the_controller_voids_what_was_asked_before_it() -> None:
    story = _Racks()
    asked = story.asked("n0")
    before = story.state("n0")
    story.tell(events.ControllerStalled(20 * S), after_s=20)
    _answer(story, asked)
    story.tell(events.TimerDue("silence/n0"), after_s=0.1)
    assert story.state("n0") is before
    assert not story.core.state.nodes["n0"].liveness.silence.denied


def _overloaded(story: Story) -> bool:
    return "overloaded" in story.core.state.findings


def test_the_fourth_stall_in_a_row_puts_nothing_off_and_is_a_finding() -> None:
    story = _Racks()
    story.asked("n0")
    for _ in range(3):
        at_ns = story.core.state.timers["silence/n0"]
        story.tell(events.ControllerStalled(10 * S), after_s=0)
        assert story.core.state.timers["silence/n0"] > at_ns
        assert not _overloaded(story)
    at_ns = story.core.state.timers["silence/n0"]
    story.tell(events.ControllerStalled(10 * S), after_s=0)
    assert story.core.state.timers["silence/n0"] == at_ns
    assert _overloaded(story)


def test_a_minute_without_a_stall_is_the_end_of_that() -> None:
    story = Story()
    for _ in range(4):
        story.tell(events.ControllerStalled(S))
    story.tell(events.TimerDue("calm"), after_s=59)
    assert _overloaded(story)
    story.tell(events.TimerDue("calm"), after_s=2)
    assert not _overloaded(story)
    story.tell(events.ControllerStalled(S))
    assert not _overloaded(story)


def test_every_timer_of_an_answer_waits_anew_after_a_start() -> None:
    """Those of silences do by the silence itself; whatever else is not by the clock is listed."""
    others = set(TimerKind) - _BY_THE_CLOCK - _FOR_AGENTS
    assert others == {
        TimerKind.SILENCE,
        TimerKind.STREAM,
        TimerKind.CONFIRM,
        TimerKind.SPARE,
        TimerKind.PAIR,
        TimerKind.INJECTION,
        TimerKind.CONTENDER,
        TimerKind.ISOLATION,
        # Whether nodes still say so is asked anew before anything follows from it.
        TimerKind.STAND,
        # Set anew for what the start adds to it.
        TimerKind.RETURNS,
        TimerKind.FORMING,
        TimerKind.RETRY,
        TimerKind.STALLED,
        TimerKind.STAND,
        TimerKind.NEXT,
        TimerKind.PLANNED,
        TimerKind.STILL,
        TimerKind.GROWTH,
        TimerKind.RECOVERY,
    }
    story = Story()
    timers = story.core.state.timers
    story.now_ns += 1000 * S
    timers.update({f"{kind}/x": story.now_ns for kind in _FOR_AGENTS})
    story.tell(events.ControllerStarted("0.1.0"))
    grace_ns = story.core.state.settings.startup_grace_ns
    assert {timers[f"{kind}/x"] for kind in _FOR_AGENTS} == {story.now_ns + grace_ns}


def test_the_only_agent_of_a_fleet_that_has_seen_more_halts_the_controller() -> None:
    story = Story(nodes=1)
    hello = events.NodeConnected(
        node="n0", boot_id="1", agent_version="1", outbox="n0-box", highest_term=9, host="n0"
    )
    story.tell(hello)
    assert "n0 has seen term 9" in story.core.state.halted
