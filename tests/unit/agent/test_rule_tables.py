"""Rule tables: the agent's own have no mistakes, and each rule knows its examples."""

import pytest

from everstep_agent.detectors.kernel.rules.builtin import NAMES, RULES, document_of
from everstep_agent.detectors.kernel.rules.line import KernelLine
from everstep_agent.detectors.kernel.rules.rule_check import Taken, check_table
from everstep_agent.detectors.kernel.rules.rule_table import Document, examples, harmless

_DOCUMENTS: dict[str, Document] = {name: document_of(name) for name in NAMES}
_ROWS = {row["name"]: row for document in _DOCUMENTS.values() for row in document["rules"]}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_the_agent_has_no_mistakes(name: str) -> None:
    assert check_table(_DOCUMENTS[name], Taken()) == []


def test_no_two_rules_have_one_name() -> None:
    assert len(_ROWS) == len(list(RULES)) == sum(len(one["rules"]) for one in _DOCUMENTS.values())


@pytest.mark.parametrize("name", _ROWS)
def test_an_example_is_known_by_its_rule_before_all_others(name: str) -> None:
    for example in examples(_ROWS[name]):
        answer = RULES.answer(KernelLine(example.line))
        assert answer is not None
        assert (answer[0].name, answer[1].key.component) == (name, example.component)


def test_a_harmless_line_is_known_by_no_rule() -> None:
    lines = [line for row in _ROWS.values() for line in harmless(row)]
    assert lines
    assert [line for line in lines if RULES.judge(KernelLine(line))] == []
