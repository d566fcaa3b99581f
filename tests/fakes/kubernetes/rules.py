"""Rules of the fake API server: who may do what, by the roles and bindings that it was given."""

from fakes.kubernetes.objects import Json, Objects, RefusedError

_RBAC = "rbac.authorization.k8s.io/"
# What the bootstrap roles of a cluster allow to everybody with a name.
_EVERYBODY = ("selfsubjectaccessreviews",)


class Rules:
    """Rules by roles; a user of the group of masters may do all."""

    def __init__(self, objects: Objects, masters: frozenset[str]) -> None:
        self._objects = objects
        self._masters = masters

    def check(self, user: str, verb: str, resource: str, group: str, namespace: str) -> None:
        """Raise RefusedError where a user may not do something."""
        if not self.allow(user, verb, resource, group, namespace):
            scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
            message = (
                f'{resource} is forbidden: User "{user}" cannot {verb} resource "{resource}" in '
                f'API group "{group}" {scope}'
            )
            raise RefusedError(403, "Forbidden", message)

    def allow(self, user: str, verb: str, resource: str, group: str, namespace: str) -> bool:
        """Return whether a user may do something."""
        if user in self._masters or resource in _EVERYBODY:
            return True
        rows = self._rules(user, "ClusterRoleBinding", "")
        rows += self._rules(user, "RoleBinding", namespace) if namespace else []
        return any(
            verb in row["verbs"] and resource in row["resources"] and group in row["apiGroups"]
            for row in rows
        )

    def _rules(self, user: str, kind: str, namespace: str) -> list[Json]:
        found: list[Json] = []
        for binding in self._objects.all(f"{_RBAC}{kind.lower()}s"):
            if (binding["metadata"].get("namespace") or "") != namespace:
                continue
            if any(_is(subject, user) for subject in binding.get("subjects") or []):
                role = binding["roleRef"]
                place = namespace if role["kind"] == "Role" else ""
                resource = f"{_RBAC}{role['kind'].lower()}s"
                found += self._objects.get(resource, (place, role["name"])).get("rules") or []
        return found


def _is(subject: Json, user: str) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    return bool(subject["name"] == user)
