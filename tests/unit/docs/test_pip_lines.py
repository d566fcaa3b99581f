"""Install lines in pages and help: copied as they stand, they install nobody else's package."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
SOURCES = sorted(
    path
    for folder in ("agent", "common", "controller", "trainer", "examples", "systemd")
    for path in (REPOSITORY / folder).rglob("*")
    if path.suffix in {".py", ".sh", ".sbatch", ".yaml"}
)
# Packages of others that a page really means.
MEANT = {"py-spy", "xxhash"}

_INSTALLS = re.compile(r"pip install (?:-[-\w]+ )*['\"]?(?P<what>[\w./$-][^\s'\"`;,)|]*)")


def others_in(text: str) -> list[str]:
    """Return what the install lines in a text would take from a package index, but Everstep."""
    named = [found["what"] for found in _INSTALLS.finditer(text)]
    return [
        what
        for what in named
        if not what.startswith((".", "/", "$", "dist/", "everstep[")) and what not in MEANT
    ]


@pytest.mark.parametrize("line", ["pip install W", "pip install 'W[agent]'", "pip install WHEEL"])
def test_a_placeholder_that_is_a_package_name_is_found(line: str) -> None:
    assert others_in(line)


def test_no_install_line_names_a_package_of_others() -> None:
    found = {path: others_in(path.read_text(encoding="utf-8")) for path in [*PAGES, *SOURCES]}
    assert {path.name: named for path, named in found.items() if named} == {}
