"""What NCCL RAS answers, well and badly, as words."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.ras_answer import RasError, is_safe, read_json, read_text
from everstep_common.hangs.reports.rank_report import RAS_LINES_MAX, RankHangReport
from fakes.nccl_ras import MISSING, rank, status

_OURS = (1000, 1001)
_TOLD = (
    "rank 3 of communicator 0xab (4 ranks) is missing, it is unresponsive: process 1003 on"
    " 10.0.0.2, GPU 3"
)


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9", "2.29.2", "2.30.7"])
def test_a_missing_rank_is_told_also_where_its_comma_is_missing(version: str) -> None:
    text = status(version)
    if version.startswith("2.28"):
        with pytest.raises(ValueError, match="delimiter"):
            json.loads(text)
    assert read_json(text, _OURS) == (f"NCCL RAS {version}: {_TOLD}",)


def test_where_no_rank_is_missing_that_is_told() -> None:
    told = "NCCL RAS 2.30.7: no rank is missing in 1 communicators"
    assert read_json(status("2.30.7", missing=False), _OURS) == (told,)


def test_an_answer_of_another_job_of_the_user_is_none() -> None:
    with pytest.raises(RasError, match="another job"):
        read_json(status("2.30.7"), (77,))


def test_more_missing_ranks_than_a_report_has_room_for_are_left_out() -> None:
    lost = [{**MISSING, "rank": number, "pid": number} for number in range(500)]
    communicator = {"hash": "0x1", "size": 999, "ranks": [rank(0)], "missing_ranks": lost}
    lines = read_json(json.dumps({"communicators": [communicator]}), _OURS)
    assert len(lines) == RAS_LINES_MAX


@pytest.mark.parametrize("text", ["", "{", "[1]", "7", '{"a":' * 100_000, "x" * 100])
def test_what_is_no_report_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(RasError):
        read_json(text, _OURS)


def test_an_answer_of_millions_of_values_is_not_read() -> None:
    with pytest.raises(RasError, match="more than"):
        read_json("[" + "0," * 2_100_000 + "0]", _OURS)


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(_ANY, _ANY, _ANY)
def test_whatever_it_says_is_printable_words(ranks: object, strange: object, lost: object) -> None:
    missing = [lost, {"pid": strange}, {**MISSING, "host": strange}]
    communicator = {"hash": strange, "ranks": ranks, "missing_ranks": missing}
    told = {"nccl_version": strange, "communicators": [communicator]}
    lines = read_json(json.dumps(told), (1003,))
    assert all(line.isprintable() for line in lines)
    assert RankHangReport(rank=0, ras=lines).ras == lines


def test_an_older_text_is_told_by_its_telling_lines() -> None:
    text = "Job summary\n  Nodes 2\n\nErrors\n------\n#0-0 (0xab) MISSING rank 3\x1b[31m\n"
    (line,) = read_text(text)
    assert "MISSING rank 3" in line
    assert line.isprintable()
    assert read_text("all is well") == ("NCCL RAS: no rank is missing",)


@pytest.mark.parametrize(
    ("version", "safe"),
    [
        *(("2.28.9", False), ("2.29.1", False), ("2.29.2", True), ("2.29.7", True)),
        *(("2.31", True), ("3.0.1", True), ("", False), ("strange", False), ("2", False)),
    ],
)
def test_only_versions_are_safe_that_crash_no_job_that_lives(version: str, safe: bool) -> None:
    assert is_safe(version) is safe


def test_nothing_follows_from_it_alone() -> None:
    reports = [RankHangReport(rank=number, world_size=4) for number in range(4)]
    without = judge(reports)
    told = read_json(status("2.30.7"), _OURS)
    beside = judge([RankHangReport(rank=0, world_size=4, ras=told), *reports[1:]])
    assert beside.ras == told
    assert (beside.kind, beside.culprits) == (without.kind, without.culprits)
    assert (beside.suspects, beside.confidence) == (without.suspects, without.confidence)
