"""Pod identity: what a review of a token says of a pod, and what is refused."""

import pytest

from everstep_controller.drivers.kubernetes.objects import Pod, PodMetadata, PodSpec
from everstep_controller.drivers.kubernetes.pod_identity import (
    NotVouchedError,
    PodIdentity,
    ReviewedUser,
    ReviewStatus,
    check_account,
    identity_of,
    placed,
)

_EXTRA = {
    "authentication.kubernetes.io/pod-name": ["agent-x7k"],
    "authentication.kubernetes.io/pod-uid": ["u1"],
}
_NODE = {"authentication.kubernetes.io/node-name": ["gpu-1"]}
_POD = PodIdentity("everstep", "agent-x7k", "u1", "")


def _status(
    extra: dict[str, list[str]] | None = None,
    username: str = "system:serviceaccount:everstep:everstep-agent",
    audiences: tuple[str, ...] = ("everstep",),
) -> ReviewStatus:
    told = _EXTRA | _NODE if extra is None else extra
    return ReviewStatus(
        authenticated=True, user=ReviewedUser(username, told), audiences=list(audiences)
    )


def test_a_pod_and_its_node_are_told_by_the_review() -> None:
    pod, account = identity_of(_status())
    assert pod == PodIdentity("everstep", "agent-x7k", "u1", "gpu-1")
    assert account == "everstep/everstep-agent"
    assert identity_of(_status(_EXTRA))[0].node == ""


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (ReviewStatus(error="expired\nnow"), "audience .everstep. .expired.*now"),
        (ReviewStatus(), "has expired, or its pod is gone"),
        (_status(audiences=()), "it knows no audiences"),
        (_status(audiences=("vault",)), "it knows no audiences"),
        (_status(username="ann"), "'ann' is no service account"),
        (_status({}), "this token of everstep/everstep-agent is for no pod"),
        (_status(_NODE), "is for no pod"),
        (_status({"authentication.kubernetes.io/pod-name": []}), "is for no pod"),
    ],
)
def test_whoever_is_no_pod_is_told_so(status: ReviewStatus, said: str) -> None:
    with pytest.raises(NotVouchedError, match=said):
        identity_of(status)


def test_pods_of_other_accounts_do_not_enrol() -> None:
    check_account("everstep/everstep-agent", ("everstep/everstep-agent",))
    for other in ("team/everstep-agent", "everstep/everstep-agent2", "everstep/"):
        with pytest.raises(NotVouchedError, match=f"account {other} do not enrol here"):
            check_account(other, ("everstep/everstep-agent",))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Pod(PodMetadata(uid="u2"), PodSpec("gpu-1")), "of this token is gone"),
        (Pod(PodMetadata(uid="u1", deletion_timestamp="now"), PodSpec("gpu-1")), "is gone"),
        (Pod(PodMetadata(uid="u1")), "is on no node yet"),
    ],
)
def test_a_pod_that_was_read_is_the_one_of_the_token(found: Pod, said: str) -> None:
    with pytest.raises(NotVouchedError, match=said):
        placed(_POD, found)
    assert placed(_POD, Pod(PodMetadata(uid="u1"), PodSpec("gpu-1"))).node == "gpu-1"
