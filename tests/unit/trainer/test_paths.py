"""Names in the vault: no two things share one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.state.objects.paths import PathError, join, refuse_object_name, tree
from everstep_common.shard_names import is_replaceable, owner, private_name

KEYS = st.none() | st.booleans() | st.integers() | st.text() | st.binary() | st.floats()
LONG = st.lists(KEYS, min_size=1, max_size=4)


def path(keys: list[object]) -> str:
    found = "x"
    for key in keys:
        found = join(found, key)
    return found


def kinds(keys: list[object]) -> list[tuple[type, str]]:
    return [(type(key), repr(key)) for key in keys]


@given(LONG, LONG)
def test_other_keys_make_another_path(one: list[object], other: list[object]) -> None:
    assert (path(one) == path(other)) == (kinds(one) == kinds(other))


@given(LONG)
def test_no_key_can_be_taken_for_a_part_a_group_or_a_structure(keys: list[object]) -> None:
    found = path(keys)
    assert not set("[]@\0") & set(found)
    assert not found.endswith("#tree")
    assert owner(found) == (None, found)
    for replaceable in (False, True):
        name = private_name(12, found, replaceable=replaceable)
        assert owner(name) == (12, found)
        assert is_replaceable(name) is replaceable
    assert not is_replaceable(found)
    assert tree(found) != found


@pytest.mark.parametrize("name", ["rank-3", "rank-3/a", "", "a[0:1]", "a@b", "a#tree", 7])
def test_names_that_mean_something_else_are_refused(name: object) -> None:
    with pytest.raises(PathError):
        refuse_object_name(name)


def test_common_names_are_taken() -> None:
    for name in ("model", "model.0", "opt/adam", "rank-x", "ranks", "état"):
        refuse_object_name(name)


def test_what_has_no_utf8_is_told_in_other_characters() -> None:
    assert join("x", "a\udc80").encode() == b"x/a%DC80"
    assert join("x", "a%DC80") != join("x", "a\udc80")


def test_objects_are_no_keys() -> None:
    with pytest.raises(PathError):
        join("x", object())
