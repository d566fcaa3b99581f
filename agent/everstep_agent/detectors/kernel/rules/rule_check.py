"""Rule check: every mistake in a rule table at once, and its example lines as tests."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from string import Formatter
from typing import Any

from everstep_agent.detectors.kernel.rules.line import KernelLine
from everstep_agent.detectors.kernel.rules.pattern_cost import WAYS_MAX, ways_to_match
from everstep_agent.detectors.kernel.rules.rule import LineRule, LineRules
from everstep_agent.detectors.kernel.rules.rule_table import (
    COMMON_WORDS,
    FINDING_KEYS,
    FLAGS,
    Document,
    examples,
    expanded,
    harmless,
    read_table,
)
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement

_FINDING: Mapping[str, object] = {
    "component": str,
    "message": str,
    "severity": Severity,
    "action": SuggestedAction,
}
_TABLE: Mapping[str, object] = {
    "ignore_case": bool,
    "words": dict,
    "conditions": dict,
    "rules": list,
}
_TOP: Mapping[str, type] = {"words": dict, "conditions": dict, "rules": list}
_CONDITION: Mapping[str, object] = {
    "component": str,
    "meaning": str,
    "source": str,
    "clears_when": str,
    "quiet_min": int,
    "clear_after": int,
    "mode": Mode,
    "finding": dict,
}
_CONDITION_REQUIRED = ("component", "meaning")
_RULE: Mapping[str, object] = {
    "name": str,
    "condition": str,
    "needle": str,
    "pattern": "pattern",
    "source": str,
    "examples": str,
    "harmless": str,
    **_FINDING,
    **dict.fromkeys(FLAGS, bool),
}
_RULE_REQUIRED = ("name", "condition", "needle", "pattern", "source", "examples")

_Ask = Callable[[KernelLine], tuple[LineRule, Judgement] | None]
_CONDITION_NAME = re.compile(r"[A-Z][A-Za-z0-9]{2,63}")
_RULE_NAME = re.compile(r"[a-z][a-z0-9-]{2,63}")
_COMPONENT = re.compile(r"[a-z_]{1,32}/\S{1,128}")
# The search for a shorter one finds half of all lines, and each of these costs a pattern.
_NEEDLE_CHARS_MIN = 2
# Of minutes a year, and of readings more than anybody waits for.
_NUMBER_MAX = 525_600


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong in a table; ``rule`` is the place of the rule in it, None: of no rule."""

    rule: int | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What a table finds there: names that it may not use, and rules that are asked before its."""

    rules: LineRules | None = None
    conditions: Collection[str] = ()


def check_table(document: Document, taken: Taken) -> list[Mistake]:
    """Return every mistake of a table. The examples are played when there is no other."""
    found = [*_keys(document, _TABLE, (), "", None)]
    if any(not isinstance(document.get(key, kind()), kind) for key, kind in _TOP.items()):
        return found
    words, wrong = _words(document.get("words", {}))
    found += wrong
    conditions = document.get("conditions", {})
    for name, row in conditions.items():
        found += _condition(name, row, taken.conditions)
    seen: set[str] = {rule.name for rule in taken.rules or ()}
    for place, row in enumerate(document.get("rules", [])):
        found += [Mistake(place, said) for said in _rule(row, conditions, words, seen)]
        if isinstance(row, dict):
            seen.add(str(row.get("name", "")))
    return found or list(play(document, taken.rules))


def play(document: Document, before: LineRules | None = None) -> Iterator[Mistake]:
    """Yield which examples of a table without other mistakes it does not keep."""
    own = LineRules(read_table(document).rules)
    asked = LineRules([*(before or ()), *own])
    rows = document.get("rules", [])
    for place, (rule, row) in enumerate(zip(own, rows, strict=True)):
        for number, example in enumerate(examples(row), 1):
            said = _example(rule, example.component, example.line, asked.answer)
            if said:
                yield Mistake(place, f"example {number}: {said}: {example.line}")
        for number, line in enumerate(harmless(row), 1):
            answer = own.answer(KernelLine(line))
            if answer is not None:
                yield Mistake(
                    place, f"harmless {number}: the rule {answer[0].name} knows it: {line}"
                )


def _example(rule: LineRule, component: str, text: str, ask: _Ask) -> str:
    answer = ask(KernelLine(text))
    if answer is not None and answer[0].name != rule.name:
        return f"the rule {answer[0].name} knows it and is asked before"
    if answer is not None:
        about = answer[1].key.component
        return "" if about == component else f"it is about {about}, not {component}"
    if not text:
        return "expected a component, a space and a line"
    if rule.needle not in text:
        return f"the needle {rule.needle!r} is not in it"
    if rule.pattern.search(text) is None:
        return "the pattern does not match it"
    return "what the pattern matches is not how a message of the kernel begins"


# --- the shape -----------------------------------------------------------------------------------


def _keys(
    row: Document,
    kinds: Mapping[str, object],
    required: Collection[str],
    where: str,
    rule: int | None,
) -> Iterator[Mistake]:
    for key, value in row.items():
        if key not in kinds:
            near = difflib.get_close_matches(key, kinds, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(kinds)}"
            yield Mistake(rule, f"{where}{key}: unknown key{hint}")
        elif wanted := _unlike(kinds[key], value):
            yield Mistake(rule, f"{where}{key}: expected {wanted}, got {value!r}")
    for key in required:
        if key not in row:
            yield Mistake(rule, f"{where}{key}: missing")


def _unlike(kind: object, value: object) -> str:
    """Return what was expected in place of a value; "" when it is that."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        known = [member.value for member in kind]
        return "" if value in known else f"one of {', '.join(map(repr, known))}"
    if kind == "pattern":
        fine = isinstance(value, str) or (
            isinstance(value, list) and all(isinstance(piece, str) for piece in value)
        )
        return "" if fine and value else "a pattern, or a list of its pieces"
    if kind is str:
        return "" if isinstance(value, str) and value.strip() else "a string"
    if kind is int:
        fine = type(value) is int and 0 < value <= _NUMBER_MAX
        return "" if fine else f"a whole number from 1 to {_NUMBER_MAX}"
    names = {bool: "true or false", dict: "a table", list: "a list of tables, [[rules]]"}
    assert isinstance(kind, type)
    return "" if isinstance(value, kind) else names[kind]


def _words(rows: Mapping[str, Any]) -> tuple[dict[str, str], list[Mistake]]:
    words, found = dict(COMMON_WORDS), []
    for name, pieces in rows.items():
        if wanted := _unlike("pattern", pieces):
            found.append(Mistake(None, f"words.{name}: expected {wanted}, got {pieces!r}"))
            words[name] = ""
            continue
        try:
            words[name] = expanded(pieces, words)
        except KeyError as error:
            found.append(Mistake(None, f"words.{name}: no word {error.args[0]!r} stands above"))
            words[name] = ""
    return words, found


def _condition(name: str, row: object, taken: Collection[str]) -> Iterator[Mistake]:
    where = f"conditions.{name}"
    if not isinstance(row, dict):
        yield Mistake(None, f"{where}: expected a table, got {row!r}")
        return
    if not _CONDITION_NAME.fullmatch(name):
        yield Mistake(None, f"{where}: a name is words like PduFlaky, of letters and digits")
    if name in taken:
        yield Mistake(None, f"{where}: there is a condition of this name already")
    yield from _keys(row, _CONDITION, _CONDITION_REQUIRED, f"{where}.", None)
    about = row.get("component")
    if isinstance(about, str) and not _COMPONENT.fullmatch(about):
        yield Mistake(
            None, f'{where}.component: expected a kind and what it is, like "disk/DEVICE"'
        )
    if isinstance(row.get("finding"), dict):
        yield from _keys(row["finding"], _FINDING, (), f"{where}.finding.", None)


def _rule(
    row: object, conditions: Mapping[str, Any], words: Mapping[str, str], taken: Collection[str]
) -> Iterator[str]:
    if not isinstance(row, dict):
        yield f"expected a table, got {row!r}"
        return
    shape = [one.sentence for one in _keys(row, _RULE, _RULE_REQUIRED, "", None)]
    yield from shape
    yield from _names(row, conditions, taken)
    whole = {**_defaults(row, conditions), **row}
    for key in FINDING_KEYS[:2]:
        if key not in whole:
            yield f"{key}: missing, and its condition has no finding.{key}"
    if not _unlike("pattern", row.get("pattern")):
        yield from _pattern(whole, words)


def _defaults(row: Document, conditions: Mapping[str, Any]) -> Document:
    condition = conditions.get(str(row.get("condition")), {})
    finding = condition.get("finding", {}) if isinstance(condition, dict) else {}
    return finding if isinstance(finding, dict) else {}


def _names(row: Document, conditions: Mapping[str, Any], taken: Collection[str]) -> Iterator[str]:
    name, condition, needle = (row.get(key) for key in ("name", "condition", "needle"))
    if isinstance(name, str) and not _RULE_NAME.fullmatch(name):
        yield "name: expected words like pdu-lost-phase, of small letters, digits and hyphens"
    if isinstance(name, str) and name in taken:
        yield f"name: there is a rule {name!r} already"
    if isinstance(condition, str) and condition not in conditions:
        near = difflib.get_close_matches(condition, conditions, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield f"condition: [conditions.{condition}] is not in this file{hint}"
    if isinstance(needle, str) and len(needle) < _NEEDLE_CHARS_MIN:
        yield f"needle: expected {_NEEDLE_CHARS_MIN} characters or more, got {needle!r}"


def _pattern(row: Document, words: Mapping[str, str]) -> Iterator[str]:
    try:
        expression = expanded(row["pattern"], words)
        groups = set(re.compile(expression).groupindex)
        ways = ways_to_match(expression)
    except KeyError as error:
        yield f"pattern: no word {error.args[0]!r} under [words]"
        return
    except (re.error, RecursionError, OverflowError) as error:
        yield f"pattern: no regular expression of Python: {error}"
        return
    if ways > WAYS_MAX:
        yield (
            "pattern: one line could keep the agent busy for ever, so many are the ways to try it; "
            "bound what repeats, as .{0,80} or [^:]{1,40}:, and repeat nothing that repeats itself"
        )
    for key in FINDING_KEYS[:2]:
        if isinstance(row.get(key), str):
            yield from _placeholders(key, row[key], groups)


def _placeholders(key: str, text: str, groups: set[str]) -> Iterator[str]:
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        yield f"{key}: {error}; a brace that means itself is written twice"
        return
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if name not in groups or form or conversion:
            known = ", ".join(f"{{{group}}}" for group in sorted(groups)) or "none"
            yield f"{key}: {{{name}}} is no group of the pattern, (?P<{name}>…); groups: {known}"
