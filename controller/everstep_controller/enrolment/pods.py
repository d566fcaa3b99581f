"""Pods that enrol: what Kubernetes vouches for, and whoever asks it."""

from dataclasses import dataclass
from typing import Protocol


class PodRefusedError(Exception):
    """Kubernetes does not vouch for whoever shows a token, or cannot be asked; one sentence."""


@dataclass(frozen=True, slots=True)
class VouchedPod:
    """A pod, and the node that it runs on."""

    # Namespace and name, and the uid, which no other pod ever has.
    name: str
    uid: str
    node: str


class PodVoucher(Protocol):
    """Whoever knows pods by the tokens of their service accounts."""

    async def pod(self, token: str) -> VouchedPod:
        """Return the pod of a token. Raises PodRefusedError."""
        ...


class NoPods:
    """A controller at which pods do not enrol."""

    async def pod(self, token: str) -> VouchedPod:
        """See PodVoucher."""
        raise PodRefusedError(
            "no pods enrol at this controller: enrolment.kubernetes_accounts names none; set it, "
            "and drivers.kubernetes.access, or join by a token of 'everstep tokens make'"
        )
