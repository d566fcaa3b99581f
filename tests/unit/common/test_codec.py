"""What crosses a boundary as JSON comes back as it was, or as a CodecError with its path."""

import contextlib
from dataclasses import dataclass
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.codec import CodecError, from_json, to_json


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: float = 0.0


@dataclass(frozen=True, slots=True)
class Picture:
    name: str
    colour: Colour
    points: tuple[Point, ...]
    pair: tuple[int, str]
    digest: bytes
    visible: bool
    labels: dict[str, int]
    parent: str | None = None


PICTURE = Picture(
    name="p",
    colour=Colour.BLUE,
    points=(Point(1), Point(2, 0.5)),
    pair=(3, "three"),
    digest=b"\x00\xff",
    visible=True,
    labels={"a": 1},
)

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def _with(**changes: object) -> dict[str, object]:
    body = to_json(PICTURE)
    assert isinstance(body, dict)
    return body | changes


def test_every_supported_type_survives_the_round_trip() -> None:
    assert from_json(Picture, to_json(PICTURE)) == PICTURE


@given(
    st.builds(
        Picture,
        name=st.text(st.characters(codec="utf-8")),
        colour=st.sampled_from(Colour),
        points=st.lists(
            st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
        ).map(tuple),
        pair=st.tuples(st.integers(0, 9), st.just("x")),
        digest=st.binary(max_size=40),
        visible=st.booleans(),
        labels=st.dictionaries(st.text(max_size=3), st.integers(0, 9)),
        parent=st.none() | st.just("root"),
    )
)
def test_any_value_survives_the_round_trip(picture: Picture) -> None:
    assert from_json(Picture, to_json(picture)) == picture


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": "green"}, "Picture.colour: expected one of 'red', 'blue', got 'green'"),
        ({"colour": []}, "Picture.colour: expected one of 'red', 'blue', got []"),
        ({"points": [{"x": "1"}]}, "Picture.points[0].x: expected int, got '1'"),
        ({"points": [{"x": True}]}, "Picture.points[0].x: expected int, got True"),
        ({"points": [{"x": 2**63}]}, "Picture.points[0].x: expected at most 64 bits"),
        ({"points": [{"x": 1, "y": 10**400}]}, "Picture.points[0].y: expected at most 64 bits"),
        ({"points": {}}, "Picture.points: expected a list, got {}"),
        ({"pair": [1]}, "Picture.pair: expected 2 items, got 1"),
        ({"digest": "zz"}, "Picture.digest: expected hexadecimal bytes"),
        ({"name": "\ud800"}, "Picture.name: expected Unicode text"),
        ({"labels": [1]}, "Picture.labels: expected a mapping, got [1]"),
        ({"labels": {"a": None}}, "Picture.labels.a: expected int, got None"),
        ({"extra": 1}, "Picture: unknown field 'extra'"),
        ({"visible": None}, "Picture.visible: expected bool, got None"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(changes: dict[str, object], message: str) -> None:
    with pytest.raises(CodecError) as caught:
        from_json(Picture, _with(**changes))
    assert str(caught.value) == message


def test_a_missing_field_is_named() -> None:
    with pytest.raises(CodecError, match="Point: missing x"):
        from_json(Point, {})


def test_a_long_hostile_value_is_shortened_in_the_message() -> None:
    with pytest.raises(CodecError) as caught:
        from_json(Point, {"x": "y" * 10_000})
    assert len(str(caught.value)) < 200


@given(_JSON)
def test_arbitrary_json_is_taken_or_refused_but_never_crashes(value: object) -> None:
    with contextlib.suppress(CodecError):
        assert isinstance(from_json(Picture, value), Picture)
