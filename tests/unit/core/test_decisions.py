"""Single decisions of the core, told as short stories."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import JobOnNode, Phase, TcpAnswer
from everstep_controller.core import actions, events
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.fleet.incidents import incidents_of_job, open_incident
from everstep_controller.core.model.job import JobIncident, JobState
from everstep_controller.core.model.node import NodeState, Origin
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes.claims import release_problem

S = 1_000_000_000
XID = Finding(component="gpu/0", condition="XidFatal", severity=Severity.FATAL, message="Xid 79")


def launcher_joined(**others: object) -> reports.LauncherJoined:
    """Return what a launcher says that joins: of a job of two nodes with a rank each, or others."""
    usual = reports.LauncherJoined(
        uid=1,
        token_sha256="t",
        nodes_min=2,
        nodes_max=2,
        processes_per_node=1,
        reform=False,
        restarts_max=2,
        free_port=1234,
    )
    return replace(usual, **others)  # type: ignore[arg-type]


class Story:
    """A core with a clock, and short words for the events that it is told."""

    def __init__(
        self,
        nodes: int = 3,
        settings: Settings | None = None,
        drivers: tuple[str, ...] = (),
    ) -> None:
        self.core = Core()
        self.now_ns = 0
        self.sequence = 0
        # The newest term that each agent has been told, by its outbox.
        self.terms: dict[str, int] = {}
        self.tell(events.ControllerStarted("0.1.0"))
        self.tell(events.SettingsApplied(settings or Settings(mode=Mode.ENFORCE), drivers))
        for index in range(nodes):
            self.connect(f"n{index}")

    def tell(self, event: events.Event, after_s: float = 0.1) -> list[actions.Action]:
        self.now_ns += int(after_s * S)
        done = self.core.handle(event, self.now_ns)
        for call in [action for action in done if isinstance(action, actions.CallRoll)]:
            # All agents answer that have a stream.
            heard = events.RollCalled(call.id, self.core.state.index.heard.total)
            done += self.core.handle(heard, self.now_ns)
        return done

    def origin(self, node: str) -> Origin:
        self.sequence += 1
        return Origin(node, f"{node}-box", self.sequence)

    def connect(
        self, node: str, boot: str = "1", jobs: tuple[JobOnNode, ...] = (), outbox: str = ""
    ) -> None:
        outbox = outbox or f"{node}-box"
        hello = events.NodeConnected(
            node=node,
            boot_id=boot,
            agent_version="0.1.0",
            outbox=outbox,
            highest_term=self.terms.get(outbox, 0),
            host=node,
            bulk_address=f"{node}:1",
            liveness_address=f"{node}:2",
            jobs=jobs,
        )
        for action in self.tell(hello):
            if isinstance(action, actions.RunCheck):
                self.tell(
                    events.Reported(
                        self.origin(node), 0, reports.CheckFinished(action.id, True, "all is well")
                    )
                )
        known = self.core.state.nodes.get(node)
        if known is not None and known.spec.outbox == outbox:
            self.terms[outbox] = self.core.state.term

    def lose(self, node: str) -> list[actions.Action]:
        """Have a node's stream end, and all that are asked about it get no answer."""
        asked = self.tell(events.NodeDisconnected(node))
        for question in asked:
            if isinstance(question, actions.ConfirmSilence):
                self.tell(
                    events.PeerJudged(
                        question.node, node, question.id, udp=False, tcp=TcpAnswer.SILENT
                    )
                )
        return self.tell(events.TimerDue(f"silence/{node}"), after_s=20)

    def find(self, node: str, finding: Finding = XID) -> list[actions.Action]:
        return self.tell(
            events.Reported(self.origin(node), self.now_ns, reports.FindingRaised(finding))
        )

    def state(self, node: str) -> NodeState:
        return self.core.state.nodes[node].state

    @property
    def incidents(self) -> list[JobIncident]:
        return incidents_of_job(self.core.state, self.core.state.newest("j"))

    @property
    def open_incident(self) -> JobIncident | None:
        return open_incident(self.core.state, self.core.state.newest("j"))

    def owners(self, node: str) -> list[str]:
        return [claim.owner for claim in self.core.state.nodes[node].isolation.claims]

    def join(self, node: str, *, token: str = "t", uid: int = 1) -> list[actions.Action]:
        return self.tell(
            events.Reported(
                self.origin(node),
                0,
                launcher_joined(uid=uid, token_sha256=token),
                "j",
            )
        )

    def choose(self, step: int | None, lost: str = "") -> list[actions.Action]:
        generation = self.core.state.newest("j").generation.number
        return self.tell(
            events.RecoveryStepChosen(job="j", generation=generation, step=step, lost=lost)
        )

    def run(self) -> None:
        self.join("n0")
        self.join("n1")
        self.choose(None)
        for phase in Phase:
            for node in ("n0", "n1"):
                event = events.Reported(
                    self.origin(node), self.now_ns, reports.PhaseReached(1, phase), "j"
                )
                self.tell(event)
        self.progress(0)

    def progress(self, step: int) -> list[actions.Action]:
        generation = self.core.state.newest("j").generation.number
        row = events.JobProgressed(
            job="j", generation=generation, first_step=step, end_ns=(self.now_ns,), stall_ns=(0,)
        )
        return self.tell(row)

    def exit_rank(self, node: str) -> list[actions.Action]:
        generation = self.core.state.newest("j").generation.number
        return self.tell(
            events.Reported(
                self.origin(node),
                self.now_ns,
                reports.RankExited(
                    generation=generation, rank=0, exit_code=1, signal=0, last_line="boom"
                ),
                "j",
            )
        )

    def stop_all(self) -> list[actions.Action]:
        job = self.core.state.newest("j")
        done: list[actions.Action] = []
        for node in job.generation.members:
            event = events.Reported(
                self.origin(node),
                self.now_ns,
                reports.GenerationStopped(job.generation.number, 4321),
                "j",
            )
            done += self.tell(event)
        return done


def kinds(done: list[actions.Action]) -> set[type]:
    return {type(action) for action in done}


def test_a_node_that_passes_its_check_is_healthy() -> None:
    assert Story().state("n0") is NodeState.HEALTHY


def test_a_fatal_finding_isolates_only_where_automation_may() -> None:
    enforce, advise = Story(), Story(settings=Settings(mode=Mode.ADVISE))
    enforce.find("n0")
    assert (enforce.state("n0"), enforce.owners("n0")) == (NodeState.REPAIRING, ["automation"])
    advise.find("n0")
    assert (advise.state("n0"), advise.owners("n0")) == (NodeState.SUSPECT, [])


def test_a_detector_that_only_observes_changes_nothing_until_the_operator_says_so() -> None:
    observed = replace(XID, mode=Mode.OBSERVE)
    shipped = Story()
    shipped.find("n0", observed)
    assert (shipped.state("n0"), shipped.owners("n0")) == (NodeState.HEALTHY, [])
    trusted = Story(settings=Settings(mode=Mode.ADVISE, enforce=("XidFatal",)))
    trusted.find("n0", observed)
    assert trusted.owners("n0") == ["automation"]


def test_a_detector_that_advises_makes_a_node_suspect_and_isolates_nothing() -> None:
    story = Story()
    story.find("n0", replace(XID, mode=Mode.ADVISE))
    assert (story.state("n0"), story.owners("n0")) == (NodeState.SUSPECT, [])


def test_the_budget_defers_the_third_isolation_until_one_is_released() -> None:
    story = Story(nodes=6)
    for node in ("n0", "n1", "n2"):
        story.find(node)
    assert story.owners("n2") == []
    story.tell(
        events.Reported(story.origin("n0"), 0, reports.FindingCleared("gpu/0", "XidFatal", "ok"))
    )
    checks = [a for a in story.core.due(0) if isinstance(a, actions.RunCheck)]
    story.tell(
        events.Reported(story.origin("n0"), 0, reports.CheckFinished(checks[0].id, True, "good"))
    )
    assert (story.owners("n0"), story.owners("n2")) == ([], ["automation"])


def test_a_pause_stops_isolation_and_a_resume_makes_up_for_it() -> None:
    story = Story()
    story.tell(events.AutomationPaused("fleet", "ops", "maintenance"))
    story.find("n0")
    assert story.owners("n0") == []
    story.tell(events.AutomationResumed("fleet", "ops"))
    assert story.owners("n0") == ["automation"]


def test_an_operators_claim_survives_everything_but_the_operator() -> None:
    story = Story()
    story.tell(events.OperatorIsolated("n0", "ops", "swap the fan"))
    story.connect("n0", boot="2")
    story.find("n0")
    assert "operator" in story.owners("n0")
    story.tell(events.OperatorReleased("n0", "ops", "done"))
    assert "operator" not in story.owners("n0")


def test_a_release_is_the_operators_word_that_a_finding_is_dealt_with() -> None:
    story = Story()
    story.find("n0")
    done = story.tell(events.OperatorReleased("n0", "ops", "GPU was reset"))
    check = next(a for a in done if isinstance(a, actions.RunCheck))
    story.tell(
        events.Reported(story.origin("n0"), 0, reports.CheckFinished(check.id, True, "good"))
    )
    assert (story.state("n0"), story.owners("n0")) == (NodeState.PROBATION, [])
    story.find("n0")
    assert story.owners("n0") == ["automation"]


def test_three_peers_must_confirm_a_silence() -> None:
    story = Story(nodes=5)
    asked = story.tell(events.PeerReported("n2", "n0", True, 3 * S), after_s=10)
    for watcher in ("n3", "n4"):
        story.tell(events.PeerReported(watcher, "n0", True, 3 * S), after_s=0)
    questions = [a for a in asked if isinstance(a, actions.ConfirmSilence)]
    assert len(questions) == 3
    for question in questions:
        assert story.state("n0") is NodeState.HEALTHY
        story.tell(events.PeerJudged(question.node, "n0", question.id, False))
    assert story.state("n0") is NodeState.HEALTHY, "it has been silent for 3.4 s"
    story.tell(events.TimerDue("silence/n0"), after_s=2.0)
    assert (story.state("n0"), story.owners("n0")) == (NodeState.LOST, ["automation"])


def test_while_a_watcher_may_hear_it_a_silence_begins_with_the_first_question() -> None:
    story = Story(nodes=5)
    asked = story.tell(events.PeerReported("n2", "n0", True, 9 * S), after_s=20)
    began_ns = story.now_ns
    for question in [a for a in asked if isinstance(a, actions.ConfirmSilence)]:
        story.tell(events.PeerJudged(question.node, "n0", question.id, False))
    while story.now_ns < began_ns + 4 * S:
        story.tell(events.TimerDue("silence/n0"), after_s=1)
        assert story.state("n0") is NodeState.HEALTHY, "n3 and n4 watch it, and may hear it"
    story.tell(events.TimerDue("silence/n0"), after_s=1)
    assert story.state("n0") is NodeState.LOST


def test_one_peer_that_hears_it_keeps_a_node_alive() -> None:
    story = Story(nodes=5)
    asked = story.tell(events.PeerReported("n1", "n0", True))
    questions = [a for a in asked if isinstance(a, actions.ConfirmSilence)]
    for question in questions:
        heard = question is questions[-1]
        story.tell(events.PeerJudged(question.node, "n0", question.id, heard))
    for _ in range(3):
        story.tell(events.TimerDue("silence/n0"), after_s=1.6)
    story.tell(events.TimerDue("silence/n0"), after_s=70)
    assert story.state("n0") is NodeState.SUSPECT, "its agent is away, which is a finding"
    story.connect("n0")
    assert story.state("n0") is NodeState.HEALTHY


def test_what_peers_denied_counts_no_more_once_one_of_them_hears_it() -> None:
    story = Story(nodes=5)
    asked = story.tell(events.PeerReported("n1", "n0", True))
    first, *others = (a for a in asked if isinstance(a, actions.ConfirmSilence))
    story.tell(events.PeerJudged(first.node, "n0", first.id, False))
    assert story.core.state.nodes["n0"].liveness.silence.denied == [first.node]
    story.tell(events.PeerJudged(others[0].node, "n0", others[0].id, True))
    assert story.core.state.nodes["n0"].liveness.silence.denied == []


def test_a_controller_that_loses_half_the_fleet_suspects_itself() -> None:
    story = Story(nodes=5)
    for index in range(4):
        story.tell(events.NodeDisconnected(f"n{index}"))
    for index in range(4):
        story.tell(events.TimerDue(f"silence/n{index}"), after_s=70)
    assert {story.state(f"n{index}") for index in range(5)} == {NodeState.HEALTHY}


def test_a_node_of_which_nobody_can_tell_is_doubtful_and_never_lost() -> None:
    story = Story(nodes=1)
    story.tell(events.NodeDisconnected("n0"))
    story.tell(events.TimerDue("silence/n0"), after_s=3600)
    assert story.state("n0") is NodeState.SUSPECT, "its agent is away, which is a finding"
    assert story.core.state.nodes["n0"].doubtful


def test_a_record_that_comes_twice_counts_once() -> None:
    story = Story()
    story.run()
    event = events.Reported(
        story.origin("n0"),
        0,
        reports.RankExited(generation=1, rank=0, exit_code=1, signal=0, last_line=""),
        "j",
    )
    assert story.tell(event)
    assert story.tell(event) == []


def test_a_launcher_without_the_jobs_token_or_of_another_user_is_refused() -> None:
    story = Story()
    story.join("n0")
    for done in (story.join("n1", token="guess"), story.join("n1", uid=2)):
        assert actions.RefuseLauncher in kinds(done)
    assert list(story.core.state.newest("j").launchers) == ["n0"]


def test_the_rank_that_died_first_is_the_cause_whoever_reports_first() -> None:
    story = Story()
    story.run()
    story.exit_rank("n1")
    first = events.Reported(
        story.origin("n0"),
        story.now_ns - S // 5,
        reports.RankExited(generation=1, rank=0, exit_code=0, signal=9, last_line=""),
        "j",
    )
    story.tell(first)
    incident = story.incidents[-1]
    assert (incident.node, incident.message) == ("n0", "rank 0 on n0 was killed by signal 9")


def test_nothing_new_starts_before_the_old_generation_is_gone() -> None:
    story = Story()
    story.run()
    done = story.exit_rank("n0")
    assert kinds(done) >= {actions.StopGeneration}
    assert actions.ChooseRecoveryStep not in kinds(done)
    assert actions.ChooseRecoveryStep in kinds(story.stop_all())
    started = [a for a in story.choose(0) if isinstance(a, actions.StartGeneration)]
    assert [(a.node, a.node_rank, a.generation, a.restore_step) for a in started] == [
        ("n0", 0, 2, 0),
        ("n1", 1, 2, 0),
    ]


def test_a_spare_takes_the_place_of_the_node_that_is_gone() -> None:
    story = Story(nodes=4)
    story.run()
    story.join("n2")
    story.find("n0")
    story.stop_all()
    started = [a for a in story.choose(0) if isinstance(a, actions.StartGeneration)]
    assert [(a.node, a.node_rank) for a in started] == [("n2", 0), ("n1", 1)]
    assert story.incidents[-1].plan == "spare"


def test_a_job_that_may_not_re_form_waits_for_capacity() -> None:
    story = Story()
    story.run()
    story.find("n0")
    story.stop_all()
    assert story.core.state.newest("j").state is JobState.WAITING_CAPACITY


def test_a_state_that_nobody_can_give_back_is_waited_for_never_forgotten() -> None:
    story = Story()
    story.run()
    story.exit_rank("n0")
    story.stop_all()
    story.choose(None, lost="no reachable copy of rank 1")
    job = story.core.state.newest("j")
    assert job.state is JobState.WAITING_STATE
    assert "no reachable copy of rank 1" in job.reason


def test_a_job_that_makes_no_progress_is_given_up_with_its_last_fault() -> None:
    story = Story()
    story.run()
    job = story.core.state.newest("j")
    for _ in range(job.spec.restarts_max):
        story.exit_rank("n0")
        story.stop_all()
        story.choose(0)
    story.exit_rank("n0")
    story.stop_all()
    assert (job.state, job.ending.succeeded) == (JobState.ENDED, False)
    assert "boom" in job.reason
    assert job.recovery.restarts == job.spec.restarts_max == 2


def test_a_rebooted_node_has_lost_its_processes() -> None:
    story = Story()
    story.run()
    story.connect("n0", boot="2")
    assert story.core.state.newest("j").state is JobState.STOPPING


def test_a_rejected_event_pauses_automation_for_what_it_concerns() -> None:
    story = Story()
    story.tell(events.EventRejected(9, "FindingRaised", "boom", "n0", ""))
    story.find("n0")
    assert story.owners("n0") == []
    assert story.core.state.findings
    story.find("n1")
    assert story.owners("n1") == ["automation"]


def test_a_failed_check_isolates_only_where_automation_may() -> None:
    for mode, owners in ((Mode.ENFORCE, ["automation"]), (Mode.ADVISE, [])):
        story = Story(nodes=0, settings=Settings(mode=mode))
        hello = events.NodeConnected(
            node="n0", boot_id="1", agent_version="0.1.0", outbox="b", highest_term=0, host="n0"
        )
        check = next(a for a in story.tell(hello) if isinstance(a, actions.RunCheck))
        failed = events.Reported(
            story.origin("n0"), 0, reports.CheckFinished(check.id, False, "nvml: no answer")
        )
        story.tell(failed)
        assert story.owners("n0") == owners
        assert not story.core.state.nodes["n0"].usable


def test_a_node_that_failed_its_check_is_asked_again() -> None:
    story = Story(nodes=0, settings=Settings(mode=Mode.ADVISE))
    hello = events.NodeConnected(
        node="n0", boot_id="1", agent_version="0.1.0", outbox="b", highest_term=0, host="n0"
    )
    check = next(a for a in story.tell(hello) if isinstance(a, actions.RunCheck))
    story.tell(
        events.Reported(
            story.origin("n0"), 0, reports.CheckFinished(check.id, False, "nvml: no answer")
        )
    )
    again = story.tell(events.TimerDue("check/n0"), after_s=31)
    second = next(a for a in again if isinstance(a, actions.RunCheck))
    assert second.id != check.id
    story.tell(
        events.Reported(
            story.origin("n0"), 0, reports.CheckFinished(second.id, True, "all is well")
        )
    )
    assert story.state("n0") is NodeState.HEALTHY


def test_a_node_that_was_isolated_for_its_check_is_asked_again_after_a_while_only() -> None:
    story = Story(nodes=0)
    hello = events.NodeConnected(
        node="n0", boot_id="1", agent_version="0.1.0", outbox="b", highest_term=0, host="n0"
    )
    check = next(a for a in story.tell(hello) if isinstance(a, actions.RunCheck))
    failed = reports.CheckFinished(check.id, False, "")
    done = story.tell(events.Reported(story.origin("n0"), 0, failed))
    assert actions.RunCheck not in kinds(done)
    assert (story.state("n0"), story.owners("n0")) == (NodeState.REPAIRING, ["automation"])
    again = story.tell(events.TimerDue("check/n0"), after_s=31)
    second = next(a for a in again if isinstance(a, actions.RunCheck))
    story.tell(
        events.Reported(story.origin("n0"), 0, reports.CheckFinished(second.id, True, "good"))
    )
    assert (story.state("n0"), story.owners("n0")) == (NodeState.PROBATION, [])


def test_what_automation_may_not_do_is_advised_once() -> None:
    story = Story(settings=Settings(mode=Mode.ADVISE))
    advised = [a for a in story.find("n0") if isinstance(a, actions.Announce)]
    assert [a.reason for a in advised].count("IsolationAdvised") == 1
    told = story.tell(events.AutomationResumed("n0", "ops")) + story.find("n0")
    assert all(a.reason != "IsolationAdvised" for a in told if isinstance(a, actions.Announce))


def test_a_suspect_that_an_operator_calls_good_is_healthy_at_once() -> None:
    story = Story(settings=Settings(mode=Mode.ADVISE))
    story.find("n0")
    assert story.state("n0") is NodeState.SUSPECT
    story.tell(events.OperatorReleased("n0", "ops", "GPU was reset"))
    assert story.state("n0") is NodeState.HEALTHY
    assert not story.core.state.nodes["n0"].isolation.deferred


def test_a_release_bears_the_fatal_findings_that_it_names_and_no_others() -> None:
    story = Story(settings=Settings(mode=Mode.ENFORCE))
    story.find("n0")
    node = story.core.state.nodes["n0"]
    assert "--accept XidFatal" in release_problem(node, [])
    assert release_problem(node, ["XidFatal"]) == ""
    story.tell(events.OperatorReleased("n0", "ops", "drill", ("DiskGone",)))
    assert "--accept XidFatal" in release_problem(node, [])
    story.tell(events.OperatorReleased("n0", "ops", "drill", ("XidFatal",)))
    assert release_problem(node, []) == ""


def test_the_end_of_a_job_reaches_every_node_that_holds_its_memory() -> None:
    story = Story(nodes=4)
    story.run()
    story.join("n2")
    story.find("n0")
    story.stop_all()
    story.choose(0)
    left = events.Reported(
        story.origin("n0"), story.now_ns, reports.LauncherLeft("killed", False), "j"
    )
    story.tell(left)
    done: list[actions.Action] = []
    for node in ("n1", "n2"):
        generation = story.core.state.newest("j").generation.number
        event = events.Reported(
            story.origin(node), story.now_ns, reports.GenerationFinished(generation), "j"
        )
        done += story.tell(event)
    ended = {action.node for action in done if isinstance(action, actions.EndJob)}
    assert ended == {"n0", "n1", "n2"}


def test_why_a_node_is_healthy_again_stays_true_whatever_is_only_observed() -> None:
    story = Story()
    degraded = replace(XID, component="gpu/1", condition="Slow", severity=Severity.DEGRADED)
    story.find("n0", replace(degraded, condition="Hot", mode=Mode.OBSERVE))
    story.find("n0", degraded)
    assert story.state("n0") is NodeState.SUSPECT
    story.tell(
        events.Reported(
            story.origin("n0"), 0, reports.FindingCleared("gpu/1", "Slow", "it is fast")
        )
    )
    node = story.core.state.nodes["n0"]
    assert node.state is NodeState.HEALTHY
    assert len(node.health.findings) == 1
    assert node.reason == "Slow of gpu/1 is over: no open finding counts against it"


def test_a_suspect_node_is_so_for_a_finding_that_is_open() -> None:
    story = Story()
    degraded = replace(XID, severity=Severity.DEGRADED)
    for condition in ("Slow", "Hot"):
        story.find("n0", replace(degraded, condition=condition, message=f"it is {condition}"))
    assert story.core.state.nodes["n0"].reason == "it is Slow"
    story.tell(
        events.Reported(
            story.origin("n0"), 0, reports.FindingCleared("gpu/0", "Slow", "it is fast")
        )
    )
    assert story.state("n0") is NodeState.SUSPECT
    assert story.core.state.nodes["n0"].reason == "it is Hot"


def test_why_a_job_runs_is_as_true_after_a_day_as_at_its_first_step() -> None:
    story = Story()
    story.run()
    for step in range(1, 4):
        story.progress(step)
    assert story.core.state.newest("j").reason == "all ranks make steps"


def test_what_was_recoverable_behind_the_step_that_is_restored_is_so_no_more() -> None:
    story = Story()
    story.run()
    story.progress(1)
    job = story.core.state.newest("j")
    story.tell(events.StepRecoverable("j", 1, 7))
    assert (job.lineage.last_step, job.lineage.completed_step) == (1, 7)
    story.exit_rank("n0")
    story.stop_all()
    story.choose(4)
    assert (job.lineage.last_step, job.lineage.recoverable_step, job.lineage.completed_step) == (
        4,
        4,
        4,
    )
