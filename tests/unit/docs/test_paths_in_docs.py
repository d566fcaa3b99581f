"""The files and folders that the documentation names are there."""

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Abbreviations that docs/architecture.md introduces.
ABBREVIATIONS = {
    "T/": "trainer/everstep/",
    "A/": "agent/everstep_agent/",
    "C/": "controller/everstep_controller/",
}
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_SUFFIXES = "py|md|toml|proto|csv|service|conf|yml|yaml|sh|npz"
_FILE = re.compile(rf"[\w.*-]*(?:/[\w.*-]+)*\.(?:{_SUFFIXES})")
_FOLDERS = (
    "[TAC]|core|docs|tests|tools|bench|systemd|examples|agent|common|controller|proto|trainer|"
    r"everstep_\w+"
)
_FOLDER = re.compile(rf"(?:{_FOLDERS})(?:/[\w-]+)*/")
# Files of somebody's own job, of systemd or of PostgreSQL, and placeholders.
ELSEWHERE = frozenset({"train.py", "script.py", "systemd-pstore.service", "pg_hba.conf"})
_LEFT_OUT = frozenset({"__pycache__", "build", "dist", "shared", "node_modules"})


def _files() -> list[str]:
    """Return the files of the tree, without what tools have put there."""
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT and (name == ".ci" or not name.startswith("."))
        ]
        found += [Path(folder, name).relative_to(ROOT).as_posix() for name in names]
    return found


FILES = _files()
# What came with the fixtures names the files of others.
DOCUMENTS = sorted(
    path
    for path in FILES
    if path.endswith(".md") and path != "CHANGELOG.md" and not path.startswith("tests/fixtures/")
)


def named_paths(text: str) -> set[str]:
    """Return the paths of this tree that a document names: in code, or as the target of a link."""
    words = {word.strip("(),;:") for code in _CODE.findall(text) for word in code.split()}
    code = {word for word in words if _FILE.fullmatch(word) or _FOLDER.fullmatch(word)}
    links = {link for link in _LINK.findall(text) if "://" not in link and "mailto:" not in link}
    return {path for path in code | links if not path.startswith("/")} - ELSEWHERE


def is_there(path: str, document: str) -> bool:
    """Return whether a path is one of the tree, from its root, from the document, or by its end."""
    for short, full in ABBREVIATIONS.items():
        if path.startswith(short):
            path = full + path.removeprefix(short)
    if (ROOT / document).parent.joinpath(path).exists():
        return True
    pattern = re.escape(path).replace(r"\*", "[^/]*")
    match = re.compile(rf"(?:.*/)?{pattern}" + (".*" if path.endswith("/") else ""))
    return any(match.fullmatch(file) for file in FILES)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_a_document_names_is_there(document: str) -> None:
    text = (ROOT / document).read_text()
    assert [path for path in sorted(named_paths(text)) if not is_there(path, document)] == []


def test_a_path_that_is_not_there_is_found() -> None:
    text = "See `C/console_of_old.py`, `core/jobs/`, [that](no/such.md) and `pip install everstep`."
    named = named_paths(text)
    assert named == {"C/console_of_old.py", "core/jobs/", "no/such.md"}
    missing = {path for path in named if not is_there(path, "docs/architecture.md")}
    assert missing == {"C/console_of_old.py", "no/such.md"}
