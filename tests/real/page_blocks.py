"""Blocks of a page that people type or copy, for tests that do so by the letter."""

import re
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def blocks(page: str, heading: str, language: str) -> list[str]:
    """Return the blocks of a language below a heading of a page."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)


def replaced(text: str, places: Mapping[str, str]) -> str:
    """Return a block with the names of this machine in the place of the page's."""
    for word, instead in places.items():
        text = text.replace(word, instead)
    return text
