"""The list of signals is what the detectors define; every condition can be raised and cleared."""

from collections import Counter

import pytest
from generate_signals import REFERENCE, reference

from everstep_agent.detectors.conditions import CONDITIONS, GROUPS
from everstep_common.judging.condition import Condition

ALL = [condition for group in GROUPS.values() for condition in group]


def test_regenerating_the_list_changes_nothing() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run `make reference`"


def test_no_two_conditions_have_one_name() -> None:
    names = Counter(condition.name for condition in ALL)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(CONDITIONS) == len(ALL)


@pytest.mark.parametrize("condition", ALL, ids=lambda condition: condition.name)
def test_every_condition_says_what_it_is_where_its_threshold_comes_from_and_what_clears_it(
    condition: Condition,
) -> None:
    said = (condition.component, condition.meaning, condition.source, condition.clears_when)
    assert all(text.strip() and not text.endswith(".") for text in said), condition
    assert condition.name.isidentifier()
    assert condition.name[0].isupper()
    assert condition.raise_after >= 1
    assert condition.clear_after >= 1
    assert not (condition.quiet_ns and condition.clear_after > 1), "an event has no healthy looks"
