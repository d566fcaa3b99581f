"""The list of signals is what the detectors define; every condition can be raised and cleared."""

import importlib
import pkgutil
import re
from collections import Counter
from pathlib import Path

import pytest
from generate_signals import REFERENCE, reference

import everstep_controller
from everstep_agent.detectors import conditions as of_the_agent
from everstep_common.judging.condition import Condition
from everstep_controller import conditions as of_the_controller

OF_THE_AGENT = [one for group in of_the_agent.GROUPS.values() for one in group]
OF_THE_CONTROLLER = [one for group in of_the_controller.GROUPS.values() for one in group]
ALL = [*OF_THE_AGENT, *OF_THE_CONTROLLER]


def test_regenerating_the_list_changes_nothing() -> None:
    assert REFERENCE.read_text(encoding="utf-8") == reference(), "run `make reference`"


def test_no_two_conditions_have_one_name() -> None:
    names = Counter(condition.name for condition in ALL)
    assert [name for name, count in names.items() if count > 1] == []
    assert len(of_the_agent.CONDITIONS) == len(OF_THE_AGENT)


def test_every_finding_of_the_controller_about_itself_is_of_a_listed_condition() -> None:
    sources = Path(everstep_controller.__path__[0]).rglob("*.py")
    made = {name for source in sources for name in _conditions_in(source.read_text("utf-8"))}
    assert made == set(), "a finding names its condition by the Condition, so that it is listed"


def test_every_condition_of_the_controller_is_listed() -> None:
    listed = {condition.name for condition in OF_THE_CONTROLLER}
    defined = {
        f"{condition.name} in {module.name}"
        for module in pkgutil.walk_packages(everstep_controller.__path__, "everstep_controller.")
        if not module.name.endswith("__main__")
        for condition in vars(importlib.import_module(module.name)).values()
        if isinstance(condition, Condition) and condition.name not in listed
    }
    assert not defined, (
        "list its judge in judging/judges.py, or the function that finds it by the core's state "
        "in FROM_STATE of runtime/controller_findings.py"
    )


def _conditions_in(source: str) -> list[str]:
    """Return the conditions that findings are given as a text."""
    return re.findall(r'\bcondition="(\w+)"', source)


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
