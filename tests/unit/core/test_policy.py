"""Policy: which rule decides how far automation may go on a node, and who is in a wave."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.judging.findings import Mode
from everstep_controller.core.model.groups import Group
from everstep_controller.core.model.policy import NodePolicy, place_in_wave
from everstep_controller.core.model.settings import Settings

X = "XidFatal"
OBSERVE, ADVISE, ENFORCE = Mode.OBSERVE, Mode.ADVISE, Mode.ENFORCE
_MODES = st.sampled_from(Mode)
T = TypeVar("T", Settings, Group)


def _listed(table: T, mode: Mode | None) -> T:
    """Return settings, or a group, that name a mode for the condition, or none."""
    if mode is None:
        return table
    return replace(
        table,
        observe=(X,) * (mode is OBSERVE),
        advise=(X,) * (mode is ADVISE),
        enforce=(X,) * (mode is ENFORCE),
    )


@st.composite
def _groups(draw: st.DrawFn) -> Group:
    modes = st.none() | _MODES
    shares = st.sampled_from((0.0, 0.3, 1.0))
    group = Group(
        nodes=("n0",),
        mode=draw(modes),
        enforce_share=draw(shares),
        enforce_shares=draw(st.just(dict[str, float]()) | st.fixed_dictionaries({X: shares})),
    )
    return _listed(group, draw(modes))


@st.composite
def policies(draw: st.DrawFn) -> NodePolicy:
    settings = _listed(Settings(mode=draw(_MODES)), draw(st.none() | _MODES))
    groups = draw(st.lists(_groups(), max_size=3))
    named = tuple((f"g{index}", group) for index, group in enumerate(groups))
    return NodePolicy(draw(st.sampled_from(("n0", "n1", "n2"))), settings, "c", named)


def of(settings: Settings, groups: Mapping[str, Group]) -> NodePolicy:
    return NodePolicy("n0", settings, "c", tuple(groups.items()))


@pytest.mark.parametrize(
    ("settings", "group", "expected"),
    [
        (Settings(mode=ENFORCE, enforce=(X,)), Group(observe=(X,), mode=ENFORCE), OBSERVE),
        (Settings(mode=OBSERVE, observe=(X,)), Group(enforce=(X,)), ENFORCE),
        (Settings(mode=OBSERVE, enforce=(X,)), Group(mode=OBSERVE), ENFORCE),
        (Settings(mode=ENFORCE), Group(mode=ADVISE), ADVISE),
        (Settings(mode=ADVISE), Group(mode=ENFORCE), ENFORCE),
        (Settings(mode=ADVISE), Group(), ADVISE),
    ],
)
def test_condition_of_a_group_before_condition_before_group_before_fleet(
    settings: Settings, group: Group, expected: Mode
) -> None:
    assert of(settings, {"g": group}).mode_of(X) is expected


def test_without_a_word_of_an_operator_a_condition_goes_no_further_than_it_was_shipped() -> None:
    assert of(Settings(), {"g": Group(mode=ENFORCE)}).mode_of(X, ADVISE) is ADVISE
    assert of(Settings(), {"g": Group(enforce=(X,))}).mode_of(X, ADVISE) is ENFORCE


@given(policies(), _MODES)
def test_of_several_groups_the_most_careful_one_holds(policy: NodePolicy, most: Mode) -> None:
    order = tuple(Mode)
    together = order.index(policy.mode_of(X, most))
    listing = [group for _, group in policy.groups if group.listed_mode(X) is not None]
    for name, group in policy.groups:
        if listing and group not in listing:
            continue
        if group.mode is None and group.listed_mode(X) is None:
            continue
        alone = NodePolicy(policy.node, policy.settings, policy.cluster, ((name, group),))
        assert together <= order.index(alone.mode_of(X, most))


@given(policies(), _MODES)
def test_what_is_explained_is_what_holds(policy: NodePolicy, most: Mode) -> None:
    rules = list(policy.rules_of(X, most))
    decided = [rule for rule in rules if rule.decides]
    assert decided
    mode = policy.mode_of(X, most)
    assert mode.value in decided[-1].says or (mode is ADVISE and "advised" in decided[-1].says)


@given(st.text(min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_waves_only_add(node: str, one: float, other: float) -> None:
    small, large = sorted((one, other))

    def is_in(share: float) -> bool:
        group = Group(nodes=(node,), enforce=(X,), enforce_share=share)
        return NodePolicy(node, Settings(), "c", (("g", group),)).mode_of(X) is ENFORCE

    assert is_in(large) or not is_in(small)
    assert is_in(1.0)
    assert not is_in(0.0)


def test_a_wave_has_about_its_share_and_other_nodes_for_another_condition() -> None:
    names = [f"gpu-{index:04}" for index in range(4000)]
    tenth = {name for name in names if place_in_wave("c", X, name) < 0.1}
    assert 320 < len(tenth) < 480
    others = {name for name in names if place_in_wave("c", "LinkDown", name) < 0.1}
    assert len(tenth & others) < 80
    assert tenth != {name for name in names if place_in_wave("d", X, name) < 0.1}


def test_a_share_of_one_condition_comes_before_that_of_all() -> None:
    group = Group(nodes=("n0",), mode=ENFORCE, enforce_share=0.0, enforce_shares={X: 1.0})
    policy = of(Settings(), {"g": group})
    assert (policy.mode_of(X), policy.mode_of("LinkDown")) == (ENFORCE, ADVISE)
