"""The links between the documents lead to headings that are there."""

import re
from pathlib import Path

import pytest

from unit.docs.test_paths_in_docs import DOCUMENTS, ROOT

_LINK = re.compile(r"\]\(([^)#\s]*)#([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FENCED = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCED.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost_links(text: str, page: Path) -> list[str]:
    """Return the links of a page to headings of this tree that are not there."""
    lost = []
    for path, anchor in _LINK.findall(text):
        if "://" in path:
            continue
        target = (page.parent / path).read_text(encoding="utf-8") if path else text
        if anchor not in anchors(target):
            lost.append(f"{path}#{anchor}")
    return lost


@pytest.mark.parametrize("name", ["installing.md", "operations.md", "troubleshooting.md"])
def test_the_contents_of_a_guide_name_each_of_its_sections(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    contents, _, _ = text.partition("\n## ")
    sections = re.findall(r"^## (.+)$", _FENCED.sub("", text), re.MULTILINE)
    listed = {anchor for path, anchor in _LINK.findall(contents) if not path}
    missing = [section for section in sections if not anchors(f"# {section}") <= listed]
    assert [section for section in missing if section != "Troubleshooting"] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_link_of_a_document_leads_to_a_heading(document: str) -> None:
    page = ROOT / document
    assert lost_links(page.read_text(encoding="utf-8"), page) == []


def test_a_heading_that_is_not_there_is_found() -> None:
    text = "# One `two`: three\n[a](#one-two-three) [b](#four) [c](docs/architecture.md#no-such)\n"
    assert lost_links(text, ROOT / "README.md") == ["#four", "docs/architecture.md#no-such"]
