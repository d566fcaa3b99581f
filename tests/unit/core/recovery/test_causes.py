"""From evidence to remedy: every pair of the table, and the evidence that leads there."""

import itertools
from dataclasses import replace

import pytest

from everstep_common.failures.classification import KINDS, Side
from everstep_common.reports import DataRange, RankExited
from everstep_controller.core.model.incident import (
    DEATHS_MAX,
    AskedRollback,
    Death,
    Judgement,
    Remedy,
    add_death,
)
from everstep_controller.core.recovery import causes
from everstep_controller.core.recovery.causes import RULES, Evidence, History, NodeFault, judge

BAD_BATCH = "ValueError: bad batch 17"
FAULT = NodeFault("n0", "Xid 95 on gpu/3")


def death(
    kind: str = "exception",
    *,
    rank: int = 0,
    node: str = "n0",
    at_ns: int = 10,
    step: int | None = 16,
    exception: str = BAD_BATCH,
) -> Death:
    exit = RankExited(
        generation=2,
        rank=rank,
        exit_code=1,
        signal=0,
        last_line="",
        kind=kind,
        exception=exception,
        step=step,
    )
    return Death(node, at_ns, exit)


def with_exit(one: Death, **more: object) -> Death:
    """Return a death of another exit."""
    return replace(one, exit=replace(one.exit, **more))  # type: ignore[arg-type]


def evidence(*deaths: Death, **more: object) -> Evidence:
    base = Evidence(generation=2, now_ns=99, deaths=deaths, world_size=4)
    return replace(base, **more)  # type: ignore[arg-type]  # a test's shorthand


def before(one: Death, node: str = "") -> Judgement:
    return Judgement(
        generation=1,
        at_ns=5,
        remedy=Remedy.RESTART,
        sentence="earlier",
        node=node,
        signature=one.signature,
        step=one.exit.step,
    )


@pytest.mark.parametrize(("side", "history"), list(itertools.product(Side, History)))
def test_every_pair_of_the_table(side: Side, history: History) -> None:
    rule = RULES.get((side, history))
    if side is Side.NODE:
        assert rule is not None
        assert rule.remedy is Remedy.REPLACE
    if side is Side.HOST and rule is not None:
        assert rule.remedy is Remedy.REPLACE
    if side in (Side.TRANSIENT, Side.CONSEQUENCE) or history is History.ON_SEVERAL_NODES:
        assert rule is None or side is Side.NODE
    if rule is not None and rule.remedy is Remedy.STOP:
        assert history not in {History.NEW, History.ON_SEVERAL_NODES, History.SAME_NODE}
        assert side in (Side.SCRIPT, Side.UNKNOWN, Side.UNFIT)
    if side is Side.SCRIPT and rule is not None:
        assert rule.remedy is Remedy.STOP  # a script's fault never costs a node


@pytest.mark.parametrize("kind", [*KINDS, "", "of tomorrow"])
def test_a_first_fault_of_any_kind_costs_a_node_only_by_the_nodes_own_word(kind: str) -> None:
    judged = judge(evidence(death(kind)))
    assert judged.remedy is (Remedy.REPLACE if kind == "device" else Remedy.RESTART)
    assert "rank 0 on n0 exited 1" in judged.sentence


def test_the_same_exception_at_the_same_step_stops_the_job_and_is_quoted() -> None:
    again = death()
    judged = judge(evidence(again, past=(before(again),)))
    assert judged.remedy is Remedy.STOP
    assert BAD_BATCH in judged.sentence
    assert "generation 1 after step 16" in judged.sentence


def test_the_same_exception_at_another_step_is_tried_again() -> None:
    judged = judge(evidence(death(step=18), past=(before(death(step=16)),)))
    assert judged.remedy is Remedy.RESTART


def test_another_exception_at_the_same_step_is_tried_again() -> None:
    other = death(exception="ValueError: bad batch 18")
    assert judge(evidence(death(), past=(before(other),))).remedy is Remedy.RESTART


def test_exceptions_that_differ_in_an_address_are_the_same() -> None:
    first = death(exception="TypeError: <Batch object at 0x7f01>")
    second = death(exception="TypeError: <Batch object at 0x7fee>")
    assert judge(evidence(second, past=(before(first),))).remedy is Remedy.STOP


def test_what_comes_from_outside_never_stops_a_job_by_its_repetition() -> None:
    for kind in ("killed", "storage", "network", "collective", ""):
        again = death(kind)
        assert judge(evidence(again, past=(before(again, "n0"),))).remedy is Remedy.RESTART, kind


def unfit(**more: object) -> Death:
    """A rank that got other data than what it had called for: gloo aborts it."""
    return with_exit(death("collective_mismatch", at_ns=20, exception=""), signal=6, **more)


def lost(node: str = "n1") -> Death:
    """A rank that lost another one."""
    return death("collective", rank=1, node=node, exception="Connection reset by peer")


def test_data_that_does_not_fit_twice_at_a_step_is_the_scripts_fault_on_whichever_node() -> None:
    for deaths in ((unfit(),), (lost(), unfit())):
        judged = judge(evidence(*deaths, past=(before(unfit(), "n0"),)))
        assert judged.remedy is Remedy.STOP
        assert "do not fit together" in judged.sentence
        assert judged.node == ""
    amiss = judge(evidence(unfit(), past=(before(unfit()),), amiss={"n0": "a finding"}))
    assert amiss.remedy is Remedy.STOP, "no node makes ranks call other operations"
    finding = NodeFault("n0", "a file system is shut down")
    known = {"past": (before(unfit()),), "faults": (finding,), "explained": frozenset({1})}
    faulty = judge(evidence(unfit(), **known))
    assert (faulty.remedy, faulty.node) == (Remedy.STOP, "")


def test_a_rank_that_gloo_aborts_has_told_its_last_step_or_not() -> None:
    for step in (15, 17):
        assert judge(evidence(unfit(step=step), past=(before(unfit()),))).remedy is Remedy.STOP
    # It has gone on from where the one before ended, and made no step.
    assert judge(evidence(unfit(step=None), past=(before(unfit()),))).remedy is Remedy.STOP
    assert judge(evidence(unfit(), past=(before(unfit(step=None)),))).remedy is Remedy.RESTART
    other = death(step=17)
    assert judge(evidence(other, past=(before(death()),))).remedy is Remedy.RESTART


def test_once_or_at_another_step_it_is_tried_again_and_said() -> None:
    once = judge(evidence(lost(), unfit()))
    assert (once.remedy, once.node) == (Remedy.RESTART, "")
    assert "rank 0 on n0" in once.sentence
    assert "do not fit together" in once.sentence
    elsewhere = judge(evidence(unfit(step=18), past=(before(unfit()),)))
    assert elsewhere.remedy is Remedy.RESTART


def test_data_that_does_not_fit_after_a_wait_in_vain_or_a_death_accuses_nobody() -> None:
    gave_up = death("collective_timeout", rank=2, at_ns=30)
    for deaths in ((unfit(), gave_up), (death("killed", rank=3), unfit())):
        judged = judge(evidence(*deaths, past=(before(unfit()),)))
        assert judged.remedy is Remedy.RESTART
        assert "do not fit together" not in judged.sentence


@pytest.mark.parametrize("kind", ["import", "usage"])
def test_what_no_rank_can_start_with_is_tried_once(kind: str) -> None:
    ranks = (death(kind, step=None), death(kind, rank=1, step=None))
    judged = judge(evidence(*ranks, fresh=True))
    assert judged.remedy is Remedy.STOP
    assert "1 more rank says the same" in judged.sentence
    assert judge(evidence(*ranks, fresh=False)).remedy is Remedy.RESTART
    assert judge(evidence(ranks[0], fresh=True)).remedy is Remedy.RESTART
    assert judge(evidence(ranks[0], fresh=True, world_size=1)).remedy is Remedy.STOP


def test_a_second_unexplained_death_on_a_node_has_it_replaced() -> None:
    judged = judge(evidence(death("crash"), strikes={"n0": 1}))
    assert (judged.remedy, judged.node) == (Remedy.REPLACE, "n0")
    assert "second death without an explanation" in judged.sentence
    assert judge(evidence(death("crash"), strikes={"n1": 1})).remedy is Remedy.RESTART


def test_an_unexplained_death_at_the_same_step_blames_the_node_or_on_two_nodes_the_script() -> None:
    again = death("crash")
    here = judge(evidence(again, past=(before(again, "n0"),)))
    assert (here.remedy, here.node) == (Remedy.REPLACE, "n0")
    assert judge(evidence(again, past=(before(again, "n1"),))).remedy is Remedy.STOP


def test_what_several_nodes_die_of_is_no_nodes_fault() -> None:
    both = (death("crash"), death("crash", rank=1, node="n1", at_ns=11))
    assert judge(evidence(*both, strikes={"n0": 1})).remedy is Remedy.RESTART
    moved = evidence(
        death("crash"), strikes={"n0": 1}, past=(before(death("crash", step=3), "n1"),)
    )
    assert judge(moved).remedy is Remedy.RESTART


def test_the_same_crash_at_the_same_step_on_two_nodes_is_the_program_and_ends_it_again() -> None:
    both = (death("crash"), death("crash", rank=1, node="n1", at_ns=11))
    first = judge(evidence(*both))
    assert (first.remedy, first.node) == (Remedy.RESTART, "")
    assert "and so did ranks on n1 after step 16: the program, and no node" in first.sentence
    again = judge(evidence(*both, past=(before(both[0], "n0"),)))
    assert again.remedy is Remedy.STOP
    other = (both[0], death("crash", rank=1, node="n1", at_ns=11, step=3))
    assert "only a repetition tells" in judge(evidence(*other)).sentence


@pytest.mark.parametrize(("step", "remedy"), [(15, Remedy.STOP), (17, Remedy.STOP), (18, None)])
def test_a_crash_within_milliseconds_of_a_step_has_told_that_step_or_not(
    step: int, remedy: Remedy | None
) -> None:
    earlier = before(death("crash", step=step), "n1")
    judged = judge(evidence(death("crash"), past=(earlier,)))
    assert judged.remedy is (remedy or Remedy.RESTART)


@pytest.mark.parametrize("kind", ["crash", "host_memory"])
def test_what_comes_again_on_the_only_node_of_a_job_does_not_blame_the_node(kind: str) -> None:
    again = death(kind)
    alone = judge(evidence(again, past=(before(again, "n0"),), members=("n0",)))
    assert alone.remedy is Remedy.RESTART
    assert "only another node would tell" in alone.sentence
    beside = judge(evidence(again, past=(before(again, "n0"),), members=("n0", "n1")))
    assert beside.remedy is Remedy.REPLACE


_OUTSIDE = (Side.TRANSIENT, Side.CONSEQUENCE, Side.WAITED)


@pytest.mark.parametrize(("side", "history"), list(itertools.product(_OUTSIDE, History)))
def test_no_history_makes_what_comes_from_outside_end_a_job_or_take_a_node(
    side: Side, history: History
) -> None:
    assert (side, history) not in RULES


def test_a_first_unexplained_death_counts_against_its_node_and_a_scripts_does_not() -> None:
    for kind, counts in (("crash", True), ("cuda", True), ("exception", False), ("killed", False)):
        seen = evidence(death(kind))
        assert causes.counts_against_node(seen, judge(seen)) is counts, kind


@pytest.mark.parametrize("kind", ["crash", "cuda", "killed", "exception", "collective", "nan"])
def test_a_finding_of_the_node_explains_any_death_there(kind: str) -> None:
    judged = judge(evidence(death(kind), faults=(FAULT,)))
    assert (judged.remedy, judged.node) == (Remedy.REPLACE, "n0")
    assert FAULT.message in judged.sentence


def test_a_finding_of_another_node_explains_no_death_but_a_broken_collective() -> None:
    fault = NodeFault("n7", "mlx5_0 is down")
    assert judge(evidence(death("crash"), faults=(fault,))).remedy is Remedy.RESTART
    broken = judge(evidence(death("collective"), faults=(fault,)))
    assert (broken.remedy, broken.node) == (Remedy.REPLACE, "n7")
    two = (fault, NodeFault("n8", "mlx5_0 is down"))
    assert judge(evidence(death("collective"), faults=two)).remedy is Remedy.RESTART


def test_a_finding_of_the_node_explains_what_came_again_there_and_the_node_is_replaced() -> None:
    again = death()
    judged = judge(evidence(again, past=(before(again),), faults=(FAULT,)))
    assert (judged.remedy, judged.node) == (Remedy.REPLACE, "n0")
    moved = death(node="n1")
    assert judge(evidence(moved, past=(before(again, "n0"),))).remedy is Remedy.STOP


PROGRAM = ("exception", "assertion", "device_memory", "nan")


@pytest.mark.parametrize("kind", PROGRAM)
def test_what_the_program_does_twice_at_a_step_ends_the_job_on_a_clean_or_on_another_node(
    kind: str,
) -> None:
    again = death(kind)
    assert judge(evidence(again, past=(before(again, "n0"),))).remedy is Remedy.STOP
    amiss = {"n0": "link mlx5_0 flaps"}
    here = judge(evidence(again, past=(before(again, "n0"),), amiss=amiss))
    assert (here.remedy, here.node) == (Remedy.REPLACE, "n0")
    assert "something is amiss on n0 (link mlx5_0 flaps)" in here.sentence
    elsewhere = judge(evidence(again, past=(before(again, "n1"),), amiss=amiss))
    assert elsewhere.remedy is Remedy.STOP


@pytest.mark.parametrize("kind", PROGRAM)
def test_an_occurrence_that_something_else_explains_does_not_count(kind: str) -> None:
    again = death(kind)
    first = evidence(again, past=(before(again, "n0"),), explained=frozenset({1}))
    assert judge(first).remedy is Remedy.RESTART
    second = evidence(again, past=(before(again, "n0"),), outside="n1 is lost: silent")
    assert judge(second).remedy is Remedy.RESTART


def test_want_of_host_memory_counts_by_node_and_never_by_step() -> None:
    again = death("host_memory", exception="")
    for step in (16, 20):
        struck = evidence(with_exit(again, step=step), strikes={"n0": 1})
        assert (judge(struck).remedy, judge(struck).node) == (Remedy.REPLACE, "n0")
    moved = evidence(again, past=(before(again, "n1"),), strikes={"n1": 1})
    assert judge(moved).remedy is Remedy.RESTART
    assert causes.counts_against_node(evidence(again), judge(evidence(again)))


def rolled_back(step: int = 17, skip: DataRange | None = None) -> AskedRollback:
    return AskedRollback(
        "n0", step, f'rank 0 on n0 asks to go back before step {step}: "nan"', skip
    )


def went_back(asked: AskedRollback, *nodes: str) -> Judgement:
    first = judge(evidence(rollback=asked, outside="told", members=nodes))
    assert first.remedy is Remedy.RESTART
    return replace(first, generation=1)


def test_going_back_for_the_same_step_and_data_a_second_time_ends_the_job() -> None:
    earlier = went_back(rolled_back(), "n0", "n1")
    again = evidence(rollback=rolled_back(), past=(earlier,), members=("n0", "n1"))
    assert judge(again).remedy is Remedy.STOP
    assert "going back does not help" in judge(again).sentence
    assert "generation 1" in judge(again).sentence


@pytest.mark.parametrize(
    "more",
    [
        {"rollback": rolled_back(18)},
        {"rollback": rolled_back(skip=DataRange(18, 18))},
        {"explained": frozenset({1})},
        {"faults": (FAULT,)},
        {"amiss": {"n1": "its agent is away"}},
    ],
)
def test_going_back_for_another_step_or_data_or_from_what_is_explained_goes_on(
    more: dict[str, object],
) -> None:
    earlier = went_back(rolled_back(skip=DataRange(17, 17)), "n0", "n1")
    asked = rolled_back(skip=DataRange(17, 17))
    shown = evidence(rollback=asked, past=(earlier,), members=("n0", "n1"))
    assert judge(shown).remedy is Remedy.STOP
    assert judge(replace(shown, **more)).remedy is Remedy.RESTART  # type: ignore[arg-type]


def test_going_back_again_on_other_nodes_ends_the_job_whatever_is_amiss() -> None:
    earlier = went_back(rolled_back(), "n0", "n1")
    moved = evidence(
        rollback=rolled_back(), past=(earlier,), members=("n0", "n2"), amiss={"n2": "hot"}
    )
    assert judge(moved).remedy is Remedy.STOP


def test_what_was_done_from_outside_explains_every_death() -> None:
    again = death()
    judged = judge(evidence(again, past=(before(again),), outside="n1 is lost: silent"))
    assert (judged.remedy, judged.sentence) == (Remedy.RESTART, "n1 is lost: silent")


def test_who_died_first_comes_first_but_a_consequence_never_before_what_explains_it() -> None:
    deaths: list[Death] = []
    add_death(deaths, death("collective", rank=2, at_ns=1))
    add_death(deaths, death("exception", rank=1, at_ns=9))
    add_death(deaths, death("crash", rank=3, at_ns=7))
    assert [one.exit.rank for one in deaths] == [3, 1, 2]


def test_who_gave_up_waiting_comes_before_who_lost_its_connection_by_that() -> None:
    deaths: list[Death] = []
    add_death(deaths, death("collective", rank=0, at_ns=1))
    add_death(deaths, death("collective_timeout", rank=3, at_ns=5))
    assert [one.exit.rank for one in deaths] == [3, 0]
    assert judge(evidence(*deaths)).sentence.endswith("who did not come is not known")


def test_of_thousands_of_deaths_the_ones_that_explain_are_kept() -> None:
    deaths: list[Death] = []
    for rank in range(2000):
        add_death(deaths, death("collective", rank=rank, at_ns=rank))
    add_death(deaths, death("crash", rank=5000, at_ns=5000))
    assert len(deaths) == DEATHS_MAX
    assert deaths[0].exit.kind == "crash"


def test_the_deaths_of_an_older_generation_are_forgotten_with_the_first_of_a_newer() -> None:
    deaths = [death()]
    add_death(deaths, with_exit(death("crash"), generation=3))
    assert [one.exit.kind for one in deaths] == ["crash"]


def test_the_sentence_of_a_death_tells_what_the_people_need() -> None:
    dumped = with_exit(death("crash", exception=""), exit_code=0, signal=11, core_dumped=True)
    assert dumped.sentence() == "rank 0 on n0 was killed by signal 11 (core dumped)"
    assert death().sentence() == f'rank 0 on n0 exited 1 ("{BAD_BATCH}")'
