"""Ranks that SIGKILL does not end are a finding until they are gone."""

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.unkillable_ranks import HELD, judge_held
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy

KEY = FindingKey("job/llama", HELD)


def test_held_ranks_are_named() -> None:
    (judged,) = judge_held({"llama": list(range(70, 90)), "other": []}, [])
    assert isinstance(judged, Faulty)
    assert judged.key == KEY
    assert "processes 70, 71, 72, 73, 74, 75, 76, 77 …" in judged.finding.evidence


def test_it_is_over_when_they_are_gone() -> None:
    assert list(judge_held({"llama": []}, [KEY])) == [Healthy(KEY, "the processes are gone")]
    assert list(judge_held({"llama": []}, [])) == []


def test_the_condition_is_listed() -> None:
    assert HELD in CONDITIONS
