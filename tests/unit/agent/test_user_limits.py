"""Users whom a quota refuses again and again: told to people, and nothing of the node."""

from everstep_agent.detectors.user_limits import LIMITED, judge_limited
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
