"""A peer that refuses TLS, or is refused, is found at once; cleared when it is cured or quiet."""

from everstep_agent.detectors.transfer_refusals import REFUSED, RefusalWatch
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy

_KEY = FindingKey("peer/node-2", REFUSED)


def _faulty(watch: RefusalWatch) -> dict[str, str]:
    return {
        one.finding.component: one.finding.evidence
        for one in watch.judge(())
        if isinstance(one, Faulty)
    }


def test_a_refusal_is_found_with_the_newest_sentence() -> None:
    watch = RefusalWatch()
    assert watch.refused("node-2", "it speaks without TLS")
    assert _faulty(watch) == {"peer/node-2": "it speaks without TLS"}
    assert not watch.refused("node-2", "it speaks without TLS")
    assert watch.refused("node-2", "its certificate has expired")
    assert _faulty(watch) == {"peer/node-2": "its certificate has expired"}


def test_each_peer_is_found_for_itself() -> None:
    watch = RefusalWatch()
    watch.refused("node-2", "expired")
    watch.refused("node-3", "expired")
    watch.worked("node-2")
    assert _faulty(watch) == {"peer/node-3": "expired"}


def test_a_connection_that_succeeds_clears_it() -> None:
    watch = RefusalWatch()
    watch.refused("node-2", "expired")
    assert not any(isinstance(one, Healthy) for one in watch.judge([_KEY]))
    watch.worked("node-2")
    assert watch.judge([_KEY]) == [Healthy(_KEY, "no connection to it was refused")]


def test_a_peer_that_is_not_asked_any_more_is_cleared_after_a_minute_of_looks() -> None:
    watch = RefusalWatch()
    watch.refused("node-2", "expired")
    for _ in range(60):
        assert _faulty(watch)
    assert watch.judge([_KEY]) == [Healthy(_KEY, "no connection to it was refused")]


def test_what_an_agent_before_found_is_cleared_and_other_findings_are_not_touched() -> None:
    other = FindingKey("peer/node-2", "SomethingElse")
    judged = RefusalWatch().judge([_KEY, other])
    assert [one.key for one in judged if isinstance(one, Healthy)] == [_KEY]
