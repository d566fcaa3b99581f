"""Marks on nodes of Kubernetes as values: whose they are, and how each change is asked for."""

import json
import random
import re
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.model.isolation import Hold, WantedIsolation
from everstep_controller.drivers.kubernetes.conditions import WantedCondition, due_in_s, seconds
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.marks import (
    TAINT,
    Change,
    Marking,
    Told,
    foreign_hold,
    hold_of,
    is_ours,
    patch_of,
    plain,
    strongest,
    told_of,
    view_of,
)
from everstep_controller.drivers.kubernetes.objects import Node, UnusableError, decoded
from kubernetes_suite.hostile import hostile_text

Json = dict[str, Any]
MARKING = Marking("c1", tolerated=("nvidia.com/gpu",))


def node(
    *taints: Json, unschedulable: bool = False, conditions: tuple[Json, ...] = (), **notes: str
) -> Node:
    annotations = {key.replace("_", "-"): value for key, value in notes.items()}
    body = {
        "metadata": {
            "name": "n1",
            "uid": "u1",
            "resourceVersion": "7",
            "annotations": {f"everstep.io/{key}": value for key, value in annotations.items()},
        },
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {"conditions": list(conditions)},
    }
    return decoded(json.dumps(body).encode(), Node, "a node")


def taint(key: str, value: str = "", effect: str = "NoSchedule", **more: str) -> Json:
    return {"key": key, "effect": effect, **({"value": value} if value else {}), **more}


def after(before: Node, change: Change, marking: Marking) -> Node:
    """Return a node after the patch, as a server would have it."""
    patch = patch_of(before, change, marking)
    body = msgspec.json.decode(msgspec.json.encode(before))
    # A struct writes its own names; what is read again has those of the API.
    body["metadata"] = {"name": "n1", "uid": "u1", "resourceVersion": "8"}
    annotations = dict(before.annotations)
    spec: Json = {
        "taints": [json.loads(bytes(raw)) for _, raw in before.taints()],
        "unschedulable": before.spec.unschedulable,
    }
    if patch is not None:
        asked = json.loads(msgspec.json.encode(patch))
        assert asked["metadata"]["resourceVersion"] == before.metadata.resource_version
        for key, value in asked["metadata"].get("annotations", {}).items():
            annotations.pop(key, None)
            annotations |= {key: value} if value is not None else {}
        spec |= {k: False if v is None else v for k, v in asked.get("spec", {}).items()}
    body["metadata"]["annotations"] = annotations
    body["spec"] = spec
    return decoded(json.dumps(body).encode(), Node, "a node")


def test_a_foreign_taint_is_sent_back_as_it_came_with_fields_that_nobody_knows() -> None:
    theirs = taint("site.example/x", "y", timeAdded="2026-11-30T00:00:00Z", future="field")
    patch = patch_of(node(theirs), Change("automation"), MARKING)
    assert patch is not None
    sent = json.loads(msgspec.json.encode(patch))
    assert sent["spec"]["taints"] == [theirs, taint(TAINT, "automation")]
    assert sent["metadata"]["annotations"] == {"everstep.io/isolated-by": "c1"}
    assert "unschedulable" not in sent["spec"]


def test_what_is_so_needs_no_patch() -> None:
    held = node(taint(TAINT, "automation"), isolated_by="c1")
    assert patch_of(held, Change("automation"), MARKING) is None
    assert patch_of(node(), Change(), MARKING) is None
    assert patch_of(held, Change("operator"), MARKING) is not None


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (node(), ""),
        (node(unschedulable=True), "cordoned"),
        (node(unschedulable=True, cordoned_by="c1"), "cordoned"),
        (node(taint("site.example/x", "y")), "taint site.example/x=y:NoSchedule"),
        (node(taint("site.example/x", effect="PreferNoSchedule")), ""),
        (node(taint("nvidia.com/gpu", "present")), ""),
        (node(taint("node.kubernetes.io/not-ready", effect="NoExecute")), ""),
        (node(taint("readiness.k8s.io/everstep")), ""),
        (node(taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")), "taint"),
        (node(taint(TAINT, "automation")), "not set by this Everstep cluster"),
        (node(taint(TAINT, "automation"), isolated_by="c2"), "not set by this Everstep cluster"),
        (node(taint(TAINT, "automation"), isolated_by="c1"), ""),
        (node(taint(TAINT, "a"), unschedulable=True, isolated_by="c1", cordoned_by="c1"), ""),
        (node(taint(TAINT, "a"), unschedulable=True, isolated_by="c1"), "cordoned"),
    ],
)
def test_who_else_withholds_a_node(before: Node, says: str) -> None:
    found = foreign_hold(view_of(before), MARKING)
    assert says in found
    assert bool(says) == bool(found)


_KEYS = st.sampled_from(["site.example/a", "site.example/b", "node.kubernetes.io/c", TAINT])
_EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
_TAINTS = st.lists(
    st.builds(taint, _KEYS, st.sampled_from(["", "v", "automation"]), _EFFECTS),
    max_size=4,
    unique_by=lambda one: (one["key"], one["effect"]),
)
_NOTES = st.dictionaries(
    st.sampled_from(["isolated_by", "cordoned_by", "out_of_service_by"]),
    st.sampled_from(["c1", "c2"]),
)
_CORDONS = st.sampled_from([None, True, False])
_MARKINGS = st.builds(Marking, st.just("c1"), st.sampled_from(["NoSchedule", "NoExecute"]))


@given(_TAINTS, st.booleans(), _NOTES, _MARKINGS, st.booleans(), _CORDONS)
def test_to_withhold_and_to_free_changes_nothing_of_others(
    taints: list[Json],
    cordoned: bool,
    notes: dict[str, str],
    marking: Marking,
    out: bool,
    cordon: bool | None,
) -> None:
    before = node(*taints, unschedulable=cordoned, conditions=(), **notes)
    view = view_of(before)
    theirs = [one for one, _ in before.taints() if one.key != TAINT or not is_ours(view, marking)]
    foreign = foreign_hold(view, marking)

    change = Change("automation", out, cordon)
    held = before if foreign else after(before, change, marking)
    if not foreign:
        assert is_ours(view_of(held), marking)
        assert hold_of(view_of(held), marking) is not None
        assert not cordon or held.spec.unschedulable
        again = after(held, change, marking)
        assert view_of(again).taints == view_of(held).taints
    freed = after(held, Change(), marking)
    assert not is_ours(view_of(freed), marking)
    assert foreign_hold(view_of(freed), marking) == foreign
    left = [one for one, _ in freed.taints()]
    assert [one for one in theirs if one in left or one.value != "nodeshutdown"] == left
    assert len({(one.key, one.effect) for one in left}) == len(left)
    assert not {key: value for key, value in freed.annotations.items() if value == "c1"}
    assert {k for k, v in freed.annotations.items() if v == "c2"} <= {
        k for k, v in before.annotations.items() if v == "c2"
    }


def test_a_taint_that_is_none_is_said() -> None:
    with pytest.raises(UnusableError, match="a taint of node n1"):
        view_of(node({"effect": "NoSchedule"}))


@given(st.lists(st.text(max_size=80), max_size=3))
def test_the_value_of_a_taint_is_a_label(owners: list[str]) -> None:
    value = strongest(owners)
    assert 0 < len(value) <= 63
    assert value[0].isalnum()
    assert value[-1].isalnum()
    assert all(sign.isascii() and (sign.isalnum() or sign in "-_.") for sign in value)


def test_the_strongest_owner_is_named() -> None:
    assert strongest(["automation", "operator"]) == "operator"
    assert strongest(["maintenance", "automation"]) == "automation"


@given(st.text(max_size=2000))
def test_a_message_is_one_plain_line(text: str) -> None:
    said = plain(text)
    assert said.isascii()
    assert said.isprintable()
    assert len(said) <= 900


def test_of_ten_thousand_hostile_findings_only_listed_signs_are_shown() -> None:
    chance = random.Random(7)
    signs = set(string.ascii_letters + string.digits + " .,:;/()[]{}_+=#%@!?*<>|~^&$'\"-")
    for _ in range(10_000):
        owner, reason, condition = (hostile_text(chance) for _ in range(3))
        wish = WantedIsolation("gpu-1", (owner,), f"{owner}: {reason}", condition)
        told = told_of(wish)
        assert set(told.message) <= signs
        assert told.message.endswith("; everstep why gpu-1")
        assert len(told.message) <= 1024
        assert re.fullmatch(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", told.reason)
        assert len(told.reason) <= 128
        value = strongest(wish.owners)
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", value)
        held = node(taint(TAINT, value), isolated_by="c1", conditions=(_shown(told),))
        assert hold_of(view_of(held), MARKING) == Hold(plain(wish.reason), ours=True)


def _shown(told: Told) -> Json:
    return {"type": "EverstepIsolated", "status": "True"} | {
        "reason": told.reason,
        "message": told.message,
    }


def test_the_words_of_others_are_plain_and_short_as_well() -> None:
    body = {
        "metadata": {
            "name": "n1",
            "annotations": {"nodeset.slinky.slurm.net/node-cordon-reason": "a\x1b[2J" * 9999},
        },
        "spec": {"unschedulable": True},
    }
    said = foreign_hold(view_of(decoded(json.dumps(body).encode(), Node, "a node")), MARKING)
    assert said.startswith("cordoned: a [2Ja [2J")
    assert said.isprintable()
    assert len(said) < 1000


def test_the_reason_is_the_condition_where_it_may_be() -> None:
    assert told_of(WantedIsolation("n1", ("operator",), "x", "GpuLost")).reason == "GpuLost"
    for bad in ("", "1x", "a b", "x" * 2000 + "-", "ü"):
        told = told_of(WantedIsolation("n1", ("operator",), "x", bad))
        assert told.reason in ("IsolatedByOperator", "x" * 128)


def condition(**fields: str) -> Json:
    rest = {"status": "False", "reason": "NotIsolated", "message": "m"}
    return {"type": "EverstepIsolated", **rest, **fields}


def test_a_condition_is_written_when_it_differs_or_is_old() -> None:
    wanted = WantedCondition(isolated=False, told=Told("NotIsolated", "m"))
    now = seconds("2026-11-30T06:00:00Z") or 0.0

    def due(**fields: str) -> float:
        view = view_of(node(conditions=(condition(**fields),)))
        return due_in_s(view, wanted, now, 300)

    assert due_in_s(view_of(node()), wanted, now, 300) == 0
    assert due(lastHeartbeatTime="2026-11-30T05:58:00Z") == 180
    assert due(lastHeartbeatTime="2026-11-30T05:50:00Z") == 0
    assert due(lastHeartbeatTime="2026-11-30T05:58:00Z", status="True") == 0
    assert due(lastHeartbeatTime="2026-11-30T05:58:00Z", message="other") == 0
    # A clock that is hours ahead, or that is none, is no reason to be silent for so long.
    assert due(lastHeartbeatTime="2026-11-30T09:00:00Z") == 0
    assert due(lastHeartbeatTime="soon") == 0
    assert due() == 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"access": "kubeconfig"}, "access: expected"),
        ({"selector": "pool=gpu,,"}, "selector: expected"),
        ({"selector": "pool in gpu"}, "selector: expected"),
        ({"selector": "a=b\n"}, "selector: expected"),
        ({"taint_effect": "noexecute"}, "taint_effect: expected NoSchedule or NoExecute"),
        ({"pods": "all"}, "pods: expected ignore or show or evict"),
        ({"out_of_service": "yes"}, "out_of_service: expected never or dead"),
        ({"heartbeat_s": 5.0}, "heartbeat_s: must not be below 60"),
        ({"writes_per_s": 0}, "writes_per_s: must be from 1 to 500"),
        ({"eviction_deadline_s": 0.0}, "eviction_deadline_s: must be above 0"),
    ],
)
def test_a_setting_with_a_mistake_is_told(settings: dict[str, Any], sentence: str) -> None:
    (problem,) = KubernetesDriverConfig(**settings).problems()
    assert problem.startswith(sentence)


@pytest.mark.parametrize(
    "selector",
    ["pool=gpu", "pool==gpu,zone!=b", "example.org/a in (x, y),!spare", "gpu", "a notin (b)"],
)
def test_a_selector_as_kubectl_takes_it_is_good(selector: str) -> None:
    assert KubernetesDriverConfig(selector=selector).problems() == []
