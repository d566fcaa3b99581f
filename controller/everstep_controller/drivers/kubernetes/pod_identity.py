"""Pod identity: which pod of which node a token is of, as the API server says.

The token is one of a service account, made for the audience "everstep" and for one pod: Kubernetes
refuses it once the pod is gone, or its time is over. From 1.30 on it names the node as well; of
older ones the pod is read. Tried from 1.20 on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from everstep_common.printable import brief
from everstep_controller.drivers.kubernetes.api_server import ApiError, ApiServer, Call
from everstep_controller.drivers.kubernetes.objects import Pod, UnusableError, decoded

T = TypeVar("T")
AUDIENCE = "everstep"
_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_EXTRA = "authentication.kubernetes.io/"
_ACCOUNT = "system:serviceaccount:"
_NO_SUCH_POD = 404


class NotVouchedError(Exception):
    """Kubernetes does not vouch for whoever shows a token; one sentence with what to do."""


class ReviewedUser(msgspec.Struct):
    """Whose token it is."""

    username: str = ""
    extra: dict[str, list[str]] | None = None

    def told(self, key: str) -> str:
        """Return what the API server adds of a pod or node; "" for nothing."""
        found = (self.extra or {}).get(_EXTRA + key) or [""]
        return found[0]


class ReviewStatus(msgspec.Struct):
    """What the API server says of a token."""

    authenticated: bool = False
    user: ReviewedUser = msgspec.field(default_factory=ReviewedUser)
    audiences: list[str] | None = None
    error: str = ""


class TokenReview(msgspec.Struct):
    """A token, reviewed."""

    status: ReviewStatus = msgspec.field(default_factory=ReviewStatus)


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """A pod that Kubernetes vouches for. ``node`` is "" where its token does not tell."""

    namespace: str
    name: str
    uid: str
    node: str

    def __str__(self) -> str:
        """Return it as people write it."""
        return f"{self.namespace}/{self.name}"


class PodReviewer:
    """Asks the API server whose token one is. Raises NotVouchedError, ApiError."""

    def __init__(self, server: ApiServer, accounts: Sequence[str]) -> None:
        self._server, self._accounts = server, accounts

    async def identity(self, token: str) -> PodIdentity:
        """Return the pod of a token, and its node."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [AUDIENCE]},
        }
        call = Call("create", "tokenreviews", _REVIEWS, "POST", body=body)
        review = _answered(await self._server.send(call), TokenReview)
        pod, account = identity_of(review.status)
        check_account(account, self._accounts)
        return pod if pod.node else await self._placed(pod)

    async def close(self) -> None:
        """Close the connections."""
        await self._server.close()

    async def _placed(self, pod: PodIdentity) -> PodIdentity:
        """Return a pod with its node, which older servers tell of the pod alone."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            answer = await self._server.send(Call("get", "pods", path))
        except ApiError as error:
            if error.code == _NO_SUCH_POD:
                raise NotVouchedError(_gone(pod)) from error
            raise
        return placed(pod, _answered(answer, Pod))


def identity_of(status: ReviewStatus) -> tuple[PodIdentity, str]:
    """Return the pod of a reviewed token, and its account as NAMESPACE/NAME.

    Raises NotVouchedError.
    """
    if not status.authenticated:
        why = f" ({brief(status.error)})" if status.error else ""
        raise NotVouchedError(
            f"Kubernetes does not accept this token for the audience {AUDIENCE!r}{why}: it is of "
            "another audience or cluster, has expired, or its pod is gone; the agent's pod needs "
            f"a projected token with audience: {AUDIENCE} (docs/kubernetes.md)"
        )
    if AUDIENCE not in (status.audiences or ()):
        raise NotVouchedError(
            f"the API server does not say that this token is for the audience {AUDIENCE!r}: it "
            "knows no audiences; Kubernetes from 1.20 on does"
        )
    user = status.user
    if not user.username.startswith(_ACCOUNT):
        raise NotVouchedError(f"{brief(user.username)!r} is no service account")
    account = user.username.removeprefix(_ACCOUNT).replace(":", "/", 1)
    name, uid = user.told("pod-name"), user.told("pod-uid")
    if not name or not uid:
        raise NotVouchedError(
            f"this token of {account} is for no pod: a Secret's, or of 'kubectl create token'; "
            "only a token that is projected into a pod enrols its node"
        )
    return PodIdentity(account.partition("/")[0], name, uid, user.told("node-name")), account


def check_account(account: str, accounts: Sequence[str]) -> None:
    """See that pods of an account may enrol. Raises NotVouchedError."""
    if account not in accounts:
        raise NotVouchedError(
            f"pods of the service account {account} do not enrol here, but those of "
            f"{', '.join(accounts)}: enrolment.kubernetes_accounts of the controller names them"
        )


def placed(pod: PodIdentity, found: Pod) -> PodIdentity:
    """Return a pod with the node that it was read on. Raises NotVouchedError."""
    if found.metadata.uid != pod.uid or found.metadata.deletion_timestamp:
        raise NotVouchedError(_gone(pod))
    if not found.spec.node_name:
        raise NotVouchedError(f"pod {pod} is on no node yet")
    return PodIdentity(pod.namespace, pod.name, pod.uid, found.spec.node_name)


def _answered(answer: bytes, kind: type[T]) -> T:
    try:
        return decoded(answer, kind, "the answer of the API server")
    except UnusableError as error:
        raise ApiError(str(error)) from error


def _gone(pod: PodIdentity) -> str:
    return f"the pod {pod} of this token is gone, or is being deleted: its successor enrols"
