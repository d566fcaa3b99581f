"""Published variants: one ledger, and what each publisher would call its ratio."""

from collections import Counter

import pytest

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.variants import VARIANTS, Measured, Variant, published

# A run of 1,000 s: 700 s of steps that count, 50 s of them slow, and the rest lost in several ways.
RUN = {
    Category.INIT_QUEUE: 40,
    Category.PRODUCTIVE: 650,
    Category.SLOW: 50,
    Category.STALL: 10,
    Category.PLANNED: 30,
    Category.DETECT: 20,
    Category.RESTORE: 80,
    Category.LOST_RECOMPUTE: 100,
    Category.GAP: 20,
}
OF_PROGRAM = {Category.DETECT: 10, Category.RESTORE: 40, Category.LOST_RECOMPUTE: 50}


def values(measured: Measured) -> dict[str, float]:
    return {one.name: one.value for one in published(measured)}


def test_each_publisher_gets_its_own_number() -> None:
    assert values(Measured(RUN, OF_PROGRAM, unsaved_ns=50)) == pytest.approx(
        {
            "ETTR_time": 0.7,
            "ETTR_work": 0.65,
            "Baidu": 1 - (200 + 10) / 1000,
            "Meta": 700 / 900,
            "Llama 3": 0.7,
            "MegaScale": 0.65,
            "ByteRobust": 0.8,
            "ByteRobust hourly": 0.8,
            "ByteRobust worst hour": 0.8,
            "Google goodput": 0.7,
            "Google resiliency": 0.6,
            "AWS": 0.65,
        }
    )


def test_an_hourly_ratio_is_of_the_newest_hour_and_the_worst_one_of_its_day() -> None:
    hours = [{Category.PRODUCTIVE: 50, Category.DETECT: 50}, {Category.PRODUCTIVE: 100}]
    told = values(Measured(RUN, OF_PROGRAM, hours=hours))
    assert (told["ByteRobust hourly"], told["ByteRobust worst hour"]) == (1.0, 0.5)


def test_waiting_for_a_save_counts_as_its_publisher_counts_it() -> None:
    run = {
        **RUN,
        Category.PERSIST: 90,
        Category.GAP: 0,
        Category.INIT_QUEUE: 0,
        Category.PLANNED: 0,
    }
    assert values(Measured(run, {}))["Baidu"] == pytest.approx(1 - (200 + 100) / 1000)


def test_nothing_is_claimed_before_time_has_passed() -> None:
    assert set(values(Measured({}, {})).values()) == {0.0}


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
def test_each_variant_is_a_share_of_any_run(variant: Variant) -> None:
    for spent in (*Category,):
        run = Counter(RUN)
        run[spent] += 10**15
        program = {spent: 10**14} if spent.group.value == "incident" else {}
        assert 0 <= variant.value(Measured(run, program)) <= 1
    assert variant.definition.endswith(".")
    assert variant.source
