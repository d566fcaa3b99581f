"""Budgets of automation: what counts, since when, what is never held back, and what people see."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.judging.findings import Mode
from everstep_controller.core import actions, events
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes import budgets
from unit.core.test_decisions import S, Story

HOUR_S = 3600
MANY = Settings(mode=Mode.ENFORCE, isolation_budget_nodes=50)


def _pass_check(story: Story, node: str, *, passed: bool = True) -> None:
    orders = [a for a in story.core.due(0) if isinstance(a, actions.RunCheck) and a.node == node]
    result = reports.CheckFinished(orders[0].id, passed, "as the check says")
    story.tell(events.Reported(story.origin(node), 0, result))


def _return(story: Story, node: str) -> None:
    """Have a node boot again; its check has not ended."""
    hello = events.NodeConnected(
        node=node, boot_id="2", agent_version="0.1.0", outbox=f"{node}-2", highest_term=0, host=node
    )
    story.tell(hello)


def _clear(story: Story, node: str) -> None:
    over = reports.FindingCleared("gpu/0", "XidFatal", "well")
    story.tell(events.Reported(story.origin(node), 0, over))
    _pass_check(story, node)


def _isolated(story: Story) -> list[str]:
    return [name for name in story.core.state.nodes if story.owners(name) == ["automation"]]


def _find(story: Story, *nodes: str) -> None:
    for node in nodes:
        story.find(node)


def test_nodes_that_come_back_with_their_claims_count_and_their_findings_isolate_a_few() -> None:
    story = Story(nodes=30)
    back = [f"n{number}" for number in range(10, 20)]
    for node in back:
        story.lose(node)
    assert budgets.level(story.core.state) == 0
    for node in back:
        _return(story, node)
    assert budgets.level(story.core.state) == 10
    _find(story, "n0", *back)
    assert story.owners("n0") == []
    for node in back:
        if story.state(node) is NodeState.VALIDATING:
            _pass_check(story, node)
    states = [story.state(node) for node in ("n0", *back)]
    assert states.count(NodeState.REPAIRING) == 2
    assert states.count(NodeState.SUSPECT) == 9
    assert budgets.level(story.core.state) == 2


def test_nodes_that_come_back_and_fail_their_checks_are_claimed_within_the_budget() -> None:
    story = Story(nodes=30)
    back = [f"n{number}" for number in range(10, 20)]
    for node in back:
        story.lose(node)
    for node in back:
        _return(story, node)
    for node in back:
        _pass_check(story, node, passed=False)
    assert len(_isolated(story)) == 2
    unusable = [node for node in back if not story.core.state.nodes[node].usable]
    assert unusable == back


def test_a_repaired_node_that_is_away_counts_again_when_it_is_back() -> None:
    story = Story(nodes=8)
    _find(story, "n0", "n1")
    story.lose("n0")
    story.find("n2")
    assert _isolated(story) == ["n0", "n1", "n2"]
    story.find("n3")
    assert story.owners("n3") == [], "n1 and n2 are alive"
    _return(story, "n0")
    assert budgets.level(story.core.state) == 3
    _pass_check(story, "n0")
    assert _isolated(story) == ["n1", "n2"]


def test_a_node_in_maintenance_is_kept_out_by_those_who_work_on_it() -> None:
    story = Story(nodes=8)
    _find(story, "n0", "n1", "n2")
    assert story.owners("n2") == []
    begin_ns = story.now_ns + S
    story.tell(
        events.MaintenanceOrdered(
            nodes=("n0",), begin_ns=begin_ns, end_ns=begin_ns + 600 * S, operator="ann"
        )
    )
    timer = next(t for t in story.core.state.timers if t.startswith("maintenance/"))
    story.tell(events.TimerDue(timer), after_s=2)
    assert story.state("n0") is NodeState.MAINTENANCE
    assert story.owners("n2") == ["automation"]


def test_the_fifth_isolation_within_an_hour_waits_until_the_first_is_an_hour_ago() -> None:
    story = Story(nodes=9)
    for node in ("n0", "n1", "n2", "n3"):
        story.find(node)
        _clear(story, node)
    story.find("n4")
    assert _isolated(story) == []
    assert "4 isolations an hour" in story.core.state.nodes["n4"].isolation.held_back
    at_ns = story.core.state.timers["budget"]
    story.tell(events.TimerDue("budget"), after_s=(at_ns - story.now_ns) / S)
    assert _isolated(story) == ["n4"]
    assert story.core.state.timers["budget"] < at_ns + HOUR_S * S


def test_a_release_gives_the_level_back_and_not_the_rate() -> None:
    story = Story(nodes=9)
    for _ in range(2):
        _find(story, "n0", "n1")
        for node in ("n0", "n1"):
            _clear(story, node)
    assert budgets.level(story.core.state) == 0
    story.find("n2")
    assert _isolated(story) == []


def test_a_start_of_the_controller_forgets_nothing_of_it() -> None:
    story = Story(nodes=9)
    _find(story, "n0", "n1")
    story.tell(events.ControllerStarted("0.1.0"))
    assert budgets.level(story.core.state) == 2
    assert len(story.core.state.isolations_ns) == 2
    due = [a.timer for a in story.core.due(0) if isinstance(a, actions.SetTimer)]
    assert "budget" in due


def test_neither_the_dead_nor_an_operators_word_are_held_back_or_count() -> None:
    story = Story(nodes=20)
    for node in ("n0", "n1", "n2", "n3"):
        story.find(node)
        _clear(story, node)
    for number in range(4, 8):
        story.tell(events.OperatorIsolated(f"n{number}", "ops", "drill"))
        assert story.owners(f"n{number}") == ["operator"]
    for number in range(8, 12):
        story.lose(f"n{number}")
        assert story.state(f"n{number}") is NodeState.LOST
    assert budgets.level(story.core.state) == 0
    assert len(story.core.state.isolations_ns) == 4


def test_a_job_that_steps_is_stopped_so_often_an_hour_and_recovered_whenever_ranks_die() -> None:
    story = Story(nodes=8, settings=replace(MANY, job_stops_per_hour=1))
    story.run()
    for node in ("n2", "n3", "n4"):
        story.join(node)
    story.find("n0")
    story.stop_all()
    story.choose(0)
    story.progress(1)
    job = story.core.state.newest("j")
    assert job.state is JobState.RUNNING
    bad = job.generation.members[0]
    story.find(bad)
    assert story.owners(bad) == []
    assert "j still steps" in story.core.state.nodes[bad].isolation.held_back
    story.exit_rank(job.generation.members[1])
    assert story.owners(bad) == ["automation"], "it does not step any more"
    story.stop_all()
    assert job.generation.number == 3
    assert bad not in job.generation.members


def test_what_is_held_back_is_a_finding_with_the_next_step_and_ends_with_its_cause() -> None:
    story = Story(nodes=9)
    _find(story, "n0", "n1", "n2", "n3")
    held = list(budgets.findings(story.core.state))
    assert len(held) == 1
    finding = held[0].finding
    assert finding.message == "n2, n3 are not isolated: the budget of 2 isolated nodes is spent"
    assert "everstep isolate NODE" in finding.rule
    assert finding.evidence == (
        "2 of 2 working nodes isolated, 2 of 4 isolations in an hour; 2 held back"
    )
    for node in ("n2", "n3"):
        over = reports.FindingCleared("gpu/0", "XidFatal", "well")
        story.tell(events.Reported(story.origin(node), 0, over))
    assert list(budgets.findings(story.core.state)) == []


def test_what_a_mode_forbids_is_no_matter_of_budgets() -> None:
    story = Story(nodes=9, settings=Settings(mode=Mode.ADVISE))
    _find(story, "n0", "n1", "n2")
    assert story.core.state.index.deferred == ["n0", "n1", "n2"]
    assert list(budgets.findings(story.core.state)) == []


def test_a_false_finding_on_all_nodes_lets_no_more_prologs_fail_than_the_budget() -> None:
    for mode in (Mode.ENFORCE, Mode.ADVISE):
        story = Story(30, Settings(mode=mode, isolation_budget_nodes=2, isolation_budget_ratio=0.0))
        _find(story, *(f"n{number}" for number in range(30)))
        state = story.core.state
        may = [name for name in state.nodes if not budgets.prolog_refusal(state, name)]
        assert len(may) == 2
        assert "29 other nodes" in budgets.prolog_refusal(state, "n9")
        assert "may lose 2 at once" in budgets.prolog_refusal(state, "n9")


def test_a_node_with_a_finding_of_its_own_may_fail_its_prolog() -> None:
    story = Story(30, Settings(mode=Mode.ADVISE, isolation_budget_nodes=2))
    _find(story, "n7")
    assert budgets.prolog_refusal(story.core.state, "n7") == ""


def test_nodes_that_their_prologs_have_drained_keep_their_places_in_the_budget() -> None:
    settings = Settings(mode=Mode.ADVISE, isolation_budget_nodes=2, isolation_budget_ratio=0.0)
    story = Story(30, settings)
    out = 0
    for number in reversed(range(30)):
        name = f"n{number}"
        _find(story, name)
        if not budgets.prolog_refusal(story.core.state, name):
            story.tell(events.OperatorIsolated(name, "ops", "drained by its prolog"))
            out += 1
    assert out == 2
