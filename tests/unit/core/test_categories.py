"""The examples in the table of the ledger's categories hold: each row brings its own."""

import doctest
import re
from pathlib import Path

import everstep_controller
from everstep_controller.core.accounting import categories
from everstep_controller.core.accounting.categories import CAUSES, PLANNED_WORK, Category
from everstep_controller.core.jobs import incidents
from everstep_controller.core.model.job import Cause


def test_every_example_of_where_time_goes_holds() -> None:
    failed, tried = doctest.testmod(categories)
    assert failed == 0, "see the standard output for the example that failed"
    assert tried >= 3


def test_every_cause_in_the_tables_is_one_that_incidents_have() -> None:
    named = PLANNED_WORK.keys() | {cause for _, cause in CAUSES}
    assert named <= set(Cause), "a cause is a member of Cause in core/model/job.py"


def test_every_cause_has_a_strength() -> None:
    assert set(incidents.STRENGTH) == set(Cause)


def test_time_can_go_to_every_category() -> None:
    sources = Path(everstep_controller.__path__[0]).rglob("*.py")
    used = {name for source in sources for name in _named(source.read_text("utf-8"))}
    unused = {category.name for category in Category} - used
    assert not unused, "no time ever goes there: add a row to PLANNED_WORK or CAUSES"


def _named(source: str) -> list[str]:
    """Return the categories that a module names where it does more than define them."""
    return re.findall(r"\bCategory\.([A-Z_]+)", source)
