"""Faults on purpose in the core: ordered once, asked for until answered, then forgotten."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import InjectionState
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.node import NodeState, Origin
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.injections import LISTED_NS, STALE_NS
from everstep_controller.journal.codec import (
    decode_actions,
    decode_event,
    decode_state,
    encode,
    encode_actions,
    kind_of,
)

S = 1_000_000_000
_ORDER = events.InjectionOrdered(
    node="n0", spec="xid:79", duration_ns=60 * S, operator="ann", reason="drill"
)
_ID = "n0/inject/1"


class _Fleet:
    """A core with one node and a clock."""

    def __init__(self) -> None:
        self.core = Core()
        self.now_ns = 0
        self._sequence = 0
        self.tell(events.ControllerStarted("0.1.0"))
        self.tell(events.SettingsApplied(Settings(mode=Mode.ENFORCE)))
        self.connect()

    def tell(self, event: events.Event, after_ns: int = S) -> list[actions.Action]:
        self.now_ns += after_ns
        return self.core.handle(event, self.now_ns)

    def connect(self, after_ns: int = S) -> list[actions.Action]:
        hello = events.NodeConnected(
            node="n0", boot_id="1", agent_version="0", outbox="box", highest_term=0, host="n0"
        )
        return self.tell(hello, after_ns)

    def origin(self) -> Origin:
        self._sequence += 1
        return Origin("n0", "box", self._sequence)

    def answer(self, state: InjectionState, message: str = "done") -> list[actions.Action]:
        return self.tell(
            events.Reported(self.origin(), 0, reports.InjectionChanged(_ID, state, message))
        )

    def orders(self) -> list[actions.Action]:
        """Return what a controller that was restarted would order."""
        wanted = (actions.Inject, actions.ClearInjection)
        return [action for action in self.core.due(self.now_ns) if isinstance(action, wanted)]

    @property
    def state(self) -> InjectionState:
        return self.core.state.nodes["n0"].injections.by_id[_ID].state


def _said(done: list[actions.Action]) -> list[str]:
    return [action.message for action in done if isinstance(action, actions.Announce)]


def test_an_order_is_given_again_until_it_is_answered() -> None:
    fleet = _Fleet()
    done = fleet.tell(_ORDER)
    order = actions.Inject(
        id=_ID, node="n0", reason="injected by ann: drill", spec="xid:79", duration_ns=60 * S
    )
    assert order in done
    assert _said(done) == ["ann injects xid:79 into n0 for 60 s: drill"]
    assert fleet.orders() == [order]
    assert order in fleet.connect()
    assert _said(fleet.answer(InjectionState.ACTIVE)) == ["xid:79 on n0 is active: done"]
    assert fleet.orders() == []
    assert fleet.state is InjectionState.ACTIVE


def test_the_end_is_ordered_until_it_is_answered_and_then_never_again() -> None:
    fleet = _Fleet()
    fleet.tell(_ORDER)
    fleet.answer(InjectionState.ACTIVE)
    done = fleet.tell(events.InjectionCleared("n0", "", "bob"))
    (order,) = [action for action in done if isinstance(action, actions.ClearInjection)]
    assert order.injection == _ID
    assert fleet.orders() == [order]
    fleet.answer(InjectionState.ENDED)
    assert fleet.orders() == []
    assert not fleet.tell(events.InjectionCleared("n0", _ID, "bob"))
    # A word that comes late changes nothing: its end is final.
    assert not fleet.answer(InjectionState.ACTIVE)
    assert fleet.state is InjectionState.ENDED


def test_what_was_cleared_before_it_was_answered_is_not_injected_any_more() -> None:
    fleet = _Fleet()
    fleet.tell(_ORDER)
    fleet.tell(events.InjectionCleared("n0", _ID, "bob"))
    assert [type(order) for order in fleet.orders()] == [actions.ClearInjection]


def test_an_order_that_a_node_missed_for_long_is_void() -> None:
    fleet = _Fleet()
    fleet.tell(_ORDER)
    fleet.tell(events.NodeDisconnected("n0"))
    done = fleet.connect(after_ns=STALE_NS)
    assert not [action for action in done if isinstance(action, actions.Inject)]
    assert fleet.state is InjectionState.ENDED


def test_an_injection_is_listed_for_a_while_and_its_number_is_never_used_again() -> None:
    fleet = _Fleet()
    done = fleet.tell(_ORDER)
    (timer,) = [action for action in done if isinstance(action, actions.SetTimer)]
    assert timer.at_ns == fleet.now_ns + 60 * S + LISTED_NS
    fleet.answer(InjectionState.REFUSED, "switched off")
    fleet.tell(events.TimerDue(timer.timer), after_ns=timer.at_ns - fleet.now_ns)
    assert fleet.core.state.nodes["n0"].injections.by_id == {}
    fleet.tell(_ORDER)
    assert list(fleet.core.state.nodes["n0"].injections.by_id) == ["n0/inject/2"]


def test_a_record_that_comes_twice_is_taken_once() -> None:
    fleet = _Fleet()
    fleet.tell(_ORDER)
    origin = fleet.origin()
    word = events.Reported(origin, 0, reports.InjectionChanged(_ID, InjectionState.ACTIVE, "done"))
    assert _said(fleet.tell(word))
    assert not fleet.tell(word)


def test_the_journal_keeps_everything_about_injections() -> None:
    fleet = _Fleet()
    done = fleet.tell(_ORDER)
    told = (
        _ORDER,
        events.InjectionCleared("n0", _ID, "bob"),
        events.Reported(
            fleet.origin(), 0, reports.InjectionChanged(_ID, InjectionState.ACTIVE, "done")
        ),
    )
    for event in told:
        assert decode_event(kind_of(event), encode(event)) == event
    assert decode_actions(encode_actions(done)) == done
    assert decode_state(encode(fleet.core.state)) == fleet.core.state


def test_what_an_injection_does_to_a_node_says_that_it_was_injected() -> None:
    fleet = _Fleet()
    (check,) = [one for one in fleet.core.due(0) if isinstance(one, actions.RunCheck)]
    fleet.tell(
        events.Reported(fleet.origin(), 0, reports.CheckFinished(check.id, True, "all is well"))
    )
    finding = Finding(
        component="gpu/0",
        condition="XidFatal",
        severity=Severity.FATAL,
        message="Xid 79",
        injected=True,
    )
    done = fleet.tell(events.Reported(fleet.origin(), fleet.now_ns, reports.FindingRaised(finding)))
    node = fleet.core.state.nodes["n0"]
    assert node.state is NodeState.REPAIRING
    assert node.reason == "Xid 79 [injected]"
    assert all("[injected]" in sentence for sentence in _said(done))
    real = replace(finding, injected=False)
    told = _said(
        fleet.tell(events.Reported(fleet.origin(), fleet.now_ns, reports.FindingRaised(real)))
    )
    assert told[0] == "fatal on n0: Xid 79"
