"""Writes of the fake API server: merge patches, server-side apply, subresources, validation."""

import re
from copy import deepcopy

from fakes.kubernetes.objects import Json, RefusedError

_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\Z")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


def patched(had: Json, patch: Json, kind: str, subresource: str) -> Json:
    """Return an object after a merge patch. Raises RefusedError."""
    wanted = (patch.get("metadata") or {}).get("resourceVersion")
    if wanted is not None and wanted != had["metadata"]["resourceVersion"]:
        name = had["metadata"]["name"]
        message = (
            f'Operation cannot be fulfilled on {kind} "{name}": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
        raise RefusedError(409, "Conflict", message)
    new = deepcopy(had)
    if subresource == "status":
        new["status"] = _merged(had.get("status", {}), patch.get("status") or {})
        return new
    # What a patch of the main resource says of the status is dropped, and nobody is told.
    new["spec"] = _merged(had.get("spec", {}), patch.get("spec") or {})
    metadata = patch.get("metadata") or {}
    for part in ("labels", "annotations"):
        if part in metadata:
            new["metadata"][part] = _merged(had["metadata"].get(part) or {}, metadata[part] or {})
            if not new["metadata"][part]:
                del new["metadata"][part]
    if kind == "nodes":
        check_node(new)
    return new


def applied(had: Json, wanted: Json, manager: str, subresource: str, *, force: bool) -> Json:
    """Return a node after a server-side apply on its status. Raises RefusedError.

    Conditions are a map by their types: each manager has the ones that it applied, and what it
    applies no more goes, unless others have it as well.
    """
    if subresource != "status":
        raise RefusedError(400, "BadRequest", "this fake applies to the status only")
    uid = wanted["metadata"].get("uid")
    if uid not in (None, had["metadata"]["uid"]):
        message = f"Precondition failed: UID in precondition: {uid}"
        raise RefusedError(409, "Conflict", message)
    new = deepcopy(had)
    managed: list[Json] = new["metadata"].setdefault("managedFields", [])
    conditions = {one["type"]: one for one in new.setdefault("status", {}).get("conditions") or []}
    asked = {one["type"]: one for one in (wanted.get("status") or {}).get("conditions") or []}
    for other in managed:
        if other["manager"] != manager:
            _take_from(other, conditions, asked, force=force)
    mine = _entry_of(managed, manager)
    for kind in set(_owned(mine)) - asked.keys():
        if not any(kind in _owned(other) for other in managed if other is not mine):
            conditions.pop(kind, None)
    mine["fieldsV1"] = _fields_of(asked)
    for kind, one in asked.items():
        conditions[kind] = {**conditions.get(kind, {}), **one}
    new["status"]["conditions"] = list(conditions.values())
    new["metadata"]["managedFields"] = [one for one in managed if one["fieldsV1"]]
    return new


def applied_data(had: Json, wanted: Json) -> Json:
    """Return a ConfigMap after an apply of some of its keys, which nobody else has."""
    return deepcopy(had) | {"data": {**(had.get("data") or {}), **wanted["data"]}}


def _take_from(other: Json, conditions: Json, asked: Json, *, force: bool) -> None:
    """Take fields over that another manager has, or refuse to."""
    for kind, fields in _owned(other).items():
        for field in list(fields):
            if kind not in asked or field not in asked[kind] or field == "type":
                continue
            if conditions.get(kind, {}).get(field) == asked[kind][field]:
                continue
            if not force:
                message = f'Apply failed with 1 conflict: conflict with "{other["manager"]}"'
                raise RefusedError(409, "Conflict", message)
            del other["fieldsV1"]["f:status"]["f:conditions"][_key(kind)][f"f:{field}"]


def _entry_of(managed: list[Json], manager: str) -> Json:
    for one in managed:
        if one["manager"] == manager and one["operation"] == "Apply":
            return one
    entry: Json = {"manager": manager, "operation": "Apply", "subresource": "status"}
    entry |= {"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}
    managed.append(entry)
    return entry


def _key(kind: str) -> str:
    return f'k:{{"type":"{kind}"}}'


def _fields_of(asked: Json) -> Json:
    if not asked:
        return {}
    rows: Json = {_key(kind): {f"f:{field}": {} for field in one} for kind, one in asked.items()}
    return {"f:status": {"f:conditions": rows}}


def _owned(entry: Json) -> dict[str, list[str]]:
    """Return the fields that a manager has, by the types of conditions."""
    rows: Json = entry["fieldsV1"].get("f:status", {}).get("f:conditions", {})
    return {
        key.removeprefix('k:{"type":"').removesuffix('"}'): [name[2:] for name in fields]
        for key, fields in rows.items()
    }


def check_node(node: Json) -> None:
    """Refuse a node whose taints are no taints. Raises RefusedError."""
    seen = set()
    for taint in node.get("spec", {}).get("taints") or []:
        row = (taint.get("key"), taint.get("effect"))
        name = str(taint.get("key", "")).rpartition("/")[2]
        good = name and _LABEL.match(name) and _LABEL.match(taint.get("value", ""))
        if not good or taint.get("effect") not in _EFFECTS or row in seen:
            message = f'Node "{node["metadata"]["name"]}" is invalid: spec.taints: {taint}'
            raise RefusedError(422, "Invalid", message)
        seen.add(row)


def _merged(had: object, patch: object) -> object:
    """Return a value after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return deepcopy(patch)
    new = deepcopy(had) if isinstance(had, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new
