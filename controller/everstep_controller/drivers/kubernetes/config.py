"""Configuration of the Kubernetes driver, without what the driver itself imports."""

import importlib.util
import os
import random
import re
from dataclasses import dataclass

from everstep_common.config import setting
from everstep_common.extras import install_line
from everstep_controller.drivers.kubernetes.rights import PodEnrolment, manifest, needed_rights
from everstep_controller.drivers.port import DriverContext, IsolationDriver

_IN_CLUSTER = "in-cluster"
_EFFECTS = ("NoSchedule", "NoExecute")
_PODS = ("ignore", "show", "evict")
_OUT = ("never", "dead")
# Of a call's deadline, for one request: a call makes several.
_REQUEST_SHARE = 1 / 3
# A requirement of a selector: key, !key, key=value, key!=value, key in (a,b), key notin (a,b).
_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_REQUIREMENT = (
    rf"(?:!?{_KEY}|{_KEY} *(?:==?|!=) *{_VALUE}"
    rf"|{_KEY} +(?:not)?in *\( *{_VALUE}(?: *, *{_VALUE})* *\))"
)
_SELECTOR = re.compile(rf" *{_REQUIREMENT} *(?:, *{_REQUIREMENT} *)*\Z")


_NOBODY_ENROLS = PodEnrolment()


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesDriverConfig:
    """A Kubernetes cluster that places pods on the nodes too (docs/kubernetes-isolation.md)."""

    access: str = setting(
        "",
        help='How to reach its API server: "in-cluster" for the service account of the '
        "controller's pod, or the absolute path of a kubeconfig. Empty: no driver.",
    )
    context: str = setting("", help="Context of the kubeconfig; empty: its current one.")
    selector: str = setting(
        "",
        help="Label selector of the nodes that are looked at, as for kubectl -l; empty: all. It "
        "spares memory and traffic where most nodes are none of Everstep's.",
    )
    taint_effect: str = setting(
        "NoSchedule",
        help="Effect of the taint of an isolated node. With NoExecute, Kubernetes also ends every "
        "pod there that does not tolerate it, at once and past all disruption budgets.",
    )
    cordon: bool = setting(
        False,
        help="Also cordon isolated nodes: for tools that look at nothing else, such as Slinky's "
        "slurm-operator.",
    )
    tolerated_taints: tuple[str, ...] = setting(
        ("nvidia.com/gpu", "amd.com/gpu", "node-role.kubernetes.io/"),
        help='Taints of others that withhold a node from nobody here, by key or, with a "/" at '
        "the end, by how keys begin: those that the pods of training jobs tolerate. Every other "
        "one is a claim of the owner scheduler, but for those that Kubernetes sets itself.",
    )
    pods: str = setting(
        "ignore",
        help="What is done about pods on isolated nodes: ignore; show which are there; evict "
        "those that are neither of an Everstep job nor of a DaemonSet, as their disruption "
        "budgets allow.",
    )
    eviction_deadline_s: float = setting(
        900.0,
        unit="s",
        help="How long a pod's disruption budget may forbid its eviction before people are told.",
    )
    out_of_service: str = setting(
        "never",
        help='"dead": a node that Everstep has found dead, and that Kubernetes has not heard for '
        "out_of_service_after_s either, is marked out of service, so that its pods and volumes "
        "are given up. Only where something switches such nodes off for certain: Everstep does "
        "not, and a node that still runs then writes to volumes beside its replacement.",
    )
    out_of_service_after_s: float = setting(
        300.0, unit="s", help="How long Kubernetes has to have heard nothing of it before that."
    )
    heartbeat_s: float = setting(
        300.0,
        unit="s",
        help="How often the condition of a node that has not changed is written again. A condition "
        "that is older than twice this is of a controller that is away.",
    )
    writes_per_s: int = setting(
        50,
        unit="1/s",
        help="How many conditions are written a second at most, 42 of which are the heartbeats of "
        "12,500 nodes.",
    )

    def problems(self) -> list[str]:
        """Say what is wrong with the values."""
        found = []
        if self.access and self.access != _IN_CLUSTER and not os.path.isabs(self.access):
            found.append(
                f'access: expected "in-cluster" or the absolute path of a kubeconfig, got '
                f"{self.access!r}"
            )
        if self.access and importlib.util.find_spec("lightkube") is None:
            found.append(f"access: needs a client of Kubernetes: {install_line('kubernetes')}")
        if self.selector and not _SELECTOR.match(self.selector):
            found.append(
                f"selector: expected a label selector such as pool=gpu,zone in (a,b), got "
                f"{self.selector!r}"
            )
        return found + self._choice_problems() + self._number_problems()

    def driver(self, context: DriverContext) -> IsolationDriver | None:
        """See DriverConfig."""
        if not self.access:
            return None
        # Half of the time of a controller's start, which one without Kubernetes does not spend.
        from everstep_controller.drivers.kubernetes.access import Access
        from everstep_controller.drivers.kubernetes.api_server import ApiServer
        from everstep_controller.drivers.kubernetes.driver import KubernetesDriver, Policy
        from everstep_controller.drivers.kubernetes.marks import Marking
        from everstep_controller.drivers.kubernetes.nodes import Nodes

        access = Access(self.access, self.context)
        server = ApiServer(access, context.call_timeout_s * _REQUEST_SHARE)
        policy = Policy(
            rights=needed_rights(pods=self.pods == "show", evictions=self.pods == "evict"),
            heartbeat_s=self.heartbeat_s,
            writes_per_s=self.writes_per_s,
            shows_pods=self.pods != "ignore",
            evicts=self.pods == "evict",
            eviction_deadline_s=self.eviction_deadline_s,
            is_dead_off=self.out_of_service == "dead",
            silence_before_s=self.out_of_service_after_s,
        )
        marking = Marking("", self.taint_effect, self.cordon, self.tolerated_taints)
        nodes = Nodes(server, self.selector, random.Random())
        return KubernetesDriver(server, nodes, context, marking, policy)

    def rbac(self, namespace: str, user: str = "", enrolment: PodEnrolment = _NOBODY_ENROLS) -> str:
        """Return the roles that this configuration needs, of a service account or a user."""
        rights = needed_rights(pods=self.pods == "show", evictions=self.pods == "evict")
        return manifest((*rights, *enrolment.rights()), namespace, user)

    def _choice_problems(self) -> list[str]:
        choices = {
            "taint_effect": (self.taint_effect, _EFFECTS),
            "pods": (self.pods, _PODS),
            "out_of_service": (self.out_of_service, _OUT),
        }
        return [
            f"{name}: expected {' or '.join(known)}, got {value!r}"
            for name, (value, known) in choices.items()
            if value not in known
        ]

    def _number_problems(self) -> list[str]:
        found = [
            f"{name}: must be above 0, got {getattr(self, name)}"
            for name in ("eviction_deadline_s", "out_of_service_after_s")
            if getattr(self, name) <= 0
        ]
        if self.heartbeat_s < 60:
            found.append(f"heartbeat_s: must not be below 60, got {self.heartbeat_s}")
        if not 1 <= self.writes_per_s <= 500:
            found.append(f"writes_per_s: must be from 1 to 500, got {self.writes_per_s}")
        return found
