"""Committed steps are kept by column, and are read as a list of the same steps would be."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.committed_steps import (
    STEPS_KEPT,
    CommittedStep,
    CommittedSteps,
)
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.job import JobRecord, JobSpec
from everstep_controller.core.model.state import State
from everstep_controller.journal import codec

_S = 1_000_000_000
_TIME = st.integers(0, 5 * _S)


@st.composite
def _steps(draw: st.DrawFn) -> list[CommittedStep]:
    excess = st.sampled_from([Category.SLOW, Category.WARMUP, Category.INIT_WARMUP])
    found, number, at_ns = list[CommittedStep](), 0, 10**18
    for skip, *spent in draw(st.lists(st.tuples(st.integers(1, 3), *[_TIME] * 4), max_size=12)):
        number, start_ns = number + skip, at_ns + spent[0]
        at_ns = start_ns + sum(spent[1:])
        found.append(CommittedStep(number, start_ns, at_ns, spent[1], draw(excess), spent[2]))
    return found


def _state(steps: CommittedSteps) -> State:
    spec = JobSpec(uid=0, token_sha256="t", nodes_min=1, nodes_max=1)
    job = JobRecord("j-1", "j", spec, Ledger(0, steps=steps))
    return State(jobs={"j-1": job})


def _as_before(step: CommittedStep) -> dict[str, object]:
    """Return a step as snapshots of the state held it, each with names of its own."""
    return {
        "step": step.step,
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "productive_ns": step.productive_ns,
        "excess_ns": step.excess_ns,
        "excess_category": step.excess_category,
        "stall_ns": step.stall_ns,
    }


@given(_steps(), st.integers(-3, 40), st.integers(-14, 14))
def test_they_are_read_as_a_list_is(steps: list[CommittedStep], number: int, place: int) -> None:
    kept = CommittedSteps(steps)
    assert list(kept) == steps
    assert len(kept) == len(steps)
    assert kept[place:] == steps[place:]
    assert kept[:place] == steps[:place]
    if -len(steps) <= place < len(steps):
        assert kept[place] == steps[place]
    ended = {step.step: step.end_ns for step in steps}
    assert kept.ended_ns(number) == ended.get(number, 0)
    if steps:
        assert kept.longest_ns() == max(step.end_ns - step.start_ns for step in steps)
    assert kept.take_after(number) == [step for step in steps if step.step > number]
    assert list(kept) == [step for step in steps if step.step <= number]


@given(_steps())
def test_a_snapshot_of_the_state_has_them_by_column_and_gives_them_back(
    steps: list[CommittedStep],
) -> None:
    state = _state(CommittedSteps(steps))
    again = codec.decode_state(codec.encode(state))
    assert list(again.jobs["j-1"].ledger.steps) == steps
    assert again == state
    assert codec.encode(again) == codec.encode(state)


@given(_steps())
def test_a_snapshot_that_has_them_one_by_one_is_read(steps: list[CommittedStep]) -> None:
    empty = codec.encode(_state(CommittedSteps()))
    columns = codec.encode(CommittedSteps().columns())  # type: ignore[arg-type]
    one_by_one = codec.encode([_as_before(step) for step in steps])  # type: ignore[arg-type]
    assert empty.count(columns) == 1
    old = codec.decode_state(empty.replace(columns, one_by_one))
    assert old == _state(CommittedSteps(steps))


def test_columns_of_several_lengths_are_no_snapshot() -> None:
    step = CommittedStep(1, 0, 2, 2, Category.SLOW, 0)
    text = codec.encode(_state(CommittedSteps([step])))
    damaged = text.replace(b'"pause_ns":[0]', b'"pause_ns":[0,0]')
    assert damaged != text
    with pytest.raises(codec.UnreadableError, match=r"^snapshot: "):
        codec.decode_state(damaged)


def test_the_newest_are_kept() -> None:
    kept = CommittedSteps()
    for number in range(STEPS_KEPT + 10):
        kept.append(CommittedStep(number, number, number + 1, 1, Category.SLOW, 0))
    assert len(kept) == STEPS_KEPT
    assert kept[0].step == 10
    assert all(one.step + 1 == other.step for one, other in pairwise(kept))
