"""Maintenance windows: nodes are left before one begins, not judged within it, checked after it."""

import pytest

from everstep_common import reports
from everstep_common.reports import TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import MAINTENANCE, NodeState
from everstep_controller.core.model.windows import Span, Window, WindowState
from everstep_controller.core.planned import forecast, maintenance
from everstep_controller.journal.codec import decode_state, encode
from unit.core.planned.test_restarts import PlannedStory
from unit.core.test_decisions import S, kinds

_MINUTE_S = 60


class WindowStory(PlannedStory):
    """A job of two nodes, with or without a spare, and a window of ten minutes in an hour."""

    def plan(self, *nodes: str, in_s: float = 3600, for_s: float = 600) -> Window | None:
        begin_ns = self.now_ns + int((in_s + 0.1) * S)
        self.tell(
            events.MaintenanceOrdered(
                nodes=nodes,
                begin_ns=begin_ns,
                end_ns=begin_ns + int(for_s * S),
                operator="ann",
                reason="fans",
            )
        )
        return self.core.state.windows.get(f"m-{self.core.state.windows_ordered}")

    def begin(self, *, spare: bool = True) -> "WindowStory":
        super().begin(spare=spare)
        return self

    def planned(self, *nodes: str, in_s: float = 3600, for_s: float = 600) -> Window:
        window = self.plan(*nodes, in_s=in_s, for_s=for_s)
        assert window is not None
        return window

    def run_until(self, at_ns: int) -> list[actions.Action]:
        """Let every timer of a window, and of silences, come due until then."""
        done: list[actions.Action] = []
        while due := self._next_timer(at_ns):
            name, due_ns = due
            more = self.tell(events.TimerDue(name), max(0.0, (due_ns - self.now_ns) / S))
            self._hear_nothing(more)
            done += more
        done += self.tell(events.TimerDue("nothing"), max(0.0, (at_ns - self.now_ns) / S))
        return done

    def _hear_nothing(self, done: list[actions.Action]) -> None:
        """Have those answer that are asked about a silent node: nothing of it answers."""
        for asked in [one for one in done if isinstance(one, actions.ConfirmSilence)]:
            self.tell(events.PeerJudged(asked.node, asked.peer, asked.id, udp=False), 0.0)

    def _next_timer(self, at_ns: int) -> tuple[str, int] | None:
        timers = self.core.state.timers.items()
        soon = [(at, name) for name, at in timers if at <= at_ns and _is_of_window(name)]
        at, name = min(soon, default=(0, ""))
        return (name, at) if name else None

    def checked(self, node: str, done: list[actions.Action]) -> None:
        """Let a node pass the check that was ordered."""
        for check in [a for a in done if isinstance(a, actions.RunCheck) and a.node == node]:
            self.tell(
                events.Reported(self.origin(node), 0, reports.CheckFinished(check.id, True, "good"))
            )

    def moved(self) -> None:
        """Carry out what is planned for the job."""
        planned = self.job.planned
        assert planned is not None
        self.recoverable(planned.after_step or 0)
        self.stop_all()
        self.choose(planned.after_step)


def _is_of_window(timer: str) -> bool:
    kinds = ("maintenance", "silence", "confirm", "probation")
    return timer.partition("/")[0] in kinds


def test_a_job_leaves_for_a_spare_ahead_of_the_window_and_loses_no_step() -> None:
    story = WindowStory().begin()
    window = story.planned("n1")
    assert story.core.state.nodes["n1"].usable
    story.run_until(window.span.begin_ns - window.lead_ns)
    assert story.owners("n1") == [MAINTENANCE]
    assert story.state_of_job() is JobState.RUNNING
    story.moved()
    assert story.job.generation.members == ["n0", "n2"]
    assert story.incidents[-1].cause == "maintenance"
    done = story.run_until(window.span.begin_ns)
    assert story.state("n1") is NodeState.MAINTENANCE
    assert actions.StopGeneration not in kinds(done)


def test_nothing_is_judged_on_a_node_in_maintenance_and_its_silence_is_no_loss() -> None:
    story = WindowStory().begin()
    window = story.planned("n1")
    story.run_until(window.span.begin_ns - window.lead_ns)
    story.moved()
    story.run_until(window.span.begin_ns)
    story.find("n1")
    asked = story.tell(events.NodeDisconnected("n1"))
    asked += story.tell(events.PeerReported("n0", "n1", silent=True))
    assert actions.ConfirmSilence not in kinds(asked)
    story.run_until(story.now_ns + _MINUTE_S * S)
    assert story.state("n1") is NodeState.MAINTENANCE
    assert story.core.state.nodes["n1"].gone
    assert story.owners("n1") == [MAINTENANCE]
    assert len(story.incidents) == 1


def test_after_the_window_a_node_is_checked_and_is_the_last_choice_for_a_while() -> None:
    story = WindowStory().begin()
    window = story.planned("n1")
    story.run_until(window.span.begin_ns - window.lead_ns)
    story.moved()
    story.run_until(window.span.begin_ns)
    story.checked("n1", story.run_until(window.span.end_ns))
    assert story.state("n1") is NodeState.PROBATION
    assert story.owners("n1") == []
    assert window.state is WindowState.OVER


def test_a_node_that_is_not_back_at_the_end_is_lost() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.run_until(window.span.begin_ns)
    story.tell(events.NodeDisconnected("n2"))
    story.run_until(window.span.end_ns)
    # Its machine may be up: it is asked about first.
    assert story.state("n2") is NodeState.VALIDATING
    story.run_until(window.span.end_ns + _MINUTE_S * S)
    assert story.state("n2") is NodeState.LOST
    story.connect("n2", boot="2")
    assert story.state("n2") is NodeState.PROBATION
    assert story.owners("n2") == []


def test_a_node_whose_agent_alone_is_away_at_the_end_is_doubtful_and_not_lost() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.run_until(window.span.begin_ns)
    story.tell(events.NodeDisconnected("n2"))
    asked = story.run_until(window.span.end_ns)
    question = next(one for one in asked if isinstance(one, actions.ConfirmSilence))
    word = events.PeerJudged(question.node, question.id, "n2", udp=False, tcp=TcpAnswer.REFUSED)
    story.tell(word)
    story.run_until(story.now_ns + 3 * S)
    assert story.state("n2") is NodeState.VALIDATING
    assert story.core.state.nodes["n2"].doubtful


def test_a_controller_that_has_just_started_takes_no_node_for_lost_at_the_end() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.run_until(window.span.end_ns - S)
    story.tell(events.ControllerStarted("0.1.0"))
    for node in ("n0", "n1"):
        story.connect(node)
    story.run_until(window.span.end_ns)
    assert story.state("n2") is NodeState.VALIDATING
    story.run_until(story.now_ns + 3 * _MINUTE_S * S)
    assert story.state("n2") is NodeState.LOST


def test_without_a_spare_the_job_stops_at_a_step_before_the_window_and_waits_for_its_end() -> None:
    story = WindowStory(nodes=2).begin(spare=False)
    window = story.planned("n1")
    told = dict(forecast.window_forecasts(story.core.state, window))
    assert "will interrupt j" in told["j"]
    assert [f.finding.condition for f in forecast.interruption_findings(story.core.state)] == [
        "MaintenanceInterrupts"
    ]
    story.run_until(window.span.begin_ns - window.lead_ns)
    assert not story.is_planned()
    story.run_until(window.span.begin_ns - story.core.state.settings.maintenance_stop_lead_ns)
    planned = story.job.planned
    assert planned is not None
    story.recoverable(planned.after_step or 0)
    story.stop_all()
    assert story.state_of_job() is JobState.WAITING_CAPACITY
    story.run_until(window.span.begin_ns)
    story.checked("n1", story.run_until(window.span.end_ns))
    assert story.job.generation.members == ["n0", "n1"]
    story.choose(planned.after_step)
    assert story.job.generation.restore_step == planned.after_step
    totals = story.job.ledger.totals(story.now_ns)
    assert totals[Category.PLANNED] > 600 * S
    assert not [name for name in totals if name.startswith("inc.") and totals[name]]


def test_a_restart_that_is_planned_for_a_far_step_is_brought_forward_by_the_window() -> None:
    story = WindowStory().begin()
    story.restart(at_step=100_000)
    window = story.planned("n1")
    story.run_until(window.span.begin_ns - story.core.state.settings.maintenance_stop_lead_ns)
    assert story.job.planned is not None
    assert (story.job.planned.after_step or 100_000) < 1000
    story.moved()
    assert story.job.generation.members == ["n0", "n2"]


def test_what_is_not_recoverable_in_time_is_stopped_when_the_window_begins() -> None:
    story = WindowStory(nodes=2).begin(spare=False)
    window = story.planned("n1")
    story.run_until(window.span.begin_ns)
    assert story.state_of_job() is JobState.STOPPING
    assert story.incidents[-1].cause == "maintenance"


def test_a_stop_that_a_powered_off_node_does_not_confirm_is_not_waited_for() -> None:
    story = WindowStory(nodes=2).begin(spare=False)
    window = story.planned("n1")
    story.run_until(window.span.begin_ns)
    story.tell(events.NodeDisconnected("n1"))
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(1, 1), "j")
    )
    assert story.state_of_job() is JobState.STOPPING
    story.run_until(story.now_ns + _MINUTE_S * S)
    assert story.state_of_job() is JobState.WAITING_CAPACITY


def test_a_launcher_that_goes_down_with_its_node_does_not_end_the_job() -> None:
    story = WindowStory(nodes=2).begin(spare=False)
    window = story.planned("n1")
    story.run_until(window.span.begin_ns)
    story.tell(
        events.Reported(
            story.origin("n1"), story.now_ns, reports.LauncherLeft("SIGTERM", True), "j"
        )
    )
    story.tell(
        events.Reported(story.origin("n0"), story.now_ns, reports.GenerationStopped(1, 1), "j")
    )
    assert story.state_of_job() is JobState.WAITING_CAPACITY


def test_a_cancelled_window_leaves_everything_as_it_was() -> None:
    story = WindowStory().begin()
    window = story.planned("n1")
    story.run_until(window.span.begin_ns - window.lead_ns)
    assert story.is_planned()
    story.tell(events.MaintenanceCancelled(window.id, "bob"))
    assert story.core.state.nodes["n1"].usable
    assert not story.is_planned()
    story.run_until(window.span.end_ns)
    assert story.state("n1") is NodeState.HEALTHY
    assert window.ended_by == "bob"


def test_a_window_that_is_cancelled_within_ends_there() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.run_until(window.span.begin_ns)
    story.checked("n2", story.tell(events.MaintenanceCancelled(window.id, "bob")))
    assert story.state("n2") is NodeState.PROBATION
    story.run_until(window.span.end_ns)
    assert story.state("n2") is NodeState.PROBATION


def test_an_operators_claim_outlives_the_window() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.tell(events.OperatorIsolated("n2", "ops", "smoke"))
    story.run_until(window.span.begin_ns)
    story.checked("n2", story.run_until(window.span.end_ns))
    assert story.owners("n2") == ["operator"]


def test_a_node_that_is_checked_shortly_before_its_window_keeps_that_claim() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.run_until(window.span.begin_ns - window.lead_ns)
    story.tell(events.NodeDisconnected("n2"))
    story.run_until(story.now_ns + _MINUTE_S * S)
    assert story.state("n2") is NodeState.LOST
    story.connect("n2", boot="2")
    assert story.state("n2") is NodeState.PROBATION
    assert story.owners("n2") == [MAINTENANCE]


def test_a_window_that_passed_while_the_controller_was_away_is_told_and_drains_nothing() -> None:
    story = WindowStory().begin()
    window = story.planned("n1")
    story.tell(events.TimerDue(f"maintenance/{window.id}"), after_s=5000)
    assert window.state is WindowState.OVER
    assert story.core.state.nodes["n1"].usable


def test_the_lead_is_what_planned_restarts_have_taken_where_that_is_more() -> None:
    story = WindowStory().begin()
    story.restart(at_step=4)
    story.train(4, saved=4)
    story.stop_all()
    story.choose(4)
    story.now_ns += 900 * S
    story.train(5, 6, saved=6)
    window = story.planned("n1")
    assert window.lead_ns > (300 + 900) * S


@pytest.mark.parametrize(
    ("nodes", "in_s", "for_s", "said"),
    [
        ((), 60, 600, "no node is named"),
        (("n9",), 60, 600, "no node named 'n9'"),
        (("n1",), -600, 600, "is past"),
        (("n1",), 60, 5, "too short"),
        (("n1",), 60, 32 * 86_400, "31 days"),
        (("n1",), 400 * 86_400, 600, "a year"),
        (("n1", "n2"), 4000, 600, "n2 has a window then: m-1"),
    ],
)
def test_a_window_that_makes_no_sense_is_refused_with_a_reason(
    nodes: tuple[str, ...], in_s: float, for_s: float, said: str
) -> None:
    story = WindowStory().begin()
    story.now_ns += 3600 * S
    story.planned("n2")
    begin_ns = story.now_ns + int(in_s * S)
    span = Span(nodes, begin_ns, begin_ns + int(for_s * S))
    assert said in maintenance.problem_with(story.core.state, span, story.now_ns)
    story.plan(*nodes, in_s=in_s, for_s=for_s)
    assert list(story.core.state.windows) == ["m-1"]


def test_windows_that_only_touch_do_not_overlap() -> None:
    story = WindowStory().begin()
    first = story.planned("n2")
    span = Span(("n2",), first.span.end_ns, first.span.end_ns + 600 * S)
    assert not maintenance.problem_with(story.core.state, span, story.now_ns)


def test_what_is_over_is_forgotten_after_a_while() -> None:
    story = WindowStory().begin()
    window = story.planned("n2")
    story.run_until(window.span.end_ns)
    assert window.id in story.core.state.windows
    story.run_until(window.span.end_ns + story.core.state.settings.ended_job_retention_ns)
    assert not story.core.state.windows


@pytest.mark.parametrize("spare", [True, False])
def test_a_controller_that_dies_after_any_event_carries_the_window_out_all_the_same(
    spare: bool,
) -> None:
    story = WindowStory(nodes=3 if spare else 2).begin(spare=spare)
    window = story.planned("n1")
    story.run_until(window.span.begin_ns - window.lead_ns)
    story.run_until(window.span.begin_ns - story.core.state.settings.maintenance_stop_lead_ns)
    planned = story.job.planned
    assert planned is not None
    story.recoverable(planned.after_step or 0)
    story.stop_all()
    story.run_until(window.span.begin_ns)
    story.tell(events.NodeDisconnected("n1"))
    story.run_until(story.now_ns + _MINUTE_S * S)
    story.connect("n1", boot="2")
    story.checked("n1", story.run_until(window.span.end_ns))
    whole = encode(story.core.state)
    for died_after in range(len(story.told)):
        core = Core()
        for index, (event, at_ns) in enumerate(story.told):
            if index == died_after:
                core = Core(decode_state(encode(core.state)))
                core.due(at_ns)
            core.handle(event, at_ns)
        assert encode(core.state) == whole
