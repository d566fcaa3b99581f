"""Kernel lines that tell of a fault, and harmless ones: those of the fixtures and of the tables."""

from collections.abc import Iterator
from pathlib import Path

from everstep_agent.detectors.kernel.rules.builtin import NAMES, document_of
from everstep_agent.detectors.kernel.rules.rule_table import examples, harmless

_FOLDER = Path(__file__).parents[2] / "fixtures/kernel_lines"


def _read(name: str) -> list[str]:
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _entry(line: str) -> tuple[str, str, str]:
    condition, component, text = line.split(" ", 2)
    return condition, component, text


_ROWS = [row for name in NAMES for row in document_of(name)["rules"]]


def _examples() -> Iterator[tuple[str, str, str]]:
    for row in _ROWS:
        for example in examples(row):
            yield row["condition"], "-" if row.get("ends") else example.component, example.line


# Condition, component ("-": the line ends the condition), and the line.
FOUND = list(dict.fromkeys([*map(_entry, _read("found.txt")), *_examples()]))
HARMLESS = list(
    dict.fromkeys([*_read("harmless.txt"), *(line for row in _ROWS for line in harmless(row))])
)
