"""Detector of the agent's own certificate: one that nobody renews is told while there is time."""

from collections.abc import Collection
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement

_DAY_S = 86_400.0
# Renewal begins after a third: where half is left, it has failed for a sixth, five days of 30.
_OWN_PART = 1 / 2
# Others renew theirs as late as they like: cert-manager after two thirds, people by hand.
_OTHERS_PART, _OTHERS_MAX_S = 1 / 10, 7 * _DAY_S

CONDITIONS = (
    Condition(
        name="CertificateEnds",
        component="certificate",
        meaning="the certificate by which this node reaches the controller ends soon, or has "
        "ended, and was not renewed",
        source="ours: half of it is left where the agent renews it, which it begins to do after a "
        "third; a tenth, at most 7 days, where others do",
        clears_when="the file has a certificate that lasts",
        mode=Mode.ADVISE,
    ),
)
_KEY = FindingKey("certificate", "CertificateEnds")


@dataclass(frozen=True, slots=True)
class SeenCertificate:
    """A certificate of this node: from when until when it counts, in Unix time.

    ``is_own``: the agent renews it; ``trouble`` is why the last attempt failed, or "".
    """

    serial: str
    since_s: float
    ends_s: float
    is_own: bool
    trouble: str = ""


def judge_certificate(
    seen: SeenCertificate, now_s: float, open_keys: Collection[FindingKey]
) -> list[Judgement]:
    """Judge how long the node's certificate lasts; ``now_s`` is Unix time."""
    left_s, life_s = seen.ends_s - now_s, seen.ends_s - seen.since_s
    due_s = life_s * _OWN_PART if seen.is_own else min(life_s * _OTHERS_PART, _OTHERS_MAX_S)
    if left_s >= due_s:
        lasts = Healthy(_KEY, f"it lasts {_days(left_s)}")
        return [lasts] if _KEY in open_keys else []
    how = f"ends in {_days(left_s)}" if left_s > 0 else f"ended {_days(-left_s)} ago"
    what = (
        f"was not renewed: {seen.trouble or 'no attempt has succeeded'}"
        if seen.is_own
        else "the agent does not renew it: put a new one in its place ([tls] in agent.toml)"
    )
    found = Finding(
        component=_KEY.component,
        condition=_KEY.condition,
        severity=Severity.DEGRADED,
        message=f"the certificate of this node {how}; then the controller lets it in no more",
        evidence=f"serial {seen.serial}; {what}"[:300],
        suggested_action=SuggestedAction.WATCH,
        rule="self-observation of the agent",
    )
    return [Faulty(found)]


def _days(seconds: float) -> str:
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} days"
    return f"{seconds / 3600:.0f} hours" if seconds >= 7200 else f"{seconds / 60:.0f} minutes"
