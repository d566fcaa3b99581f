"""Enrolment settings of an agent: where its certificate is renewed, and whose cluster it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everstep_common.setting import setting
from everstep_proto.controllers import split_addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentSettings:
    """Keys of the table [enrolment]; `everstep-agent join` writes them."""

    address: str | tuple[str, ...] = setting(
        "",
        unit="host:port",
        help="Where this agent renews its certificate when a third of its life is over: the "
        "controller's enrolment.listen; of several controllers a list. Empty: the files of [tls] "
        "are yours to renew.",
    )
    cluster: str = setting(
        "",
        help="Id of the cluster that the node has joined; the agent takes no other controller for "
        "its own, also at its first start.",
    )
    kubernetes_token: Path | None = setting(
        None,
        help="Token of the service account of this agent's pod, projected for the audience "
        '"everstep". The agent enrols by it when it starts without a certificate; key and '
        "certificate then lie in the data folder, and [tls] names none. Empty: no pod.",
    )
    authority: Path | None = setting(
        None,
        help="Certificate of the authority that the controller must have, where kubernetes_token "
        "is set: as the controller writes it into the ConfigMap enrolment.kubernetes_authority.",
    )

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where certificates are renewed, one after the other until one gives them."""
        return split_addresses(self.address) if self.address else ()

    @property
    def by_pod(self) -> bool:
        """Return whether the agent enrols by itself, as a pod."""
        return self.kubernetes_token is not None

    def pod_problems(self, *, has_files: bool) -> Iterator[str]:
        """Yield what is wrong with the enrolment of a pod; ``has_files``: [tls] names some."""
        if not self.by_pod:
            if self.authority is not None:
                yield "enrolment.authority: is of use only with enrolment.kubernetes_token"
            return
        if not self.addresses:
            yield (
                "enrolment.address: missing; with kubernetes_token it is the controller's "
                "enrolment.listen, such as everstep-controller.everstep.svc:7438"
            )
        if self.authority is None:
            yield (
                "enrolment.authority: missing; with kubernetes_token it is the ca.pem of the "
                "ConfigMap everstep-authority, as the pod has mounted it"
            )
        if has_files:
            yield (
                "tls: names certificates of your own, and enrolment.kubernetes_token gets others: "
                "remove one of the two"
            )
