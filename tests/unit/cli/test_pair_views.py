"""A pair test on the terminal: what it shows, when it was made, and which exit code it has."""

import pytest

from everstep_cli.commands.check import exit_code, result_sheet
from everstep_proto.generated import admin_pb2
from unit.cli.test_slowness import drawn

_S = 10**9


def _reply(outcome: str = "equal", done_ns: int = 0) -> admin_pb2.PairTestReply:
    row = admin_pb2.PairTestRow(
        work="gpu0 compute\x1b[31m", node_ns=12_000_000, partner_ns=10_000_000, partner="n2"
    )
    return admin_pb2.PairTestReply(
        test="n1/pair/1", outcome=outcome, sentence="n1 is slower", rows=[row], done_ns=done_ns
    )


def test_the_name_of_a_node_keeps_its_letters_and_the_age_of_the_test_is_told() -> None:
    shown = drawn(result_sheet("n1", _reply(done_ns=100 * _S), 280 * _S))
    assert shown.startswith("n1 is slower (3 m")
    for word in ("12.00", "10.00", "1.20", "n2"):
        assert word in shown
    assert "\x1b" not in shown


def test_of_a_test_that_was_never_made_no_age_is_told() -> None:
    never = admin_pb2.PairTestReply(outcome="never", sentence="n1 was never tested")
    assert drawn(result_sheet("n1", never, 5 * _S)).strip() == "n1 was never tested"


@pytest.mark.parametrize(
    ("outcome", "code"),
    [("equal", 0), ("slow", 1), ("undecided", 2), ("refused", 2), ("never", 2), ("running", 2)],
)
def test_the_exit_code_says_what_is_known(outcome: str, code: int) -> None:
    assert exit_code(_reply(outcome)) == code
