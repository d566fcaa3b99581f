"""Program divergence: a rank that does what it never did before, and programs that only vary."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.hangs.dumps.noted_calls import NotedCall, NotedCalls
from everstep_common.hangs.dumps.program_divergence import Called, departure_of

_STEP = "TTTTTTTTDWD"


def _called(names: Iterable[str]) -> list[Called]:
    return [Called(name) for name in names]


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        (_STEP * 10 + "TTTTTTTD", "D where T came the 9 times before"),
        (_STEP * 10 + "TTTTTTTDWDT", "D where T came the 9 times before"),
        (_STEP * 200 + "TTTTTTTTW", "W where D came the 108 times before"),
        ("AB" * 20 + "AA", "A where B came the 20 times before"),
        # Eight microbatches and one end; one microbatch is left out.
        (("AB" * 8 + "C") * 12 + "AB" * 7 + "C", "C where A came the 11 times before"),
    ],
)
def test_what_came_otherwise_than_each_time_before_is_told(operations: str, words: str) -> None:
    assert departure_of(_called(operations)) == words


@pytest.mark.parametrize(
    "operations",
    [
        "",
        "A",
        _STEP * 6,
        _STEP * 200 + "TTT",
        # Too short a history.
        "AB" * 4 + "C",
        # Now and then there is one more; twice it was so before.
        ("ABC" * 9 + "ABBC") * 2 + "ABC" * 9 + "ABB",
        # What a program begins with.
        "XYZZY" + "AB" * 40,
        # It has gone well for 40 steps since.
        "ABC" * 40 + "AC" + "ABC" * 40,
    ],
)
def test_a_program_that_goes_on_as_before_has_not_departed(operations: str) -> None:
    assert departure_of(_called(operations)) == ""


@given(st.integers(0, 10_000), st.sampled_from(["leaves one out", "swaps two"]))
def test_one_fault_in_any_step_is_found(seed: int, fault: str) -> None:
    draw = random.Random(seed)
    step = "".join(draw.choice("ABCD") for _ in range(draw.randrange(3, 24)))
    at = draw.randrange(len(step) - 1)
    second = "" if fault == "leaves one out" else step[at]
    wrong = step[:at] + step[at + 1] + second + step[at + 2 :]
    before, ends = step * draw.randrange(12, 60), draw.randrange(at + 1, len(step))
    assert departure_of(_called(before + step[:ends])) == ""
    departed = not (step * 70).startswith(before + wrong[:ends])
    assert (departure_of(_called(before + wrong[:ends])) != "") == departed


def test_a_program_in_which_anything_may_come_next_never_departs() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        operations = "".join(draw.choice(("AB", "AC", "AD")) for _ in range(400))
        assert departure_of(_called(operations)) == "", seed


def test_another_size_departs_where_sizes_were_the_same_each_time() -> None:
    step = [Called("reduce", "4 Float"), Called("gather", "8 Float")]
    told = departure_of([*step * 21, Called("reduce", "6 Float")])
    assert told == "reduce of 6 Float where 4 Float came the 20 times before"
    assert departure_of([*step * 3, Called("reduce", "6 Float")]) == ""


def test_sizes_that_differ_from_batch_to_batch_do_not_depart() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        called = [Called("reduce", f"{draw.choice((512, 768, 1024))} Float") for _ in range(300)]
        assert departure_of(called) == "", seed


def test_noted_calls_stand_where_they_were_called() -> None:
    recorded = [(at, Called("reduce")) for at in (10, 20, 30)]
    noted = NotedCalls((NotedCall(5, "send"), NotedCall(15, "send"), NotedCall(35, "recv")))
    told = [one.label for one in noted.among(recorded)]
    # Of what was before the first recorded operation, only half is known.
    assert told == ["reduce", "send", "reduce", "reduce", "recv"]


def test_of_what_was_before_the_oldest_noted_call_only_half_is_known() -> None:
    recorded = [(at, Called(f"reduce {at}")) for at in (10, 20, 30)]
    noted = NotedCalls((NotedCall(15, "send"),), cut=True)
    assert [one.label for one in noted.among(recorded)] == ["send", "reduce 20", "reduce 30"]
