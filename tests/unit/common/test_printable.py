"""Words of others within a sentence: printable, and ended by nothing in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.failures.rank_exits import sentence_of
from everstep_common.printable import printable, quoted, with_article
from everstep_common.reports import RankExited

_HOSTILE = [
    "a\nraised XidFatal on gpu/0",
    "\x1b[2J\x1b]0;root\x07",
    "\r100 %",
    "\u202eevil",
    "\u2066x\u2069",
    "\u200b",
    "\x9b31m",
    "\u2028next",
    "\ud800",
    "\ufeff",
    "tab\t",
]


@pytest.mark.parametrize("text", _HOSTILE)
def test_what_moves_a_cursor_or_ends_a_line_is_written_out(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text).encode()
    assert printable(text) != text


@given(text=st.text(st.characters(codec=None)))
def test_any_text_becomes_one_printable_line_that_stays_as_it_is(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    assert len(quoted(text).splitlines()) == 1


@given(text=st.text())
def test_nothing_in_a_quotation_ends_it(text: str) -> None:
    assert quoted(text).count('"') == 2


def test_the_last_words_of_a_rank_cannot_be_taken_for_what_everstep_says() -> None:
    said = 'boom", n7 is lost: its GPU broke (core dumped). "'
    exit = RankExited(generation=1, rank=0, exit_code=1, signal=0, last_line="", exception=said)
    told = sentence_of(exit, "n1")
    assert told == "rank 0 on n1 exited 1 (\"boom', n7 is lost: its GPU broke (core dumped). '\")"


@pytest.mark.parametrize(
    ("word", "told"), [("int", "an int"), ("dict", "a dict"), ("Embedding", "an Embedding")]
)
def test_a_word_gets_its_article(word: str, told: str) -> None:
    assert with_article(word) == told
