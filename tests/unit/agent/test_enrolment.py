"""An agent's certificate: when it is renewed, and which of its peers' count no more."""

from itertools import pairwise

import pytest

from everstep_agent.detectors.certificate import SeenCertificate, judge_certificate
from everstep_agent.enrolment.revocations import Revocations
from everstep_agent.enrolment.schedule import Renewal
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy
from everstep_common.orders import RevokedCertificates, RevokedNode
from everstep_proto.enrolment.validity import Validity

_DAY_S = 86_400.0
_CERTIFICATE = Validity("a1", 0.0, 30 * _DAY_S)


def attempts(place: float, until_s: float) -> list[float]:
    """Return when a node tries, in days, whose controller is away all the time."""
    renewal, found = Renewal(place), list[float]()
    while (due_s := renewal.due_s(_CERTIFICATE)) < until_s:
        found.append(due_s / _DAY_S)
        renewal = Renewal(place, due_s)
    return found


def test_a_certificate_of_thirty_days_is_renewed_after_ten() -> None:
    assert Renewal(0.0).due_s(_CERTIFICATE) == 10 * _DAY_S
    assert Renewal(1.0).due_s(_CERTIFICATE) == pytest.approx(11 * _DAY_S)


def test_a_fleet_that_enrolled_together_renews_within_a_day_and_not_at_once() -> None:
    due_s = sorted(Renewal(number / 2000).due_s(_CERTIFICATE) for number in range(2000))
    nearest_s = min(after - before for before, after in pairwise(due_s))
    assert nearest_s > 40
    assert due_s[-1] - due_s[0] <= _DAY_S


@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_while_the_controller_is_away_it_is_tried_each_hour_and_each_minute_at_the_end(
    place: float,
) -> None:
    found = attempts(place, 31 * _DAY_S)
    gaps_s = [(after - before) * _DAY_S for before, after in pairwise(found)]
    assert all(29 <= gap <= 5401 for gap in gaps_s)
    assert max(gap for at, gap in zip(found, gaps_s, strict=False) if at > 29.1) <= 91
    # After its end it goes on as well: the controller renews it for 30 days more.
    assert found[-1] > 30.9


_SHOWN = {
    "subject": ((("organizationalUnitName", "agent"),), (("commonName", "gpu-1"),)),
    "serialNumber": "0A1B",
    "notBefore": "Nov 30 14:00:00 2026 GMT",
}
_BEGAN_S = 1_796_047_200


def test_the_newest_list_counts_and_outlives_the_agent() -> None:
    kept = list[str]()
    revocations = Revocations(keep=kept.append)
    assert revocations.trouble_of(_SHOWN) == ""
    told = RevokedCertificates(("a1b", "ff"), (RevokedNode("gpu-2", 5),))
    revocations.replace(told)
    revocations.replace(told)
    assert "certificate of gpu-1 was revoked" in revocations.trouble_of(_SHOWN)
    assert len(kept) == 1
    again = Revocations(kept[0])
    assert again.trouble_of(_SHOWN) == revocations.trouble_of(_SHOWN)
    again.replace(RevokedCertificates())
    assert again.trouble_of(_SHOWN) == ""


@pytest.mark.parametrize(("until_s", "counts"), [(_BEGAN_S - 1, True), (_BEGAN_S, False)])
def test_of_a_revoked_node_only_later_certificates_count(until_s: int, counts: bool) -> None:
    revocations = Revocations()
    revocations.replace(RevokedCertificates((), (RevokedNode("gpu-1", until_s),)))
    assert (revocations.trouble_of(_SHOWN) == "") is counts


@pytest.mark.parametrize("kept", ["{", "[]", '{"serials": 3}'])
def test_a_list_that_cannot_be_read_is_told_anew(kept: str) -> None:
    assert Revocations(kept).trouble_of(_SHOWN) == ""


@pytest.mark.parametrize(
    ("is_own", "life_days", "quiet_days", "told_days"),
    [(True, 30, 14.9, 15.1), (False, 365, 357.9, 358.1), (False, 1 / 24, 0.036, 0.039)],
)
def test_a_certificate_that_nobody_renews_is_told_while_there_is_time(
    is_own: bool, life_days: float, quiet_days: float, told_days: float
) -> None:
    seen = SeenCertificate("a1", 0.0, life_days * _DAY_S, is_own, "it is away")
    assert judge_certificate(seen, quiet_days * _DAY_S, ()) == []
    (judged,) = judge_certificate(seen, told_days * _DAY_S, ())
    assert isinstance(judged, Faulty)
    assert "ends in" in judged.finding.message
    assert ("it is away" in judged.finding.evidence) is is_own
    (after,) = judge_certificate(seen, (life_days + 3) * _DAY_S, ())
    assert isinstance(after, Faulty)
    assert "ended 3 days ago" in after.finding.message


def test_a_certificate_that_lasts_again_clears_its_finding_and_says_nothing_after() -> None:
    key = FindingKey("certificate", "CertificateEnds")
    seen = SeenCertificate("a2", 0.0, 30 * _DAY_S, is_own=True)
    assert judge_certificate(seen, 0.0, {key}) == [Healthy(key, "it lasts 30 days")]
    assert judge_certificate(seen, 0.0, ()) == []
