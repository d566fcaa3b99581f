"""Rule table: conditions of the kernel log and the rules that find them, as TOML tells them.

What is built from a document here must have been checked (rule_check.py): the built-in tables by
the tests, those of a site when they are loaded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from everstep_agent.detectors.kernel.rules.line import PCI
from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

Document = Mapping[str, Any]

# "${device}" in a pattern stands for the word of that name.
WORD = re.compile(r"\$\{(\w+)\}")
# The word that every table has: an address as drivers write it.
COMMON_WORDS = {"pci": PCI}
FLAGS = ("ends", "usual_at_boot", "address_is_port", "logged_by_program", "user_forgeable")
# What all rules of a condition say unless they say otherwise.
FINDING_KEYS = ("component", "message", "severity", "action")
_QUIET_MIN = 60


@dataclass(frozen=True, slots=True)
class RuleTable:
    """Conditions and rules of one file, in its order."""

    conditions: tuple[Condition, ...]
    rules: tuple[LineRule, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """A line that a rule knows, and the component that it is about."""

    component: str
    line: str


def read_table(document: Document) -> RuleTable:
    """Return what a checked document holds."""
    conditions = document.get("conditions", {})
    words = expanded_words(document.get("words", {}))
    ignore_case = document.get("ignore_case", False)
    return RuleTable(
        tuple(_condition(name, row) for name, row in conditions.items()),
        tuple(
            _rule({**conditions[row["condition"]].get("finding", {}), **row}, words, ignore_case)
            for row in document.get("rules", ())
        ),
    )


def expanded_words(rows: Mapping[str, str | list[str]]) -> dict[str, str]:
    """Return the words of a table, those in them replaced. Raises KeyError for an unknown one."""
    words = dict(COMMON_WORDS)
    for name, pieces in rows.items():
        words[name] = expanded(pieces, words)
    return words


def expanded(pieces: str | list[str], words: Mapping[str, str]) -> str:
    """Return a pattern in one piece, with its words replaced. Raises KeyError."""
    whole = pieces if isinstance(pieces, str) else "".join(pieces)
    return WORD.sub(lambda match: words[match[1]], whole) if "${" in whole else whole


def examples(row: Document) -> Iterator[Example]:
    """Yield the lines that a rule has to know: "disk/sda I/O error, dev sda, sector 1"."""
    for text in _lines(row.get("examples", "")):
        component, _, line = text.partition(" ")
        yield Example(component, line)


def harmless(row: Document) -> Iterable[str]:
    """Return the lines alike that no rule of the table may know."""
    return _lines(row.get("harmless", ""))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.strip()]


def _condition(name: str, row: Document) -> Condition:
    # What nothing else clears is an event, and is over an hour after its last line.
    quiet_min = row.get("quiet_min", 0 if "clears_when" in row else _QUIET_MIN)
    return Condition(
        name=name,
        component=row["component"],
        meaning=row["meaning"],
        source=row.get("source", "kernel message"),
        clears_when=row.get("clears_when", "no further message"),
        clear_after=row.get("clear_after", 1),
        quiet_ns=quiet_min * MINUTE_NS,
        mode=Mode(row.get("mode", "observe")),
    )


def _rule(row: Document, words: Mapping[str, str], ignore_case: bool) -> LineRule:
    return LineRule(
        name=row["name"],
        needle=row["needle"],
        expression=expanded(row["pattern"], words),
        ignore_case=ignore_case,
        condition=row["condition"],
        component=row["component"],
        message=row["message"],
        severity=Severity(row.get("severity", "degraded")),
        action=SuggestedAction(row.get("action", "watch")),
        **{flag: row[flag] for flag in FLAGS if flag in row},
    )
