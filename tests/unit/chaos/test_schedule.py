"""Schedule of faults: the same of the same seed, and each kind comes within an hour."""

from chaos.run import BEGINNINGS
from chaos.schedule import RULES, FaultKind, plan


def test_a_seed_is_one_schedule() -> None:
    assert list(plan(1, 5)) == list(plan(1, 5))
    assert list(plan(1, 5)) != list(plan(2, 5))


def test_every_kind_comes_within_an_hour_of_any_seed() -> None:
    for seed in range(20):
        assert {one.kind for one in plan(seed, 60)} == set(FaultKind)


def test_faults_come_in_order_and_last_as_long_as_their_rules_say() -> None:
    lasts = {rule.kind: rule.lasts_s for rule in RULES}
    planned = list(plan(3, 60))
    assert [one.at_s for one in planned] == sorted(one.at_s for one in planned)
    for one in planned:
        least, most = lasts[one.kind]
        assert least <= one.lasts_s <= most


def test_every_kind_has_a_rule_and_a_beginning() -> None:
    assert [rule.kind for rule in RULES] == list(FaultKind)
    assert BEGINNINGS.keys() == set(FaultKind)
