"""Users whom a quota refuses again and again: told to people, and nothing of the node."""

from pathlib import Path

from everstep_agent.detectors.user_limits import LIMITED, NOT_AN_AGENT, judge_limited, judge_misused
from everstep_agent.ipc.peer import user_name
from everstep_common.judging.findings import FindingKey, Severity
from everstep_common.judging.judgement import Faulty, Healthy

_NOBODY = 65534
_KEY = FindingKey(f"user/{_NOBODY}", LIMITED)


def test_a_user_who_is_refused_is_named_with_the_keys_that_would_let_it() -> None:
    limited = {_NOBODY: {"jobs.connections_per_user_per_s": 7, "jobs.jobs_per_user_max": 2}}
    (judged,) = judge_limited(limited, ())
    assert isinstance(judged, Faulty)
    finding = judged.finding
    assert finding.key == _KEY
    assert finding.severity is Severity.INFO
    assert "jobs.connections_per_user_per_s or jobs.jobs_per_user_max" in finding.message
    assert "7 by jobs.connections_per_user_per_s" in finding.evidence


def test_a_user_who_is_refused_no_more_is_well_again() -> None:
    assert list(judge_limited({}, {_KEY})) == [
        Healthy(_KEY, "the user was not refused for a minute")
    ]
    other = FindingKey("user/1", "SomethingElse")
    assert list(judge_limited({}, {other})) == []


def test_users_without_end_are_not_findings_without_end() -> None:
    limited = {user: {"jobs.jobs_per_user_max": 1} for user in range(1000)}
    assert len(list(judge_limited(limited, ()))) == 16


def test_a_user_who_connects_to_the_bulk_port_is_named_with_how_to_find_the_processes() -> None:
    (judged,) = judge_misused({_NOBODY: 7000}, {_NOBODY: "nobody"}, "7436", ())
    assert isinstance(judged, Faulty)
    finding = judged.finding
    assert finding.key == FindingKey(f"user/{_NOBODY}", NOT_AN_AGENT)
    assert finding.severity is Severity.INFO
    assert "user 65534 (nobody)" in finding.message
    assert "'ss -tnp dport = :7436'" in finding.message
    assert "7000 connections" in finding.evidence


def test_who_has_looked_at_the_port_only_is_not_named_and_who_has_stopped_is_well_again() -> None:
    key = FindingKey(f"user/{_NOBODY}", NOT_AN_AGENT)
    assert list(judge_misused({_NOBODY: 19}, {}, "7436", ())) == []
    assert list(judge_misused({}, {}, "7436", {key})) == [
        Healthy(key, "the user did not connect for a minute")
    ]
    assert list(judge_misused({}, {}, "7436", {_KEY})) == []


def test_the_name_of_a_user_is_read_from_the_nodes_own_file(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\n\nann:x:1001:1001::/home/ann:/bin/sh\n")
    assert user_name(1001, passwd) == "ann"
    assert user_name(1002, passwd) == ""
    assert user_name(0, tmp_path / "missing") == ""
