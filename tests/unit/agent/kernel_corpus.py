"""Kernel lines of tests/fixtures/kernel_lines: those that tell of a fault, and harmless ones."""

from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "fixtures/kernel_lines"


def _read(name: str) -> list[str]:
    lines = (_FOLDER / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _entry(line: str) -> tuple[str, str, str]:
    condition, component, text = line.split(" ", 2)
    return condition, component, text


# Condition, component ("-": the line ends the condition), and the line.
FOUND = [_entry(line) for line in _read("found.txt")]
HARMLESS = _read("harmless.txt")
