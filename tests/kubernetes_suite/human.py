"""Human with kubectl, who changes nodes of a cluster beside the driver; blocking, as humans are."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml

Json = dict[str, Any]
# What a role or a binding says.
_SAID = ("rules", "subjects", "roleRef")
MERGE = "application/merge-patch+json"
_PLURALS = {
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


@dataclass(frozen=True)
class Human:
    """A client with all rights; every call raises where the server refuses it."""

    client: httpx2.Client

    @classmethod
    def at(cls, server: str, ca: Path, token: str) -> "Human":
        """Return one for a server."""
        context = ssl.create_default_context(cafile=str(ca))
        headers = {"Authorization": f"Bearer {token}"}
        return cls(httpx2.Client(base_url=server, verify=context, headers=headers, timeout=30))

    def call(self, method: str, path: str, body: Json | None = None, kind: str = "") -> Json:
        """Make a request, and return its answer."""
        headers = {"Content-Type": kind} if kind else {}
        answer = self.client.request(method, path, json=body, headers=headers)
        if answer.is_error:
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
        result: Json = answer.json()
        return result

    def node(self, name: str) -> Json:
        """Return a node."""
        return self.call("GET", f"/api/v1/nodes/{name}")

    def make(self, name: str, **labels: str) -> Json:
        """Make a node whose kubelet has just reported."""
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}}
        self.call("POST", "/api/v1/nodes", body)
        # A new node gets the taint not-ready, which a controller removes where one runs.
        self.patch(name, {"spec": {"taints": None}})
        return self.report(name)

    def register(self, name: str, **labels: str) -> None:
        """Make a node of which nothing else is ever told: for the sake of many."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
        self.call("POST", "/api/v1/nodes", body)

    def report(self, name: str, status: str = "True", at: str = "2026-11-30T06:00:00Z") -> Json:
        """Report a node's state, as its kubelet or the node controller does."""
        ready = {"type": "Ready", "status": status, "reason": "KubeletReady", "message": "it is"}
        if status == "Unknown":
            message = "Kubelet stopped posting node status."
            ready |= {"reason": "NodeStatusUnknown", "message": message}
        ready |= {"lastHeartbeatTime": at, "lastTransitionTime": at}
        rest = self.node(name).get("status", {}).get("conditions") or []
        conditions = [one for one in rest if one["type"] != "Ready"] + [ready]
        path = f"/api/v1/nodes/{name}/status"
        return self.call("PATCH", path, {"status": {"conditions": conditions}}, MERGE)

    def patch(self, name: str, body: Json) -> Json:
        """Change a node by a merge patch."""
        return self.call("PATCH", f"/api/v1/nodes/{name}", body, MERGE)

    def delete(self, name: str) -> None:
        """Delete a node."""
        self.call("DELETE", f"/api/v1/nodes/{name}")

    def cordon(self, name: str, *, on: bool = True) -> None:
        """Cordon a node, or uncordon it."""
        self.patch(name, {"spec": {"unschedulable": True if on else None}})

    def taint(self, name: str, key: str, value: str = "", effect: str = "NoSchedule") -> None:
        """Taint a node, beside the taints that it has."""
        taint = {"key": key, "effect": effect} | ({"value": value} if value else {})
        self.change_taints(name, lambda taints: [*taints, taint])

    def untaint(self, name: str, key: str) -> None:
        """Remove the taints with a key."""
        self.change_taints(name, lambda taints: [one for one in taints if one["key"] != key])

    def free(self, name: str, key: str, *, uncordon: bool) -> None:
        """Remove the taints with a key, and the cordon in the same moment."""
        spec: Json = {"unschedulable": None} if uncordon else {}
        self.change_taints(name, lambda taints: [one for one in taints if one["key"] != key], spec)

    def change_taints(
        self, name: str, change: Callable[[list[Json]], list[Json]], spec: Json | None = None
    ) -> None:
        """Read, change and write a node's taints, as often as somebody comes between."""
        for _ in range(50):
            node = self.node(name)
            taints = change(node["spec"].get("taints") or [])
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            body = {"metadata": version, "spec": {"taints": taints or None, **(spec or {})}}
            answer = self.client.patch(
                f"/api/v1/nodes/{name}", json=body, headers={"Content-Type": MERGE}
            )
            if not answer.is_error:
                return
            assert answer.status_code == 409, answer.text
        raise AssertionError(f"{name} changes all the time")

    def taints(self, name: str) -> dict[str, str]:
        """Return a node's taints, value and effect by key."""
        taints = self.node(name)["spec"].get("taints") or []
        return {one["key"]: f"{one.get('value', '')}:{one['effect']}" for one in taints}

    def condition(self, name: str, kind: str = "EverstepIsolated") -> Json | None:
        """Return a condition of a node."""
        conditions = self.node(name).get("status", {}).get("conditions") or []
        return next((one for one in conditions if one["type"] == kind), None)

    def make_account(self, namespace: str, name: str) -> None:
        """Make a service account, in a namespace that is made where it is not there."""
        self._make_missing("/api/v1/namespaces", {"metadata": {"name": namespace}})
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self._make_missing(path, {"metadata": {"name": name}})

    def make_pod(self, namespace: str, name: str, node: str, account: str) -> str:
        """Make a pod of an account that runs on a node; return its uid."""
        container = {"name": "agent", "image": "agent"}
        spec = {"nodeName": node, "serviceAccountName": account, "containers": [container]}
        body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        made = self.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
        uid: str = made["metadata"]["uid"]
        return uid

    def delete_pod(self, namespace: str, name: str) -> None:
        """Delete a pod at once, as where its kubelet has confirmed its end."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0"
        self.call("DELETE", path)

    def token(self, account: str, audience: str, pod: str = "", uid: str = "") -> str:
        """Return a token of an account (NAMESPACE/NAME), for a pod as a kubelet gets it."""
        namespace, _, name = account.partition("/")
        spec: Json = {"audiences": [audience], "expirationSeconds": 3600}
        if pod:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        told: str = self.call("POST", path, body)["status"]["token"]
        return told

    def make_config_map(self, namespace: str, name: str) -> None:
        """Make an empty ConfigMap where it is not there."""
        self._make_missing(
            f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}}
        )

    def config_map(self, namespace: str, name: str) -> Json:
        """Return what is in a ConfigMap."""
        found = self.call("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        data: Json = found.get("data") or {}
        return data

    def _make_missing(self, path: str, body: Json) -> None:
        answer = self.client.post(path, json=body)
        assert answer.is_success or answer.status_code == 409, answer.text

    def apply(self, manifest: str) -> None:
        """Make the objects of a manifest, those that differ anew."""
        for one in yaml.safe_load_all(manifest):
            metadata = one["metadata"]
            path = _PLURALS[one["kind"]].format(metadata.get("namespace", ""))
            had = self.client.get(f"{path}/{metadata['name']}")
            if had.is_success and all(had.json().get(key) == one.get(key) for key in _SAID):
                continue
            self.client.delete(f"{path}/{metadata['name']}")
            self.call("POST", path, one)
