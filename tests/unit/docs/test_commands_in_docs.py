"""Commands that pages print are commands that there are, with options that they take."""

import io
import re
import shlex
from pathlib import Path

import pytest

from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command, screen
from fakes.cli_admin import NOW_NS, FakeAdmin

_DOCS = Path(__file__).resolve().parents[3] / "docs"
# In a sentence, or as a line of a block, perhaps after a prompt and before a comment.
_COMMAND = re.compile(r"`everstep ([^`\n]+)`|^(?:\$ )?everstep ([^`\n]+)$", re.MULTILINE)
# What stands for names; the fleet of the fake has these.
_STANDS_FOR = {
    "NODE": "node-1",
    "NAME": "node-1",
    "GROUP": "row-1",
    "CONDITION": "XidFatal",
    "…": "test",
}
# Orders are printed without their reason in a sentence about what they do.
_NEED_REASON = ("isolate", "drain")


def _commands(page: str) -> list[str]:
    text = (_DOCS / page).read_text(encoding="utf-8")
    found = (match[1] or match[2] for match in _COMMAND.finditer(text))
    return list(dict.fromkeys(command.partition(" #")[0].strip() for command in found))


CASES = [(page, one) for page in ("groups.md", "webhooks.md") for one in _commands(page)]


def test_the_pages_print_commands() -> None:
    assert len(CASES) >= 15
    assert ("webhooks.md", "webhooks test pager") in CASES


@pytest.mark.parametrize(("page", "command"), CASES)
def test_a_command_of_a_page_is_one(
    page: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [_STANDS_FOR.get(word, word) for word in shlex.split(command)]
    if words[0] in _NEED_REASON and len(words) == 1:
        words += ["node-1", "--reason", "test"]
    session = AdminSession(FakeAdmin().connect, screen(io.StringIO(), 120), lambda: NOW_NS)
    assert run_command(session, words) == 0, (page, command, capsys.readouterr().err)
