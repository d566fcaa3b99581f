"""Memory of ended jobs that an operator wants back: every holder is told, until it has none."""

from dataclasses import replace

from everstep_common.reports import JobOnNode
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobSpec,
    JobState,
    Lineage,
    Members,
)
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import (
    decode_actions,
    decode_event,
    decode_state,
    encode,
    encode_actions,
    kind_of,
)

S = 1_000_000_000
NODES = ("n0", "n1", "n2")
_FORGET = events.OperatorForgotJob("llama", "ann")


def _job(state: JobState = JobState.ENDED) -> JobRecord:
    """Return a job that ran on the first two nodes."""
    ledger = Ledger(S)
    ledger.enter(S, Category.INIT_QUEUE)
    return JobRecord(
        id="llama-7",
        name="llama",
        spec=JobSpec(uid=1000, token_sha256="", nodes_min=2, nodes_max=2),
        ledger=ledger,
        state=state,
        generation=Generation(4, members=Members(["n0", "n1"])),
        lineage=Lineage(holders={"n0": 4, "n1": 4}),
        reason="ended by its user on n0",
    )


def _hello(node: str, *jobs: str) -> events.NodeConnected:
    return events.NodeConnected(
        node=node, boot_id="1", agent_version="0", outbox=node, highest_term=0, host=node,
        jobs=tuple(JobOnNode(job, 4, launcher=False) for job in jobs),
    )  # fmt: skip


def _core(job: JobRecord) -> Core:
    """Return a core that knows three nodes and the job."""
    core = Core(State(jobs={job.id: job}, names={job.name: job.id}))
    core.handle(events.ControllerStarted("0.1.0"), S)
    for node in NODES:
        core.handle(_hello(node, *([job.name] if node in job.lineage.holders else [])), 2 * S)
    return core


def _orders(done: list[actions.Action]) -> list[actions.ForgetJob]:
    return [action for action in done if isinstance(action, actions.ForgetJob)]


def _said(done: list[actions.Action]) -> list[str]:
    return [action.message for action in done if isinstance(action, actions.Announce)]


def test_every_node_that_keeps_memory_of_the_job_is_told_to_drop_it() -> None:
    core = _core(_job())
    done = core.handle(_FORGET, 9 * S)
    assert _orders(done) == [
        actions.ForgetJob(
            id=f"llama-7/g4/forget/{node}",
            node=node,
            reason="forgotten by ann",
            job="llama",
            job_id="llama-7",
            lineage_id="llama-7",
        )
        for node in ("n0", "n1")
    ]
    assert _said(done) == ["ann has the memory of llama dropped on 2 nodes"]


def test_forgetting_again_tells_the_nodes_again_and_people_once() -> None:
    core = _core(_job())
    first = core.handle(_FORGET, 9 * S)
    again = core.handle(events.OperatorForgotJob("llama", "bob"), 10 * S)
    assert _orders(again) == _orders(first)
    assert _said(again) == []
    assert core.state.newest("llama").ending.forgotten_by == "ann"


def test_a_job_that_has_not_ended_forgets_nothing() -> None:
    for state in JobState:
        if state is JobState.ENDED:
            continue
        core = _core(_job())
        core.state.newest("llama").state = state
        done = core.handle(_FORGET, 9 * S)
        assert not [one for one in done if isinstance(one, actions.ForgetJob)]
        assert core.state.newest("llama").ending.forgotten_by == ""


def test_a_job_that_nobody_knows_is_no_trouble() -> None:
    core = _core(_job())
    assert core.handle(events.OperatorForgotJob("lama", "ann"), 9 * S) == []


def test_a_node_that_was_away_is_told_when_it_is_back() -> None:
    core = _core(_job())
    core.handle(events.NodeDisconnected("n1"), 8 * S)
    core.handle(_FORGET, 9 * S)
    back = core.handle(_hello("n1", "llama"), 10 * S)
    assert [order.node for order in _orders(back)] == ["n1"]
    ended = [action for action in back if isinstance(action, actions.EndJob)]
    # An agent drops the memory only of what it knows to have ended.
    assert back.index(ended[0]) < back.index(_orders(back)[0])


def test_a_node_that_has_dropped_it_is_not_told_any_more() -> None:
    core = _core(_job())
    core.handle(_FORGET, 9 * S)
    assert _orders(core.handle(_hello("n1"), 10 * S)) == []
    assert [order.node for order in _orders(core.due(10 * S))] == ["n0"]


def test_a_controller_that_restarts_after_any_event_gives_the_same_orders() -> None:
    core = _core(_job())
    done = core.handle(_FORGET, 9 * S)
    restarted = Core(decode_state(encode(core.state)))
    assert _orders(restarted.due(10 * S)) == _orders(done)


def test_event_and_order_are_readable_from_the_journal() -> None:
    assert decode_event(kind_of(_FORGET), encode(_FORGET)) == _FORGET
    done = _orders(_core(_job()).handle(_FORGET, 9 * S))
    assert decode_actions(encode_actions(done)) == done


def test_a_new_job_of_the_name_keeps_its_memory() -> None:
    core = _core(_job())
    core.handle(_FORGET, 9 * S)
    core.state.jobs["llama-9"] = replace(_job(JobState.RUNNING), id="llama-9")
    core.state.names["llama"] = "llama-9"
    # What nodes are told again is about the one that was forgotten, and says so.
    again = _orders(core.due(10 * S)) + _orders(core.handle(_hello("n0", "llama"), 11 * S))
    assert {(one.job_id, one.lineage_id) for one in again} == {("llama-7", "llama-7")}
