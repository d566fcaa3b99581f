"""Pattern cost: repeats within repeats are counted, and not what the next letter decides."""

import re

import pytest

from everstep_agent.detectors.kernel.rules.builtin import RULES
from everstep_agent.detectors.kernel.rules.pattern_cost import (
    LINE_CHARS_MAX,
    WAYS_MAX,
    ways_to_match,
)

_ANY = LINE_CHARS_MAX + 1


@pytest.mark.parametrize(
    ("expression", "ways"),
    [
        (r"pdumon \w+: lost", 1),  # no letter of the word is a colon
        (r"pdumon .*", 1),  # behind the end everything matches
        (r"pdumon .*lost", _ANY),
        (r"pdumon .*?lost", _ANY),
        (r"pdumon .{0,80}lost", 81),
        (r"pdumon .{0,80}x.{0,80}lost", 81 * 81),
        (r"pdumon .*x.*lost", _ANY**2),
        (r".*lost", _ANY * LINE_CHARS_MAX),  # tried from each place
        (r"a(?:\d+, )*b", 1),
        (r"a(?:foo|bar)+x", 1),
        (r"a(?:\wb|fc){1,2}x", 8),
        (r"a[^,]*,b", 1),
        (r"a[^,]*\bb", _ANY),
        (r"x(?=.*a)b", _ANY),
        (r"a\S{1,5}\sb", 5),  # of letters beyond Latin-1 nothing is known
        (r"ax{0,9}Xb", 10),  # as if case did not matter
        (r"(?P<a>b)?c(?(a).{0,3}d|e)", 5),
        (r"ab++c", 1),
    ],
)
def test_ways_are_counted(expression: str, ways: int) -> None:
    re.compile(expression)
    assert ways_to_match(expression) == ways


@pytest.mark.parametrize(
    "expression",
    [
        r"a(?:\w+)+!",
        r"a(?:\w+ ?)+!",
        r"a(?:b|b)*c",
        r"a(?:b?){60}c",
        r"(\w+\s?)*$",
        r"a(?>(?:\w+)+)c",
        r"a(?:.*,)*b",
    ],
)
def test_what_takes_for_ever_is_above_the_limit(expression: str) -> None:
    re.compile(expression)
    assert ways_to_match(expression) > WAYS_MAX


def test_no_rule_of_the_agent_is_above_the_limit() -> None:
    assert [rule.name for rule in RULES if ways_to_match(rule.expression) > WAYS_MAX] == []
