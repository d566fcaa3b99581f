"""What is done about each class of hang, and when: the table, on data."""

from dataclasses import replace

import pytest

from everstep_common.hangs.reports.verdict import Confidence, Culprit, HangClass, HangVerdict
from everstep_controller.core.hangs.response import MANNERS, HangCase, Manner, respond
from everstep_controller.core.model.hang import (
    PROVED,
    NodeHang,
    PastHang,
    Proof,
    SeenHang,
    hung_again,
)
from everstep_controller.core.model.incident import Remedy
from unit.core.test_decisions import S

_NOW = 1000 * S
_PATIENCE = 120 * S


def seen(
    kind: HangClass,
    *culprits: tuple[int, str],
    confidence: Confidence = Confidence.CERTAIN,
    looks: int = 2,
    stuck: bool = True,
) -> SeenHang:
    named = tuple(Culprit(rank, node, kind, "it does not come") for rank, node in culprits)
    return SeenHang(
        verdict=HangVerdict(kind, named, confidence, f"somebody is {kind.value}"),
        evidence="5a",
        stuck=tuple(rank for rank, _ in culprits) if stuck else (),
        looks=looks,
        same_ns=(looks - 1) * S,
        unmoved_ns=(looks - 1) * S,
    )


def case(hang: SeenHang, still_s: float = 5) -> HangCase:
    return HangCase(
        job="j-1",
        now_ns=_NOW,
        still_since_ns=_NOW - round(still_s * S),
        step=812,
        seen=hang,
        patience_ns=_PATIENCE,
    )


def past(kind: HangClass, *culprits: tuple[int, str], step: int = 700) -> PastHang:
    return PastHang(generation=1, at_ns=1, step=step, kind=kind, culprits=culprits)


def test_every_class_has_its_manner() -> None:
    assert set(MANNERS) == set(PROVED) == set(HangClass)


_AT_ONCE = [kind for kind, manner in MANNERS.items() if manner is Manner.AT_ONCE]
_PATIENT = [kind for kind, manner in MANNERS.items() if manner is Manner.AFTER_PATIENCE]


@pytest.mark.parametrize("kind", _AT_ONCE)
def test_what_cannot_go_on_by_itself_is_restarted_in_place_at_once(kind: HangClass) -> None:
    found = respond(case(seen(kind, (3, "n0"), looks=1)))
    assert (found.remedy, found.node) == (Remedy.RESTART, "")
    assert found.due_ns <= _NOW


@pytest.mark.parametrize("kind", [kind for kind in _AT_ONCE if kind is not HangClass.GIL_HELD])
def test_a_culprit_that_was_not_seen_to_be_stuck_is_given_time(kind: HangClass) -> None:
    found = respond(case(seen(kind, (3, "n0"), stuck=False)))
    assert found.remedy is Remedy.RESTART
    assert found.due_ns == _NOW - 5 * S + _PATIENCE


def test_a_gil_that_is_held_all_the_while_is_no_code_that_gives_it_back() -> None:
    """An endless loop in C: its thread computes, so its stack moves."""
    loop = seen(HangClass.GIL_HELD, (3, "n0"), stuck=False)
    found = respond(case(loop))
    assert found.remedy is Remedy.RESTART
    assert found.due_ns == _NOW + 10 * S
    again = replace(case(loop), past=(past(HangClass.GIL_HELD, (3, "n0"), step=812),))
    assert respond(again).due_ns == _NOW - 5 * S + 2 * _PATIENCE
    unsure = replace(loop, verdict=replace(loop.verdict, confidence=Confidence.UNSURE))
    assert respond(case(unsure)).due_ns == _NOW - 5 * S + _PATIENCE
    assert respond(replace(case(loop), patience_ns=0)).remedy is None


def test_what_builds_something_with_the_gil_is_given_the_patience() -> None:
    """A large pickle, a compiler: it comes to an end."""
    builds = replace(seen(HangClass.GIL_HELD, (3, "n0"), stuck=False), works=True)
    assert respond(case(builds)).due_ns == _NOW - 5 * S + _PATIENCE
    usual = replace(case(builds), usual_ns=300 * S)
    assert respond(usual).due_ns == _NOW + 295 * S


def test_the_time_before_the_gil_was_held_does_not_count_against_it() -> None:
    """An evaluation in Python for 40 s, and in it a moment of C."""
    loop = seen(HangClass.GIL_HELD, (3, "n0"), stuck=False)
    evaluates = replace(case(loop, still_s=40), held_since_ns=_NOW - 3 * S)
    assert respond(evaluates).due_ns == _NOW + 12 * S
    longer = replace(case(loop, still_s=118), held_since_ns=_NOW - 3 * S)
    assert respond(longer).due_ns == _NOW + 2 * S, "the patience is over"
    usual = replace(evaluates, usual_ns=60 * S)
    assert respond(usual).due_ns == _NOW - 3 * S + 60 * S


def _beginning(hang: SeenHang, still_s: float = 9e4) -> HangCase:
    return replace(case(hang, still_s), begins=True, name="llama", step=None)


@pytest.mark.parametrize("kind", [*_PATIENT, HangClass.KNOWN_SOFTWARE])
def test_before_its_first_step_a_job_may_load_and_only_people_start_it_anew(
    kind: HangClass,
) -> None:
    found = respond(_beginning(seen(kind, (0, "n0"), looks=99)))
    assert (found.remedy, found.due_ns) == (None, 0)
    assert "everstep job llama restart" in found.why


@pytest.mark.parametrize("kind", [HangClass.DEAD, HangClass.FROZEN])
def test_before_its_first_step_too_what_cannot_go_on_is_restarted_at_once(kind: HangClass) -> None:
    found = respond(_beginning(seen(kind, (0, "n0"), looks=1)))
    assert found.remedy is Remedy.RESTART
    assert found.due_ns <= _NOW


def test_who_holds_the_gil_before_the_first_step_may_load_a_library_for_as_long_as_patience() -> (
    None
):
    held = respond(_beginning(seen(HangClass.GIL_HELD, (0, "n0")), still_s=70))
    assert (held.remedy, held.due_ns) == (Remedy.RESTART, _NOW - 70 * S + _PATIENCE)
    moves = respond(_beginning(seen(HangClass.GIL_HELD, (0, "n0"), stuck=False)))
    assert moves.remedy is None


@pytest.mark.parametrize("kind", _PATIENT)
def test_what_may_go_on_is_restarted_after_the_patience(kind: HangClass) -> None:
    found = respond(case(seen(kind, (3, "n0"))))
    assert (found.remedy, found.node) == (Remedy.RESTART, "")
    assert found.due_ns == _NOW - 5 * S + _PATIENCE
    assert respond(case(seen(kind, (3, "n0")), still_s=121)).due_ns <= _NOW


@pytest.mark.parametrize("kind", _PATIENT)
def test_without_patience_nobody_but_people_decides(kind: HangClass) -> None:
    found = respond(replace(case(seen(kind, (3, "n0")), still_s=9e4), patience_ns=0))
    assert found.remedy is None
    assert found.due_ns == 0


def test_one_look_alone_restarts_nothing_that_may_go_on() -> None:
    found = respond(case(seen(HangClass.CPU_SIDE, (0, "n0"), looks=1), still_s=600))
    assert found.due_ns > _NOW


@pytest.mark.parametrize("kind", [*_PATIENT, HangClass.KNOWN_SOFTWARE])
def test_while_a_rank_is_in_a_pause_nothing_is_done_and_people_are_told_so(kind: HangClass) -> None:
    paused = replace(seen(kind, (0, "n0"), looks=9), pause="rank 0, evaluation")
    found = respond(case(paused, still_s=9e4))
    assert (found.remedy, found.due_ns) == (None, 0)
    assert "rank 0, evaluation" in found.why


@pytest.mark.parametrize("kind", _AT_ONCE)
def test_a_pause_does_not_save_what_cannot_end_it(kind: HangClass) -> None:
    paused = replace(seen(kind, (0, "n0")), pause="rank 0, evaluation")
    assert respond(case(paused)).remedy is Remedy.RESTART


def test_what_is_usual_at_its_place_is_waited_for_where_that_is_longer_than_the_patience() -> None:
    known = replace(case(seen(HangClass.CPU_SIDE, (0, "n0"))), usual_ns=270 * S)
    assert respond(known).due_ns == known.still_since_ns + 270 * S
    short = replace(known, usual_ns=10 * S)
    assert respond(short).due_ns == known.still_since_ns + _PATIENCE


@pytest.mark.parametrize(("before", "factor"), [(1, 2), (2, 4)])
def test_at_a_step_of_an_earlier_restart_patience_doubles(before: int, factor: int) -> None:
    earlier = (past(HangClass.UNKNOWN, step=812),) * before
    known = replace(case(seen(HangClass.CPU_SIDE, (0, "n0"))), past=earlier)
    assert respond(known).due_ns == known.still_since_ns + factor * _PATIENCE


def test_what_is_stuck_again_at_the_same_step_is_not_restarted_at_once_again() -> None:
    earlier = past(HangClass.FROZEN, (3, "n0"), step=811)
    known = replace(case(seen(HangClass.FROZEN, (3, "n0"))), past=(earlier,))
    assert respond(known).due_ns == known.still_since_ns + _PATIENCE
    elsewhere = replace(known, past=(replace(earlier, step=100),))
    assert respond(elsewhere).due_ns <= _NOW


def test_nobody_waits_and_nothing_is_done() -> None:
    assert respond(case(seen(HangClass.NO_WAIT), still_s=9e4)).remedy is None


@pytest.mark.parametrize("confidence", [Confidence.CERTAIN, Confidence.LIKELY])
def test_a_program_whose_ranks_call_different_operations_is_ended_by_the_second_look(
    confidence: Confidence,
) -> None:
    one = seen(HangClass.DESYNC, (3, "n0"), confidence=confidence, looks=1)
    assert respond(case(one)).due_ns > _NOW
    two = respond(case(replace(one, looks=2)))
    assert (two.remedy, two.node) == (Remedy.STOP, "")
    assert two.due_ns <= _NOW


def test_a_desync_that_is_not_sure_is_waited_for() -> None:
    unsure = seen(HangClass.DESYNC, confidence=Confidence.UNSURE)
    found = respond(case(unsure))
    assert found.remedy is Remedy.RESTART
    assert found.due_ns == _NOW - 5 * S + _PATIENCE


def test_known_software_is_restarted_once_in_place_and_then_ended() -> None:
    known = case(seen(HangClass.KNOWN_SOFTWARE, (3, "n0")), still_s=130)
    first = respond(known)
    assert (first.remedy, first.node) == (Remedy.RESTART, "")
    again = respond(replace(known, past=(past(HangClass.KNOWN_SOFTWARE),)))
    assert again.remedy is Remedy.STOP


def test_the_same_rank_on_another_node_is_the_program() -> None:
    known = case(seen(HangClass.GIL_HELD, (3, "n1")))
    found = respond(replace(known, past=(past(HangClass.GIL_HELD, (3, "n0")),)))
    assert found.remedy is Remedy.STOP
    assert "rank 3" in found.why
    assert "n0" in found.why


@pytest.mark.parametrize(
    "earlier",
    [
        past(HangClass.GIL_HELD, (3, "n1")),
        past(HangClass.GIL_HELD, (4, "n0")),
        past(HangClass.CPU_SIDE, (3, "n0")),
        replace(past(HangClass.GIL_HELD, (3, "n0")), explained=True),
    ],
    ids=["the same node", "another rank", "another class", "its node was unfit"],
)
def test_what_is_not_the_same_rank_moved_ends_no_job(earlier: PastHang) -> None:
    known = case(seen(HangClass.GIL_HELD, (3, "n1")))
    assert respond(replace(known, past=(earlier,))).remedy is Remedy.RESTART


@pytest.mark.parametrize(
    "of_node",
    [NodeHang(1, "other-7", (3,)), NodeHang(1, "j-1", (4,))],
    ids=["another job", "another rank"],
)
def test_a_node_on_which_others_hung_is_replaced_and_checked(of_node: NodeHang) -> None:
    known = replace(case(seen(HangClass.GPU_SIDE, (3, "n0")), still_s=130), of_node=(of_node,))
    found = respond(known)
    assert (found.remedy, found.node) == (Remedy.REPLACE, "n0")
    shared = respond(replace(known, neighbour="llama"))
    assert (shared.remedy, shared.node) == (Remedy.RESTART, "")
    assert "llama" in shared.why


def test_the_same_rank_again_on_its_node_says_nothing_of_the_node() -> None:
    known = replace(
        case(seen(HangClass.GPU_SIDE, (3, "n0"))), of_node=(NodeHang(1, "j-1", (3, 4)),)
    )
    assert respond(known).remedy is Remedy.RESTART


def test_a_job_that_hangs_on_several_nodes_blames_none() -> None:
    known = replace(
        case(seen(HangClass.GPU_SIDE, (3, "n0"))),
        of_node=(NodeHang(1, "j-1", (4,)),),
        past=(past(HangClass.GPU_SIDE, (9, "n1")),),
    )
    assert respond(known).remedy is Remedy.RESTART


@pytest.mark.parametrize("kind", [*_AT_ONCE, *_PATIENT])
def test_a_finding_of_the_culprits_node_has_it_replaced_at_once(kind: HangClass) -> None:
    known = replace(case(seen(kind, (3, "n0"), stuck=False)), finding="GPU 3 fell off the bus")
    found = respond(known)
    assert (found.remedy, found.node) == (Remedy.REPLACE, "n0")
    assert found.due_ns <= _NOW
    assert "fell off the bus" in found.why


@pytest.mark.parametrize("kind", [HangClass.DESYNC, HangClass.KNOWN_SOFTWARE])
def test_software_isolates_nobody_whatever_is_found_of_nodes(kind: HangClass) -> None:
    known = replace(
        case(seen(kind, (3, "n0")), still_s=130),
        finding="GPU 3 fell off the bus",
        of_node=(NodeHang(1, "other-7", (3,)),),
    )
    assert respond(known).node == ""


@pytest.mark.parametrize("kind", list(HangClass))
def test_culprits_on_several_nodes_or_that_are_not_sure_take_no_node(kind: HangClass) -> None:
    others = (NodeHang(1, "other-7", (3,)),)
    for hang in (
        seen(kind, (3, "n0"), (9, "n1")),
        seen(kind, (3, "n0"), confidence=Confidence.UNSURE),
    ):
        assert hang.node == ""
        assert respond(replace(case(hang, still_s=999), of_node=others)).node == ""


# What is no program's doing, and as what of it a look may find.
FROM_OUTSIDE = {
    "SIGSTOP": (HangClass.FROZEN,),
    "a debugger": (HangClass.FROZEN,),
    "a frozen cgroup": (HangClass.FROZEN, HangClass.SILENT),
    "a wait for storage": (HangClass.STORAGE, HangClass.FROZEN),
    "a machine that stands still": (HangClass.SILENT, HangClass.FROZEN),
    "a cut network": (HangClass.FABRIC, HangClass.SILENT, HangClass.UNKNOWN),
    "a clock that was set": (HangClass.NO_WAIT,),
}
_SEEN_OUTSIDE = [(cause, kind) for cause, kinds in FROM_OUTSIDE.items() for kind in kinds]
# What else was seen before, at most: of every class, this rank elsewhere and others here.
_HISTORY = tuple(
    past(kind, (rank, node), step=step)
    for kind in HangClass
    for rank, node in ((3, "n1"), (4, "n0"), (3, "n0"))
    for step in (100, 700)
)


def _after_much(kind: HangClass, confidence: Confidence, *culprits: tuple[int, str]) -> HangCase:
    hang = seen(kind, *culprits, confidence=confidence, looks=9)
    return replace(
        case(hang, still_s=9e6),
        past=_HISTORY,
        of_node=(NodeHang(1, "other-7", (3,)), NodeHang(1, "j-1", (4,))),
    )


@pytest.mark.parametrize(("cause", "kind"), _SEEN_OUTSIDE)
@pytest.mark.parametrize("confidence", list(Confidence))
@pytest.mark.parametrize("culprits", [(), ((3, "n0"),), ((3, "n0"), (9, "n1"))])
def test_nothing_from_outside_ends_a_job_or_takes_a_node_however_often_it_comes(
    cause: str, kind: HangClass, confidence: Confidence, culprits: tuple[tuple[int, str], ...]
) -> None:
    found = respond(_after_much(kind, confidence, *culprits))
    assert found.remedy in (None, Remedy.RESTART), cause
    assert found.node == ""


@pytest.mark.parametrize(("cause", "kind"), _SEEN_OUTSIDE)
@pytest.mark.parametrize("blamed", [HangClass.GIL_HELD, HangClass.GPU_SIDE])
def test_what_came_from_outside_is_no_history_of_a_rank_or_a_node(
    cause: str, kind: HangClass, blamed: HangClass
) -> None:
    del cause
    known = replace(case(seen(blamed, (3, "n0"))), past=(past(kind, (3, "n1")),) * 9)
    assert respond(known).remedy is Remedy.RESTART
    assert hung_again([past(kind, (3, "n0"))] * 9) == frozenset()


@pytest.mark.parametrize("kind", [kind for kind in HangClass if Proof.NODE in PROVED[kind]])
def test_a_hang_from_outside_elsewhere_does_not_acquit_a_node(kind: HangClass) -> None:
    known = replace(
        case(seen(kind, (3, "n0")), still_s=999),
        past=(past(HangClass.FROZEN, (9, "n1")),),
        of_node=(NodeHang(1, "j-1", (4,)),),
    )
    assert respond(known).node == "n0"


@pytest.mark.parametrize("kind", list(HangClass))
def test_what_comes_again_on_the_only_node_of_a_job_says_nothing_of_the_node(
    kind: HangClass,
) -> None:
    known = replace(
        case(seen(kind, (3, "n0")), still_s=999), nodes=1, of_node=(NodeHang(1, "j-1", (4,)),)
    )
    assert respond(known).node == ""


def test_people_read_that_a_stopped_process_is_nobodys_fault_and_what_to_look_for() -> None:
    found = respond(case(seen(HangClass.FROZEN, (3, "n0"))))
    assert "neither the program nor the node" in found.why
    assert "SIGSTOP" in found.why
