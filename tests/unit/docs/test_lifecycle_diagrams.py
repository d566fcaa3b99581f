"""The state diagrams in the architecture are what the two tables say."""

from generate_lifecycles import ARCHITECTURE, order_section, section, with_lifecycles


def test_regenerating_the_diagrams_changes_nothing() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert with_lifecycles(page) == page, "run `make reference`"


def test_both_life_cycles_and_the_order_of_decisions_are_drawn() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    assert section("node") in page
    assert section("job") in page
    assert order_section() in page
    assert "running --> stopping: FAULT / STOP_MEMBERS" in page
