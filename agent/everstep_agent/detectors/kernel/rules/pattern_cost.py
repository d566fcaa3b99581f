"""Pattern cost: in how many ways an expression can be tried on one line before it fails.

Python's engine tries again wherever a repeat could have ended elsewhere. A repeat inside a repeat,
one of words in one of lines, then takes for ever on a line of 60 characters, and the agent's loop
stands still meanwhile. Counted is from the parsed expression, so the answer is the same on
each machine, whatever lines will come.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

# The kernel hands over no longer record (CONSOLE_EXT_LOG_MAX).
LINE_CHARS_MAX = 8192
# Two `.*` behind a word, of which the longest line makes a second's work; all of our own rules.
WAYS_MAX = 200_000_000
# A pattern that begins by more letters begins anywhere; a word of a class has at most these.
_BEGINNINGS_MAX = 80
# Beyond it nothing has to be counted exactly.
_ENDLESS = 10**18

# Characters by which a piece of a pattern may begin, as bits. Letters beyond Latin-1 are as ÿ, and
# small ones as large ones: then more pieces overlap, and the answer is right with and without case.
_Letters = int
_ALL: _Letters = (1 << 256) - 1
_NOTHING: _Letters = 0
_SMALL: _Letters = ((1 << 26) - 1) << ord("a")
_CASE = ord("a") - ord("A")

# Python's own parser of expressions: what it takes for a repeat is one, in every version.
_parser: Any = import_module("re._parser")
_CATEGORIES: Mapping[str, Callable[[str], bool]] = {
    "CATEGORY_DIGIT": str.isdecimal,
    "CATEGORY_SPACE": str.isspace,
    "CATEGORY_WORD": lambda letter: letter.isalnum() or letter == "_",
}
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
# These never give back what they took.
_ONCE = ("POSSESSIVE_REPEAT", "ATOMIC_GROUP")


def ways_to_match(expression: str) -> int:
    """Return the most ways in which one line can be tried. Raises re.error."""
    items = list(_parser.parse(expression))
    # Behind the end everything matches: what comes last is never tried again.
    ways = _ways(items, _NOTHING)
    # What begins by any letter is tried from each place of a line.
    anywhere = _first(items, _NOTHING).bit_count() > _BEGINNINGS_MAX and ways > 1
    return min(ways * LINE_CHARS_MAX if anywhere else ways, _ENDLESS)


def _ways(items: Sequence[tuple[Any, Any]], follow: _Letters) -> int:
    """Return the ways through a sequence, behind which a letter of ``follow`` is expected."""
    total = 1
    for place, item in enumerate(items):
        behind = _first(items[place + 1 :], follow)
        total = min(_ENDLESS, total * _ways_of(item, behind))
    return total


def _ways_of(item: tuple[Any, Any], behind: _Letters) -> int:
    name, value = str(item[0]), item[1]
    if name in _REPEATS:
        least, most, body = value
        return _ways_of_repeat(least, most, body, behind)
    if name == "SUBPATTERN":
        return _ways(list(value[3]), behind)
    if name == "BRANCH":
        return _ways_of_branches([list(one) for one in value[1]], behind)
    if name == "GROUPREF_EXISTS":
        return _ways_of_branches([list(one) for one in value[1:] if one is not None], behind)
    if name in ("ASSERT", "ASSERT_NOT"):
        return _ways(list(value[1]), _ALL)
    if name in _ONCE:
        return _ways(list(value if name == "ATOMIC_GROUP" else value[2]), _ALL)
    return 1


def _ways_of_repeat(least: int, most: int, body: Iterable[Any], behind: _Letters) -> int:
    items, times = list(body), min(int(most), LINE_CHARS_MAX)
    begins = _first(items, _NOTHING)
    within = _ways(items, begins | behind) if times > 1 else _ways(items, behind)
    inside = _ENDLESS if within > 1 and times > 60 else int(within**times)
    ends = 1 if not begins & behind else max(1, times - least + 1)
    return min(_ENDLESS, inside * ends)


def _ways_of_branches(branches: Sequence[Sequence[Any]], behind: _Letters) -> int:
    ways = [_ways(branch, behind) for branch in branches]
    taken = _NOTHING
    for branch in branches:
        begins = _first(branch, behind)
        if begins & taken:
            return min(_ENDLESS, sum(ways))
        taken |= begins
    return max(ways)


def _first(items: Sequence[tuple[Any, Any]], follow: _Letters) -> _Letters:
    """Return by which letters a sequence may begin; with ``follow`` where it may be empty."""
    begins = _NOTHING
    for item in items:
        letters, may_be_empty = _first_of(item)
        begins |= letters
        if not may_be_empty:
            return begins
    return begins | follow


def _first_of(item: tuple[Any, Any]) -> tuple[_Letters, bool]:
    name, value = str(item[0]), item[1]
    if name in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
        letters = _letters_of(name, value)
        return letters | (letters & _SMALL) >> _CASE | (letters << _CASE) & _SMALL, False
    if name in (*_REPEATS, "POSSESSIVE_REPEAT"):
        items = list(value[2])
        return _first(items, _NOTHING), value[0] == 0 or _may_be_empty(items)
    if name in ("SUBPATTERN", "ATOMIC_GROUP"):
        items = list(value[3] if name == "SUBPATTERN" else value)
        return _first(items, _NOTHING), _may_be_empty(items)
    if name == "BRANCH":
        branches = [list(one) for one in value[1]]
        letters = _NOTHING
        for branch in branches:
            letters |= _first(branch, _NOTHING)
        return letters, any(map(_may_be_empty, branches))
    # A place, a look around or an earlier group: it may fail behind any letter.
    return _ALL, True


def _may_be_empty(items: Sequence[tuple[Any, Any]]) -> bool:
    return all(_first_of(item)[1] for item in items)


def _letters_of(name: str, value: Any) -> _Letters:  # noqa: ANN401
    if name == "LITERAL":
        return 1 << min(int(value), 255)
    if name == "NOT_LITERAL":
        return _ALL & ~(1 << int(value)) if value < 255 else _ALL
    return _ALL if name == "ANY" else _letters_in(value)


def _letters_in(members: Iterable[tuple[Any, Any]]) -> _Letters:
    letters, negated = _NOTHING, False
    for kind, value in members:
        name = str(kind)
        if name == "NEGATE":
            negated = True
        elif name == "LITERAL":
            letters |= 1 << min(value, 255)
        elif name == "RANGE":
            first, last = (min(one, 255) for one in value)
            letters |= ((1 << (last - first + 1)) - 1) << first
        else:
            letters |= _letters_of_category(str(value))
    # Of letters beyond Latin-1 a class and its opposite may both have some.
    return _ALL & ~letters | 1 << 255 if negated else letters


@cache
def _letters_of_category(name: str) -> _Letters:
    belongs = _CATEGORIES.get(name.replace("_NOT_", "_"))
    if belongs is None:
        return _ALL
    chosen = sum(1 << code for code in range(255) if belongs(chr(code)))
    return (_ALL & ~chosen if "_NOT_" in name else chosen) | 1 << 255
