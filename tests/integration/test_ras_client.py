"""The RAS client, with servers that answer as NCCL's do, and as broken ones do."""

import selectors

import pytest

from everstep.launch.inspection.question import Answer, Question, RankAsked
from everstep.launch.inspection.reading import Reading
from everstep.launch.inspection.sources.ras_client import RasSettings, RasUse, ask_ras
from everstep.launch.selector_loop import call_ready
from everstep_common.hangs.ras_answer import RasError
from everstep_common.hangs.reports.rank_report import (
    EvidenceSource,
    GroupReport,
    Library,
    RankHangReport,
)
from fakes.nccl_ras import ras

_OURS = (1000,)
_WORKS = GroupReport("default_pg", "0-3", 4, enqueued=7, completed=6)


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9", "2.29.2", "2.30.7"])
def test_the_missing_rank_is_told_by_each_version_that_writes_json(version: str) -> None:
    with ras(version) as server:
        (line,) = ask_ras(server.address, _OURS)
    assert line.startswith(f"NCCL RAS {version}: rank 3 ")


def test_an_older_version_is_asked_for_text() -> None:
    with ras("2.24.3", answer="Errors\n0xab MISSING rank 3\n") as server:
        told = ask_ras(server.address, _OURS)
    assert told == ("NCCL RAS: 0xab MISSING rank 3",)


def test_where_the_process_that_hangs_is_asked_another_one_answers_and_is_asked_once() -> None:
    with ras(how="first hangs") as server:
        assert len(ask_ras(server.address, _OURS)) == 1
        assert (server.asked, server.reports) == (2, 1)


@pytest.mark.parametrize(
    ("how", "answer", "why"),
    [
        ("hangs", "", "does not greet"),
        ("stranger", "", "no NCCL RAS"),
        ("endless", "", "more than|does not end in time"),
        ("slow", "", "does not end in time"),
        ("", "{", "no JSON"),
        ("", '{"communicators": [{"ranks": [{"pid": 4}]}]}', "another job"),
    ],
)
def test_an_answer_that_is_none_is_an_error_within_the_deadline(
    how: str, answer: str, why: str
) -> None:
    with ras(how=how, answer=answer) as server, pytest.raises(RasError, match=why):
        ask_ras(server.address, _OURS, 0.6)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "127.0.0.1:99999999", ":", ""])
def test_where_nobody_listens_that_is_told(address: str) -> None:
    with pytest.raises(RasError, match="NCCL RAS at"):
        ask_ras(address, _OURS, 0.5)


def _of(version: str, *groups: GroupReport) -> list[RankHangReport]:
    return [RankHangReport(rank=0, libraries=(Library("nccl", version),), groups=groups)]


def test_only_a_job_of_nccl_that_has_worked_is_asked_and_an_older_one_where_allowed() -> None:
    auto = RasSettings.of(RasUse.AUTO, {})
    assert auto.may_ask(_of("2.29.2", _WORKS))
    assert not auto.may_ask(_of("2.28.9", _WORKS))
    assert not auto.may_ask(_of("2.29.2"))
    assert not auto.may_ask([RankHangReport(rank=0, groups=(_WORKS,))])
    always = RasSettings.of(RasUse.ALWAYS, {})
    assert always.may_ask(_of("2.28.9", _WORKS))
    assert not RasSettings.of(RasUse.NEVER, {}).may_ask(_of("2.29.2", _WORKS))
    assert not RasSettings.of(RasUse.ALWAYS, {"NCCL_RAS_ENABLE": "0"}).may_ask(_of("2.30", _WORKS))
    assert RasSettings.of(RasUse.AUTO, {"NCCL_RAS_ADDR": "h:7"}).address == "h:7"
    assert auto.address == "localhost:28028"


def _read(address: str) -> RankHangReport:
    """Return what a reader program tells of a rank beside which RAS is asked."""
    selector, found = selectors.DefaultSelector(), list[Answer]()
    reading = Reading(selector, found.extend)
    question = Question(ras=address, pids=_OURS)
    reading.begin(question, [RankAsked(0, 1, ras=True)])
    while reading.under_way:
        call_ready(selector, reading.due_in_s())
        reading.advance()
    return found[0].report


def test_a_reader_program_asks_and_says_where_it_cannot() -> None:
    with ras() as server:
        assert len(_read(server.address).ras) == 1
    (blind,) = _read("127.0.0.1:1").blind
    assert blind.source is EvidenceSource.NCCL_RAS
    assert "refused" in blind.reason
