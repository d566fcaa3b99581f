"""Detector of the agent's own certificate: one that nobody renews is told while there is time."""

from collections.abc import Collection

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_proto.enrolment.validity import Validity

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


def judge_certificate(
    known: Validity | None,
    now_s: float,
    trouble: str,
    open_keys: Collection[FindingKey],
    *,
    is_own: bool,
) -> list[Judgement]:
    """Judge how long the node's certificate lasts; ``is_own``: the agent renews it.

    ``trouble`` is why the last attempt failed, ``now_s`` is Unix time.
    """
    if known is None:
        return []
    left_s, life_s = known.ends_s - now_s, known.ends_s - known.since_s
    due_s = life_s * _OWN_PART if is_own else min(life_s * _OTHERS_PART, _OTHERS_MAX_S)
    if left_s >= due_s:
        lasts = Healthy(_KEY, f"it lasts {_days(left_s)}")
        return [lasts] if _KEY in open_keys else []
    how = f"ends in {_days(left_s)}" if left_s > 0 else f"ended {_days(-left_s)} ago"
    what = (
        f"was not renewed: {trouble or 'no attempt has succeeded'}"
        if is_own
        else "the agent does not renew it: put a new one in its place ([tls] in agent.toml)"
    )
    found = Finding(
        component=_KEY.component,
        condition=_KEY.condition,
        severity=Severity.DEGRADED,
        message=f"the certificate of this node {how}; then the controller lets it in no more",
        evidence=f"serial {known.serial}; {what}"[:300],
        suggested_action=SuggestedAction.WATCH,
        rule="self-observation of the agent",
    )
    return [Faulty(found)]


def _days(seconds: float) -> str:
    if seconds >= 2 * _DAY_S:
        return f"{seconds / _DAY_S:.0f} days"
    return f"{seconds / 3600:.0f} hours" if seconds >= 7200 else f"{seconds / 60:.0f} minutes"
