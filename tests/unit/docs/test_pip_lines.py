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

_INSTALLS = re.compile(
    r"(?P<python>\S+ -m )?pip install (?:-[-\w]+ )*['\"]?(?P<what>[\w./$-][^\s'\"`;,)|]*)"
)


def others_in(text: str) -> list[str]:
    """Return what the install lines in a text would take from a package index.

    An extra of Everstep is none where the interpreter that has it is named.
    """
    return [
        found["what"]
        for found in _INSTALLS.finditer(text)
        if not found["what"].startswith((".", "/", "$", "dist/"))
        and found["what"] not in MEANT
        and not (_has_everstep(found["python"] or "") and found["what"].startswith("everstep["))
    ]


def _has_everstep(python: str) -> bool:
    return "/everstep/bin/" in python or "sys.executable" in python


@pytest.mark.parametrize(
    "line",
    [
        "pip install W",
        "pip install 'W[agent]'",
        "pip install WHEEL",
        "pip install 'everstep[cli]'",
        "python3 -m pip install 'everstep[cli]'",
    ],
)
def test_a_placeholder_that_is_a_package_name_is_found(line: str) -> None:
    assert others_in(line)


def test_no_install_line_names_a_package_of_others() -> None:
    found = {path: others_in(path.read_text(encoding="utf-8")) for path in [*PAGES, *SOURCES]}
    assert {path.name: named for path, named in found.items() if named} == {}
