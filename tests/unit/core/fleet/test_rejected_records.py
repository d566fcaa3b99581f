"""Records that cannot be used: what the core keeps of them, and what people see."""

from copy import deepcopy

from everstep_common.reports import OrderRejected
from everstep_controller.core import actions, events
from everstep_controller.core.fleet import rejected_records
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.journal.codec import decode_state, encode
from unit.core.test_decisions import S, Story

HOUR_S = 3600.0


def bad(
    node: str = "n0",
    kind: str = "launcher_joined",
    job: str = "",
    count: int = 1,
    user: str = "",
) -> events.RecordRejected:
    error = f"what {job or kind} said is wrong"
    return events.RecordRejected(node, kind, job, error, count, user)


def unusable(story: Story, count: int = 1, kind: str = "start_generation") -> events.Event:
    told = OrderRejected(kind, "o/1", "j", "StartGeneration.processes: 5000 \x1b[2J", count)
    return events.Reported(story.origin("n0"), 0, told)


def findings(story: Story) -> list[OpenFinding]:
    return list(rejected_records.findings(story.core.state))


def announced(done: list[actions.Action]) -> list[str]:
    return [action.subject for action in done if isinstance(action, actions.Announce)]


def test_a_rejected_record_is_a_finding_with_its_first_example_and_a_count() -> None:
    story = Story()
    story.tell(bad(job="one"))
    story.tell(bad(job="two", count=41))
    (held,) = findings(story)
    assert held.finding.component == "controller/records/n0/launcher_joined"
    assert held.finding.condition == "RecordRejected"
    assert "what one said is wrong" in held.finding.message
    assert "42 so far, of job one" in held.finding.evidence


def test_each_node_and_kind_has_its_own() -> None:
    story = Story()
    for event in (bad("n0"), bad("n1"), bad("n1", "progress")):
        story.tell(event)
    assert [held.finding.component for held in findings(story)] == [
        "controller/records/n0/launcher_joined",
        "controller/records/n1/launcher_joined",
        "controller/records/n1/progress",
    ]


def test_each_user_has_their_own_and_one_of_old_has_none() -> None:
    story = Story()
    for user in ("1000", "1001", ""):
        story.tell(bad(user=user))
    assert [held.finding.component for held in findings(story)] == [
        "controller/records/n0/launcher_joined/1000",
        "controller/records/n0/launcher_joined/1001",
        "controller/records/n0/launcher_joined",
    ]
    assert (
        "a launcher_joined of user 1000 that cannot be used" in findings(story)[0].finding.message
    )


def test_a_node_whose_agent_names_very_many_users_keeps_those_of_others() -> None:
    story = Story()
    story.tell(bad("n1"))
    for user in range(2000):
        story.tell(bad("n0", user=str(user)))
    kept = story.core.state.rejected_records
    assert "n1/launcher_joined" in kept
    assert len(kept) == 66
    assert kept["n0/others"].count == 2000 - 64


def test_an_order_that_an_agent_cannot_use_is_a_finding_and_told_of_the_job() -> None:
    story = Story()
    story.run()
    assert announced(story.tell(unusable(story))) == ["n0", "j"]
    assert announced(story.tell(unusable(story, count=9))) == ["j"]
    (held,) = findings(story)
    assert held.finding.condition == "OrderRejected"
    assert held.finding.component == "controller/orders/n0/start_generation"
    assert "n0 cannot use the message start_generation" in held.finding.message
    assert held.finding.message.isprintable()
    assert "10 so far, of job j" in held.finding.evidence
    story.tell(events.TimerDue("rejected/n0/orders/start_generation"), after_s=HOUR_S + 1)
    assert findings(story) == []


def test_a_state_from_before_users_were_noted_is_read() -> None:
    story = Story()
    story.tell(bad(user="1000"))
    state = encode(story.core.state).replace(b',"user":"1000","to_agent":false', b"")
    (kept,) = decode_state(state).rejected_records.values()
    assert (kept.user, kept.to_agent) == ("", False)


def test_the_node_is_told_of_once_and_a_job_that_is_known_each_time() -> None:
    story = Story()
    story.run()
    assert announced(story.tell(bad(job="j"))) == ["n0", "j"]
    assert announced(story.tell(bad(job="j"))) == ["j"]
    assert announced(story.tell(bad(job="never heard of"))) == []


def test_it_concerns_neither_the_node_nor_a_job_that_runs_there() -> None:
    story = Story()
    story.run()
    state = story.core.state
    before = deepcopy((state.newest("j"), state.nodes["n0"]))
    story.tell(bad(job="j"))
    assert (state.newest("j"), state.nodes["n0"]) == before
    assert state.paused == {}


def test_it_is_cleared_by_an_hour_without_another() -> None:
    story = Story()
    story.tell(bad())
    story.tell(bad(), after_s=HOUR_S / 2)
    due = events.TimerDue("rejected/n0/launcher_joined")
    story.tell(due, after_s=HOUR_S / 2 + 1)
    assert len(findings(story)) == 1
    story.tell(due, after_s=HOUR_S / 2)
    assert findings(story) == []


def test_it_survives_a_snapshot_and_a_new_start() -> None:
    story = Story()
    story.tell(bad())
    story.core.state = decode_state(encode(story.core.state))
    story.tell(events.ControllerStarted("0.1.0"))
    assert len(findings(story)) == 1


def test_what_is_kept_is_bounded_and_the_oldest_goes_first() -> None:
    story = Story(nodes=0)
    for number in range(1100):
        story.tell(bad(f"x{number}"))
    kept = story.core.state.rejected_records
    assert len(kept) == 1000
    assert "x99/launcher_joined" not in kept
    assert "x1099/launcher_joined" in kept
    timers = [timer for timer in story.core.state.timers if timer.startswith("rejected/")]
    assert len(timers) == 1000
    assert story.now_ns < HOUR_S * S
