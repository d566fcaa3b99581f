"""The page on extending says what its patches do: their numbers, their files, their lines."""

import re
import textwrap

import pytest

import extending

PAGE = extending.ROOT / "docs" / "extending.md"
TEXT = PAGE.read_text(encoding="utf-8")
PATCHES = extending.patches()

# The most hand-written files that an addition touches.
_FILES_MAX = {"finding": 4, "driver": 3, "category": 1, "admin": 5, "message": 5}


def _rows() -> dict[str, tuple[int, int]]:
    """Return the number of files and the most of them, by patch."""
    rows = re.findall(r"\| (\d+) \| (\d+) \| \[(\w+)\]\(extending/\w+\.patch\) \|", TEXT)
    return {name: (int(files), int(most)) for files, most, name in rows}


def test_the_table_counts_the_files_of_each_patch() -> None:
    counted = {patch.name: len(patch.files) for patch in PATCHES}
    assert _rows() == {name: (counted[name], _FILES_MAX[name]) for name in counted}
    assert all(files <= most for files, most in _rows().values())


def _excerpts() -> list[str]:
    blocks: list[str] = re.findall(r"^ *```diff\n(.*?)^ *```$", TEXT, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in blocks]


@pytest.mark.parametrize("excerpt", _excerpts())
def test_each_excerpt_is_in_a_patch(excerpt: str) -> None:
    texts = [patch.path.read_text(encoding="utf-8") for patch in PATCHES]
    assert any(excerpt.strip() in text for text in texts)


def test_no_patch_has_a_generated_file_or_more_than_it_may() -> None:
    for patch in PATCHES:
        assert "/generated/" not in patch.path.read_text(encoding="utf-8"), patch.name
        assert patch.tests, patch.name
