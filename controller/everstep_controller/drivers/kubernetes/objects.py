"""Objects of Kubernetes: as much of nodes, pods, leases and lists as the driver reads.

Whatever else is in them is skipped when they are decoded: a node has some 15 kB, most of it images
and managed fields, and a fleet has 12,500 of them.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

import msgspec

NONE: Mapping[str, str] = MappingProxyType({})

T = TypeVar("T")


class UnusableError(Exception):
    """What the API server sent is not what the API promises; one sentence says where."""


class Metadata(msgspec.Struct, rename="camel"):
    """Metadata of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class Taint(msgspec.Struct, frozen=True):
    """Taint of a node: what no pod without its toleration is placed beside."""

    key: str
    effect: str = ""
    value: str = ""

    def __str__(self) -> str:
        """Return it as kubectl writes it."""
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"


class NodeCondition(msgspec.Struct, rename="camel"):
    """One condition of a node."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeSpec(msgspec.Struct):
    """What is wanted of a node. Taints stay as they were sent: those of others are sent back."""

    taints: list[msgspec.Raw] | None = None
    unschedulable: bool = False


class NodeStatus(msgspec.Struct):
    """What is known of a node."""

    conditions: list[NodeCondition] | None = None


class Node(msgspec.Struct):
    """A node, as the API server has it."""

    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return its annotations."""
        return self.metadata.annotations or NONE

    def taints(self) -> Iterator[tuple[Taint, msgspec.Raw]]:
        """Yield its taints, each with how it was sent. Raises UnusableError."""
        for raw in self.spec.taints or ():
            yield decoded(raw, Taint, f"a taint of node {self.metadata.name}"), raw

    def condition(self, kind: str) -> NodeCondition | None:
        """Return the condition of a type, if it has that."""
        return next((one for one in self.status.conditions or () if one.type == kind), None)


class OwnerReference(msgspec.Struct):
    """Who made an object, and looks after it."""

    kind: str = ""
    controller: bool = False


class PodMetadata(Metadata, rename="camel"):
    """Metadata of a pod."""

    owner_references: list[OwnerReference] | None = None


class Toleration(msgspec.Struct):
    """Taint that a pod does not mind; without a key, every taint."""

    key: str = ""
    effect: str = ""


class PodSpec(msgspec.Struct, rename="camel"):
    """What is wanted of a pod."""

    node_name: str = ""
    tolerations: list[Toleration] | None = None


class PodStatus(msgspec.Struct):
    """What is known of a pod."""

    phase: str = ""


class Pod(msgspec.Struct):
    """A pod, as the API server has it."""

    metadata: PodMetadata
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class LeaseSpec(msgspec.Struct, rename="camel"):
    """When the holder of a lease was there last."""

    renew_time: str | None = None


class Lease(msgspec.Struct):
    """Lease of a node: its kubelet renews it every ten seconds."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ListMetadata(msgspec.Struct, rename="camel"):
    """Where a list was read, and how its next page is asked for."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """One page of a list, its objects not decoded yet."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class StatusCause(msgspec.Struct):
    """One cause of a refusal."""

    message: str = ""


class StatusDetails(msgspec.Struct, rename="camel"):
    """Details of a refusal."""

    causes: list[StatusCause] | None = None
    retry_after_seconds: int = 0


class Status(msgspec.Struct):
    """What the API server says of a request that it refuses."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class WatchEvent(msgspec.Struct):
    """One event of a watch, its object not decoded yet."""

    type: str
    object: msgspec.Raw


class AccessStatus(msgspec.Struct):
    """Answer to the question whether one may do something."""

    allowed: bool = False


class AccessReview(msgspec.Struct):
    """Question whether one may do something, answered."""

    status: AccessStatus = msgspec.field(default_factory=AccessStatus)


def decoded(body: bytes | msgspec.Raw, kind: type[T], what: str) -> T:
    """Return an object. Raises UnusableError, which names ``what`` it was to be."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UnusableError(f"{what} cannot be used: {error}") from error
