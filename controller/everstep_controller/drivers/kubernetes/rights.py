"""Rights that are needed at the API server: each verb that is used there, and none besides."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_NAME = "everstep-controller"
_LEASES_IN = "kube-node-lease"


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, in the words of RBAC."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    # Of one object alone; "": of all.
    name: str = ""

    def __str__(self) -> str:
        """Return it as kubectl says it."""
        return f"{self.verb} {self.resource}"

    def review(self) -> dict[str, object]:
        """Return the question whether one has it."""
        resource, _, subresource = self.resource.partition("/")
        asked = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: one for key, one in asked.items() if one}},
        }


def needed_rights(*, pods: bool, evictions: bool) -> tuple[Right, ...]:
    """Return what is needed: for nodes always, and for pods where they are shown or evicted."""
    rights = [
        Right("get", "nodes"),
        Right("list", "nodes"),
        Right("watch", "nodes"),
        Right("patch", "nodes"),
        Right("patch", "nodes/status"),
        Right("get", "leases", "coordination.k8s.io", _LEASES_IN),
    ]
    if pods or evictions:
        rights.append(Right("list", "pods"))
    if evictions:
        rights.append(Right("create", "pods/eviction"))
    return tuple(rights)


@dataclass(frozen=True, slots=True)
class PodEnrolment:
    """Accounts whose pods enrol, and the ConfigMap with the authority, as NAMESPACE/NAME."""

    accounts: Sequence[str] = ()
    authority: str = ""

    def rights(self) -> Iterator[Right]:
        """Yield what is needed to know a pod by its token, and to publish the authority."""
        if self.accounts:
            yield Right("create", "tokenreviews", "authentication.k8s.io")
        # Kubernetes before 1.30 does not tell a pod's node with its token.
        for namespace in sorted({one.partition("/")[0] for one in self.accounts}):
            yield Right("get", "pods", "", namespace)
        if self.authority:
            namespace, _, name = self.authority.partition("/")
            yield Right("patch", "configmaps", "", namespace, name)


def manifest(rights: tuple[Right, ...], namespace: str, user: str = "") -> str:
    """Return the roles with these rights and their bindings, as YAML.

    They are bound to a service account in a namespace, which is made, or to a user.
    """
    everywhere = [right for right in rights if not right.namespace]
    places = list(dict.fromkeys(right.namespace for right in rights if right.namespace))
    account = (
        f"apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: {_NAME}\n"
        f"  namespace: {namespace}\n"
    )
    subject = f"- kind: ServiceAccount\n  name: {_NAME}\n  namespace: {namespace}\n"
    if user:
        named = json.dumps(user)  # a string of JSON is one of YAML
        subject = f"- kind: User\n  apiGroup: rbac.authorization.k8s.io\n  name: {named}\n"
    roles = [_role("ClusterRole", "", everywhere), _binding("ClusterRole", "") + subject]
    for place in places:
        here = [right for right in rights if right.namespace == place]
        roles += [_role("Role", place, here), _binding("Role", place) + subject]
    return "---\n".join(roles if user else (account, *roles))


def _role(kind: str, namespace: str, rights: list[Right]) -> str:
    by_resource: dict[tuple[str, str, str], list[str]] = {}
    for right in rights:
        by_resource.setdefault((right.group, right.resource, right.name), []).append(right.verb)
    rules = "".join(
        f'- apiGroups: ["{group}"]\n  resources: [{resource}]\n'
        + (f"  resourceNames: [{name}]\n" if name else "")
        + f"  verbs: [{', '.join(verbs)}]\n"
        for (group, resource, name), verbs in by_resource.items()
    )
    return _head(kind, namespace) + f"rules:\n{rules}"


def _binding(kind: str, namespace: str) -> str:
    reference = (
        f"roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {_NAME}\n"
    )
    return _head(f"{kind}Binding", namespace) + reference + "subjects:\n"


def _head(kind: str, namespace: str) -> str:
    place = f"  namespace: {namespace}\n" if namespace else ""
    return (
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {_NAME}\n"
        + place
    )
