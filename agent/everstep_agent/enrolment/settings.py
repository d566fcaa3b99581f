"""Enrolment settings of an agent: where its certificate is renewed, and whose cluster it is."""

from dataclasses import dataclass

from everstep_common.setting import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class EnrolmentSettings:
    """Keys of the table [enrolment]; `everstep-agent join` writes them."""

    address: str = setting(
        "",
        unit="host:port",
        help="Where this agent renews its certificate when a third of its life is over: the "
        "controller's enrolment.listen. Empty: the files of [tls] are yours to renew.",
    )
    cluster: str = setting(
        "",
        help="Id of the cluster that the node has joined; the agent takes no other controller for "
        "its own, also at its first start.",
    )
