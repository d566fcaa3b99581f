"""Members whose agents are connected and do not answer: each state, with a spare and without."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from everstep_common import reports
from everstep_common.reports import Phase
from everstep_controller.core import actions, events
from everstep_controller.core.jobs.lifecycle import WAITS
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.timers import TimerKind
from everstep_controller.core.recovery.planning import candidates
from unit.core.chosen_settings import STALLS_IGNORED
from unit.core.jobs.test_interrupted_end import from_every_prefix
from unit.core.test_decisions import S, Story, launcher_joined

# Here ranks may be late for hours.
SETTINGS = STALLS_IGNORED
ANSWER_S = SETTINGS.answer_timeout_ns // S
HOLDINGS_S = SETTINGS.holdings_timeout_ns // S
RESTORE_S = SETTINGS.restore_timeout_ns // S
ALL_PHASES = tuple(Phase)


class Agents(Story):
    """A job of n0 and n1, whose agents carry out what they are ordered; n1 does what it is told to.

    n2 is there as well, and waits as a spare where it has joined.
    """

    def __init__(self, settings: Settings = SETTINGS) -> None:
        self.settings = settings
        self.journal: list[tuple[events.Event, int]] = []
        self.done: list[actions.Action] = []
        # Orders that n1 does not carry out, phases that its ranks reach, and whether it tells what
        # it holds.
        self.deaf: tuple[type, ...] = ()
        self.phases: tuple[Phase, ...] = ALL_PHASES
        self.mute = False
        # The script does not use the library: all that comes of it is that its processes run.
        self.silent_ranks = False
        # How far each node's ranks are, as it told.
        self.reached: dict[str, tuple[int, Phase]] = {}
        super().__init__(3, settings)

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        self.now_ns += int(after_s * S)
        return self.take(event)

    def take(self, event: events.Event) -> list[actions.Action]:
        """Hand an event to the core, and have the agents carry out what it orders."""
        self.journal.append((event, self.now_ns))
        called_for = self.core.handle(event, self.now_ns)
        self.done += called_for
        for action in called_for:
            self.carry_out(action)
        return called_for

    def carry_out(self, action: actions.Action) -> None:
        """Have the agent that is ordered something do it and say so."""
        match action:
            case actions.StartGeneration() if self._obeys(action):
                self._start(action)
            case actions.StopGeneration() if self._obeys(action):
                self.report(action.node, reports.GenerationStopped(action.generation, 4321))
            case actions.ChooseRecoveryStep():
                holders = {*action.holders, *action.others} - set(action.overdue)
                if not self.mute or "n1" not in holders:
                    self.tell(
                        events.RecoveryStepChosen(
                            job="j", generation=action.generation, step=None, lost=""
                        )
                    )

    def _obeys(self, order: actions.StartGeneration | actions.StopGeneration) -> bool:
        return order.node != "n1" or not isinstance(order, self.deaf)

    def _start(self, order: actions.StartGeneration) -> None:
        generation, phase = self.reached.get(order.node, (0, Phase.STARTED))
        if generation == order.generation:
            self.report(order.node, reports.PhaseReached(generation, phase))
            return
        reached = self.phases if order.node == "n1" else ALL_PHASES
        for phase in reached[:1] if self.silent_ranks else reached:
            self.reached[order.node] = (order.generation, phase)
            self.report(order.node, reports.PhaseReached(order.generation, phase))

    def report(self, node: str, report: reports.Report) -> list[actions.Action]:
        return self.tell(events.Reported(self.origin(node), self.now_ns, report, "j"), 0.001)

    def wait_s(self, seconds: float) -> None:
        """Let time pass, and what comes due be told."""
        until_ns = self.now_ns + int(seconds * S)
        while due := [(at, name) for name, at in self.core.state.timers.items() if at <= until_ns]:
            at_ns, name = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            self.take(events.TimerDue(name))
        self.now_ns = max(until_ns, self.now_ns)

    @property
    def job(self) -> JobRecord:
        return self.core.state.newest("j")

    @property
    def members(self) -> list[str]:
        return list(self.job.generation.members)

    @property
    def runs(self) -> bool:
        return self.job.state is JobState.RUNNING

    def findings(self, node: str = "n1") -> list[str]:
        return [
            held.finding.condition for held in self.core.state.nodes[node].health.findings.values()
        ]

    def said(self, reason: str) -> list[str]:
        told = (a for a in self.done if isinstance(a, actions.Announce))
        return [one.message for one in told if one.reason == reason]


@dataclass(frozen=True)
class Case:
    """What n1 does not do, so that its job stays in a state; and for how long it may."""

    state: JobState
    patience_s: float
    deaf: tuple[type, ...] = ()
    phases: tuple[Phase, ...] = ALL_PHASES
    mute: bool = False


CASES = (
    Case(JobState.STOPPING, ANSWER_S, (actions.StopGeneration,)),
    Case(JobState.REPLANNING, HOLDINGS_S, mute=True),
    Case(JobState.STARTING, ANSWER_S, (actions.StartGeneration,)),
    Case(JobState.RESTORING, ANSWER_S, phases=(Phase.STARTED, Phase.ATTACHED)),
    Case(JobState.WARMING, ANSWER_S),
)
_ids = pytest.mark.parametrize("case", CASES, ids=lambda case: case.state.value)


def held_up(case: Case, *, spare: bool, settings: Settings = SETTINGS) -> Agents:
    """Run a job, let a rank die, and have n1 not do its part of what follows."""
    story = Agents(settings)
    story.join("n0")
    story.join("n1")
    if spare:
        story.join("n2")
    story.progress(0)
    assert story.job.state is JobState.RUNNING
    story.deaf, story.phases, story.mute = case.deaf, case.phases, case.mute
    story.exit_rank("n0")
    assert story.job.state is case.state
    # Who does not answer one order, or hangs when it has begun, answers none from then on.
    story.deaf = () if case.mute else (actions.StartGeneration, actions.StopGeneration)
    return story


def obey(story: Agents) -> None:
    """Have the agent of n1 do everything again, from the next order on."""
    story.deaf, story.phases, story.mute = (), ALL_PHASES, False


@_ids
def test_a_spare_takes_the_place_of_a_member_that_never_answers(case: Case) -> None:
    story = held_up(case, spare=True)
    before = story.job.generation.number
    story.wait_s(case.patience_s + 1)
    if case.state is JobState.REPLANNING:
        # Nobody waits for what it holds; as a member it has done nothing wrong yet.
        assert (story.members, story.job.generation.number) == (["n0", "n1"], before)
    else:
        assert (story.members, story.job.generation.number) == (["n0", "n2"], before + 1)
        assert story.findings() == ["OrdersUnanswered"]
    assert story.job.state is JobState.WARMING
    story.progress(1)
    assert story.runs


@_ids
def test_without_a_spare_people_are_told_and_it_goes_on_when_the_agent_answers(case: Case) -> None:
    story = held_up(case, spare=False)
    story.wait_s(case.patience_s + 1)
    if case.state is JobState.STOPPING:
        assert story.job.state is JobState.WAITING_CAPACITY
        assert "n1 has still to stop" in story.job.reason
    elif case.state is not JobState.REPLANNING:
        assert story.job.state is case.state
        (message,) = story.said("MemberOverdue")
        assert "start another launcher" in message
        assert "systemctl restart everstep-agent" in message
    story.wait_s(20_000)
    assert len(story.said("MemberOverdue")) == (case.state is not JobState.REPLANNING)
    obey(story)
    story.reached.clear()  # it begins, or goes on, when it is asked the next time
    story.wait_s(7_200)
    assert story.members == ["n0", "n1"]
    assert story.job.state is JobState.WARMING
    assert (story.findings(), story.job.overdue) == ([], {})
    story.progress(1)
    assert story.runs


@_ids
def test_who_answers_just_before_the_deadline_is_no_worse_for_it(case: Case) -> None:
    story = held_up(case, spare=True)
    before = story.job.generation.number
    story.wait_s(case.patience_s / 2 + 1)
    assert story.job.state is case.state
    obey(story)
    story.reached.clear()
    for order in story.core.due(story.now_ns):
        story.carry_out(order)
    if case.state in (JobState.RESTORING, JobState.WARMING):
        for phase in ALL_PHASES:
            story.report("n1", reports.PhaseReached(before, phase))
    story.wait_s(case.patience_s)
    assert story.members == ["n0", "n1"]
    assert story.job.state is JobState.WARMING
    assert (story.findings(), story.job.overdue, story.said("MemberOverdue")) == ([], {}, [])


@_ids
def test_whoever_comes_late_changes_nothing_and_is_a_spare_when_it_has_stopped(case: Case) -> None:
    if case.state is JobState.REPLANNING:
        return  # it is a member all the same
    story = held_up(case, spare=True)
    old = story.job.generation.number
    story.wait_s(case.patience_s + 1)
    assert story.members == ["n0", "n2"]
    story.report("n1", reports.PhaseReached(old, Phase.RESTORED))
    story.report("n1", reports.GenerationFinished(old))
    assert story.job.launchers["n1"].stale_generation == old
    assert "n1" not in [node.name for node in candidates(story.core.state, story.job)]
    story.report("n1", reports.GenerationStopped(old, 1))
    assert story.job.launchers["n1"].stale_generation == 0
    assert "n1" in [node.name for node in candidates(story.core.state, story.job)]
    assert story.findings() == []
    assert (story.members, story.job.state) == (["n0", "n2"], JobState.WARMING)
    # As a spare it takes the place of the next one that fails.
    obey(story)
    story.progress(1)
    story.lose("n2")
    assert story.members == ["n0", "n1"]
    assert story.job.state is JobState.WARMING


@_ids
def test_what_was_decided_is_decided_again_from_every_prefix(case: Case) -> None:
    story = held_up(case, spare=True)
    story.wait_s(case.patience_s + 1)
    from_every_prefix(story)


@pytest.mark.parametrize("state", [JobState.STARTING, JobState.RESTORING])
def test_ranks_that_are_behind_others_are_waited_for_while_their_agent_answers(
    state: JobState,
) -> None:
    """Restoring 100 GB from a slow storage, or calling in late, is no silence."""
    phases = (Phase.STARTED,) if state is JobState.STARTING else (Phase.STARTED, Phase.ATTACHED)
    story = held_up(Case(state, RESTORE_S, phases=phases), spare=True)
    story.deaf = ()
    before = story.job.generation.number
    story.wait_s(RESTORE_S - 60)
    assert (story.job.state, story.job.generation.number) == (state, before)
    assert (story.findings(), story.said("MemberOverdue")) == ([], [])
    story.wait_s(RESTORE_S)
    assert story.members == ["n0", "n2"]
    assert story.job.generation.number == before + 1


def test_a_job_that_compiles_for_hours_is_told_of_once_and_not_stopped() -> None:
    story = held_up(CASES[-1], spare=True)
    story.deaf = ()
    before = story.job.generation.number
    story.wait_s(1_200)
    assert not story.said("JobWarmsLong")
    story.wait_s(20_000)
    assert (story.job.state, story.job.generation.number) == (JobState.WARMING, before)
    (message,) = story.said("JobWarmsLong")
    assert "everstep job j restart" in message


def test_the_restart_that_people_are_told_of_stops_a_job_that_never_makes_its_first_step() -> None:
    story = held_up(CASES[-1], spare=True)
    story.deaf = ()
    before = story.job.generation.number
    story.tell(events.RestartOrdered("j", "ops", "it hangs"))
    story.wait_s(20)
    assert story.job.generation.number == before + 1


def test_a_script_without_the_library_is_not_stopped_for_what_it_never_says() -> None:
    story = Agents()
    story.silent_ranks = True
    for node in ("n0", "n1", "n2"):
        story.join(node)
    assert story.job.state is JobState.STARTING
    story.deaf = (actions.StartGeneration,)
    story.wait_s(86_400)
    assert (story.job.state, story.members) == (JobState.STARTING, ["n0", "n1"])
    assert story.job.generation.number == 1
    asked = [a for a in story.done if isinstance(a, actions.StartGeneration) and a.node == "n0"]
    assert 10 < len(asked) < 40
    assert story.findings() == ["OrdersUnanswered"]
    assert story.findings("n0") == []


@pytest.mark.parametrize("deaf", [actions.StartGeneration, actions.StopGeneration])
def test_a_job_of_one_node_moves_to_the_spare(deaf: type) -> None:
    story = Agents()
    for node in ("n1", "n0"):
        story.tell(
            events.Reported(
                story.origin(node),
                0,
                launcher_joined(nodes_min=1, nodes_max=1),
                "j",
            )
        )
    assert story.members == ["n1"]
    story.progress(0)
    story.deaf = (deaf,)
    story.exit_rank("n1")
    story.wait_s(ANSWER_S + 1)
    assert story.members == ["n0"]
    assert story.job.state is JobState.WARMING


def _start(story: Agents) -> None:
    story.tell(events.ControllerStarted("0.1.0"))
    for node in ("n0", "n1", "n2"):
        jobs = (reports.JobOnNode("j", story.job.generation.number, True),)
        story.tell(_hello(story, node, jobs))


def _hello(story: Agents, node: str, jobs: tuple[reports.JobOnNode, ...]) -> events.NodeConnected:
    return events.NodeConnected(
        node=node,
        boot_id="1",
        agent_version="0.1.0",
        outbox=f"{node}-box",
        highest_term=story.core.state.term - 1,
        host=node,
        bulk_address=f"{node}:1",
        liveness_address=f"{node}:2",
        jobs=jobs,
    )


def _stall(story: Agents) -> None:
    story.now_ns += 50 * S
    story.take(events.ControllerStalled(50 * S))


@pytest.mark.parametrize(
    ("interrupt", "grace_s"), [(_start, SETTINGS.startup_grace_ns / S), (_stall, 0.0)]
)
def test_the_absence_of_the_controller_is_no_silence_of_a_member(
    interrupt: Callable[[Agents], None], grace_s: float
) -> None:
    story = held_up(CASES[0], spare=True)
    story.wait_s(ANSWER_S - 10)
    interrupt(story)
    story.wait_s(max(grace_s, 10) - 2)
    assert (story.job.state, story.job.overdue) == (JobState.STOPPING, {})
    # An agent that has connected since is asked once more.
    story.wait_s(10 if interrupt is _stall else ANSWER_S + 10)
    assert story.members == ["n0", "n2"]


def test_nothing_is_decided_while_automation_is_paused_and_soon_after() -> None:
    story = held_up(CASES[0], spare=True)
    story.tell(events.AutomationPaused("j", "ops", "drill"))
    story.wait_s(10 * ANSWER_S)
    assert story.job.state is JobState.STOPPING
    story.tell(events.AutomationResumed("j", "ops"))
    story.wait_s(2 * ANSWER_S)
    assert story.members == ["n0", "n2"]


def test_a_member_that_is_away_is_left_to_liveness() -> None:
    story = held_up(CASES[0], spare=True)
    story.take(events.NodeDisconnected("n1"))
    story.core.state.nodes["n1"].liveness.silence.expected_until_ns = story.now_ns + 10_000 * S
    story.wait_s(5 * ANSWER_S)
    assert "n1" not in story.job.overdue


def test_a_timer_that_is_over_is_no_timer_of_the_next_state() -> None:
    """Each state begins its own wait, and the last one has none."""
    story = held_up(CASES[0], spare=True)
    story.wait_s(ANSWER_S + 1)
    for state, wait in WAITS.items():
        timed = f"{TimerKind.ANSWER}/{story.job.id}" in story.core.state.timers
        if story.job.state is state:
            assert timed is (wait.timer is TimerKind.ANSWER)
    story.progress(1)
    assert f"{TimerKind.ANSWER}/{story.job.id}" not in story.core.state.timers


def test_of_a_node_that_is_removed_no_job_remembers_that_it_did_not_answer() -> None:
    story = held_up(CASES[0], spare=True)
    story.wait_s(ANSWER_S + 1)
    assert story.job.overdue
    story.core.state.nodes["n1"].state = NodeState.LOST
    story.core.state.nodes["n1"].liveness.connected = False
    story.tell(events.NodeRemoved("n1", "ops", "gone"))
    assert "n1" not in story.core.state.nodes
    assert story.job.overdue == {}
