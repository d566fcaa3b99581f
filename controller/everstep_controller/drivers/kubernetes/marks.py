"""Marks of Everstep on a node of Kubernetes: what they are, whose they are, and how they change.

The taint is what withholds a node. An annotation beside it names the Everstep cluster that set it,
in the same write: a taint has no owner in Kubernetes, and its key alone tells nobody that it is not
the word of a human. A cordon has an annotation of its own, for the same reason.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.kubernetes.objects import NONE, Node, NodeCondition, Taint

TAINT = "everstep.io/isolated"
CONDITION = "EverstepIsolated"
FIELD_MANAGER = "everstep"
ISOLATED_BY = "everstep.io/isolated-by"
CORDONED_BY = "everstep.io/cordoned-by"
OUT_OF_SERVICE_BY = "everstep.io/out-of-service-by"
# Pods of a job with this label leave by Everstep's drain, and are not evicted.
JOB_LABEL = "everstep.io/job"
OUT_OF_SERVICE = Taint("node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")
# Why a node was cordoned, where the people of a Slinky cluster say so.
CORDON_REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
# Set by Kubernetes itself, its cloud providers and the Node Readiness Controller: evidence, and no
# word of a human. A rule of the last may follow our own condition, which would hold it for ever.
MACHINE_TAINTS = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "readiness.k8s.io/",
)
_WITHHOLDING = ("NoSchedule", "NoExecute")
# The strongest first: what a human says is over what automation says.
_OWNERS = ("operator", "automation")
_MESSAGE_MAX = 900
_READ_MAX = 4 * _MESSAGE_MAX
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?\Z")
_REASON_MAX = 128
_NOT_A_LABEL = re.compile(r"[^A-Za-z0-9_.-]")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9 .,:;/()\[\]{}_+=#%@!?*<>|~^&$'\"-]+")
_LABELS_MAX = 64
_HOSTNAME = "kubernetes.io/hostname"
# Hundreds of labels of the processor's features, by which nobody sorts nodes of a training fleet.
_DISCOVERED = "feature.node.kubernetes.io/"


@dataclass(frozen=True, slots=True)
class Marking:
    """How this Everstep cluster marks nodes, as configured."""

    cluster: str
    effect: str = "NoSchedule"
    cordon: bool = False
    # Keys, and beginnings of keys that end with "/", whose taints say nothing about withholding.
    tolerated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What the condition of an isolated node says."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeView:
    """View of a node: what is kept of it between two readings."""

    name: str
    uid: str
    version: str
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    ready: NodeCondition | None = None
    isolated: NodeCondition | None = None

    @property
    def hostname(self) -> str:
        """Return the host's name that its kubelet has put on it."""
        return self.labels.get(_HOSTNAME, "")

    @property
    def state(self) -> str:
        """Return its state, as kubectl writes it."""
        ready = "Ready" if self.ready is not None and self.ready.status == "True" else "NotReady"
        return f"{ready},SchedulingDisabled" if self.unschedulable else ready

    @property
    def is_silent(self) -> bool:
        """Whether Kubernetes has itself lost sight of it; False where its kubelet reports."""
        return self.ready is not None and self.ready.status == "Unknown"


_KEPT = frozenset({ISOLATED_BY, CORDONED_BY, OUT_OF_SERVICE_BY, CORDON_REASON})


def view_of(node: Node) -> NodeView:
    """Return what is kept of a node. Raises UnusableError."""
    labels = node.metadata.labels or NONE
    ranked = sorted(labels, key=lambda key: (key.startswith(_DISCOVERED), key != _HOSTNAME, key))
    return NodeView(
        name=node.metadata.name,
        uid=node.metadata.uid,
        version=node.metadata.resource_version,
        unschedulable=node.spec.unschedulable,
        taints=tuple(taint for taint, _ in node.taints()),
        annotations={key: node.annotations[key] for key in _KEPT & node.annotations.keys()},
        labels={key: labels[key] for key in ranked[:_LABELS_MAX]},
        ready=node.condition("Ready"),
        isolated=node.condition(CONDITION),
    )


# --- whose marks ---------------------------------------------------------------------------------


def is_ours(node: NodeView, marking: Marking) -> bool:
    """Return whether this Everstep cluster withholds the node."""
    is_tainted = any(taint.key == TAINT for taint in node.taints)
    return is_tainted and node.annotations.get(ISOLATED_BY) == marking.cluster


def is_of_another(node: NodeView, marking: Marking) -> bool:
    """Return whether another Everstep cluster withholds the node: what it says there stands."""
    is_tainted = any(taint.key == TAINT for taint in node.taints)
    return is_tainted and node.annotations.get(ISOLATED_BY, marking.cluster) != marking.cluster


def is_cordoned_by_us(node: NodeView, marking: Marking) -> bool:
    """Return whether its cordon is ours: one whose taint is gone counts as somebody else's."""
    by_us = node.annotations.get(CORDONED_BY) == marking.cluster
    return node.unschedulable and by_us and is_ours(node, marking)


def foreign_hold(node: NodeView, marking: Marking) -> str:
    """Return who else withholds a node, as a sentence; empty for nobody."""
    found = []
    if node.unschedulable and not is_cordoned_by_us(node, marking):
        reason = plain(node.annotations.get(CORDON_REASON, ""))
        found.append(f"cordoned: {reason}" if reason else "cordoned")
    ours = is_ours(node, marking)
    for taint in node.taints:
        if taint.key == TAINT:
            found += [] if ours else [f"taint {taint}, not set by this Everstep cluster"]
        elif _is_word(taint, node, marking):
            found.append(f"taint {taint}")
    return "; ".join(found)


def _is_word(taint: Taint, node: NodeView, marking: Marking) -> bool:
    """Return whether a taint is somebody's word that the node is to get no work."""
    if taint.effect not in _WITHHOLDING:
        return False
    if taint.key == OUT_OF_SERVICE.key:
        return node.annotations.get(OUT_OF_SERVICE_BY) != marking.cluster
    return not matches(taint.key, (*MACHINE_TAINTS, *marking.tolerated))


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Return whether a key is one of these, or begins with one that ends with "/"."""
    return any(key.startswith(one) if one.endswith("/") else key == one for one in patterns)


def hold_of(node: NodeView, marking: Marking) -> Hold | None:
    """Return the hold on a node. Where others hold it as well as we do, theirs is told."""
    if reason := foreign_hold(node, marking):
        return Hold(reason, ours=False)
    if is_ours(node, marking):
        # A heartbeat that was under way may have written for a moment what was so before.
        told = node.isolated
        said = told.message if told is not None and told.status == "True" else ""
        return Hold(said.rpartition(_COMMAND)[0] if _COMMAND in said else said, ours=True)
    return None


def has_stale_marks(node: NodeView, marking: Marking) -> bool:
    """Return whether annotations say that we did what somebody has undone since."""
    notes = node.annotations
    tainted = is_ours(node, marking)
    is_out = any(taint.key == OUT_OF_SERVICE.key for taint in node.taints)
    return (
        (notes.get(ISOLATED_BY) == marking.cluster and not tainted)
        or (notes.get(CORDONED_BY) == marking.cluster and not is_cordoned_by_us(node, marking))
        or (notes.get(OUT_OF_SERVICE_BY) == marking.cluster and not is_out)
    )


# --- changes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """Wanted marks of a node: withheld for an owner or not, cordoned besides, or switched off."""

    owner: str = ""
    out_of_service: bool = False
    # None: its cordon stays as it is, unless ours is to go with the rest.
    cordon: bool | None = None


def strongest(owners: Collection[str]) -> str:
    """Return the owner that a taint names: its value cannot hold two."""
    named = next((one for one in _OWNERS if one in owners), min(owners, default=""))
    return _NOT_A_LABEL.sub("-", named[:63]).strip("-_.") or "everstep"


def patch_of(node: Node, change: Change, marking: Marking) -> dict[str, object] | None:
    """Return the merge patch that makes the marks of a node so; None where they are.

    It has the version that it was made from, so that the server refuses it where the node has
    changed since: the list of taints is one value, and those of others are in it. Raises
    UnusableError.
    """
    view = view_of(node)
    cordoned = is_cordoned_by_us(view, marking)
    taints = _taints_with(node, change, view, marking)
    annotations: dict[str, str | None] = {}
    spec: dict[str, object] = {}
    if taints != (node.spec.taints or []):
        spec["taints"] = taints
    _note(annotations, view, ISOLATED_BY, marking.cluster if change.owner else None, marking)
    if change.owner and change.cordon and not view.unschedulable:
        spec["unschedulable"] = True
        annotations[CORDONED_BY] = marking.cluster
    elif cordoned and (not change.owner or change.cordon is False):
        spec["unschedulable"] = None
        annotations[CORDONED_BY] = None
    elif not cordoned:
        _note(annotations, view, CORDONED_BY, None, marking)
    out_by_us = change.out_of_service and not _is_out_by_others(view, marking)
    _note(annotations, view, OUT_OF_SERVICE_BY, marking.cluster if out_by_us else None, marking)
    if not spec and not annotations:
        return None
    metadata: dict[str, object] = {"resourceVersion": node.metadata.resource_version}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def _taints_with(node: Node, change: Change, view: NodeView, marking: Marking) -> list[msgspec.Raw]:
    """Return the taints that it is to have: those of others as they are, and ours."""
    ours = is_ours(view, marking)
    out_by_us = view.annotations.get(OUT_OF_SERVICE_BY) == marking.cluster
    kept, wanted = [], _own_taints(change, marking)
    for taint, raw in node.taints():
        is_our_out = taint.key == OUT_OF_SERVICE.key and out_by_us
        if not (taint.key == TAINT and ours) and not is_our_out:
            kept.append(raw)
            wanted = [one for one in wanted if (one.key, one.effect) != (taint.key, taint.effect)]
        elif taint in wanted:
            kept.append(raw)
            wanted.remove(taint)
    return [*kept, *map(_encoded, wanted)]


def _is_out_by_others(node: NodeView, marking: Marking) -> bool:
    is_out = any(taint.key == OUT_OF_SERVICE.key for taint in node.taints)
    return is_out and node.annotations.get(OUT_OF_SERVICE_BY) != marking.cluster


def _own_taints(change: Change, marking: Marking) -> list[Taint]:
    effects = ("NoSchedule", "NoExecute") if marking.effect == "NoExecute" else ("NoSchedule",)
    taints = [Taint(TAINT, effect, change.owner) for effect in effects] if change.owner else []
    return [*taints, OUT_OF_SERVICE] if change.out_of_service else taints


def _note(
    annotations: dict[str, str | None],
    view: NodeView,
    key: str,
    value: str | None,
    marking: Marking,
) -> None:
    """Write an annotation, or remove ours; that of another cluster stays."""
    now = view.annotations.get(key)
    if value is None and now == marking.cluster:
        annotations[key] = None
    elif value is not None and now != value:
        annotations[key] = value


def _encoded(taint: Taint) -> msgspec.Raw:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return msgspec.Raw(msgspec.json.encode({key: one for key, one in fields.items() if one}))


# --- words ---------------------------------------------------------------------------------------

_COMMAND = "; everstep why "


def told_of(wanted: WantedIsolation) -> Told:
    """Return what the condition of an isolated node says of it."""
    condition = wanted.condition[:_REASON_MAX]
    reason = condition if _REASON.match(condition) else _reason_by(strongest(wanted.owners))
    return Told(reason, f"{plain(wanted.reason)}{_COMMAND}{plain(wanted.node)}")


def told_by(node: NodeView, marking: Marking) -> Told:
    """Return what the condition of a node is to say, of which nothing else is known here."""
    if not is_ours(node, marking):
        return Told("NotIsolated", "Everstep does not withhold this node")
    now = node.isolated
    if now is not None and now.status == "True":
        return Told(now.reason, now.message)
    owner = next(taint.value for taint in node.taints if taint.key == TAINT) or "everstep"
    return Told(_reason_by(owner), f"{owner}{_COMMAND}{node.name}")


def _reason_by(owner: str) -> str:
    return f"IsolatedBy{re.sub('[^A-Za-z0-9]', '', owner.capitalize())}"


def plain(text: str) -> str:
    """Return a text of which no tool that reads it makes anything else: one line, plain signs."""
    return _NOT_PLAIN.sub(" ", text[:_READ_MAX]).strip()[:_MESSAGE_MAX]
