"""Objects of the fake API server: their store, its revisions, and what happened in order."""

import base64
import json
import threading
import uuid
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]
_SNAPSHOTS_MAX = 8


class RefusedError(Exception):
    """The server refuses a request."""

    def __init__(self, code: int, reason: str, message: str, retry_after_s: int = 0) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after_s = code, reason, retry_after_s

    def status(self) -> Json:
        """Return what the server answers."""
        details: Json = {}
        if self.retry_after_s:
            details = {"retryAfterSeconds": self.retry_after_s}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": str(self),
            "reason": self.reason,
            "details": details,
            "code": self.code,
        }


@dataclass(frozen=True)
class Change:
    """One change of one object."""

    revision: int
    kind: str
    type: str
    object: Json
    # As it was before; None for one that is new.
    before: Json | None = None


class Objects:
    """Objects by resource, namespace and name; every change has a revision and is remembered."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.revision = 100
        self.compacted = 0
        self.changes: list[Change] = []
        self._by_kind: dict[str, dict[Key, Json]] = {}
        self._snapshots: dict[str, list[Json]] = {}
        self._copy: tuple[int, dict[str, dict[Key, Json]]] = (0, {})

    def all(self, kind: str) -> list[Json]:
        """Return the objects of a resource, in the order of their keys."""
        with self.changed:
            return [one for _, one in sorted(self._by_kind.get(kind, {}).items())]

    def get(self, kind: str, key: Key) -> Json:
        """Return an object. Raises RefusedError."""
        with self.changed:
            found = self._by_kind.get(kind, {}).get(key)
            if found is None:
                raise RefusedError(404, "NotFound", f'{kind} "{key[1]}" not found')
            return deepcopy(found)

    def create(self, kind: str, key: Key, one: Json) -> Json:
        """Take up a new object. Raises RefusedError."""
        with self.changed:
            if key in self._by_kind.setdefault(kind, {}):
                raise RefusedError(409, "AlreadyExists", f'{kind} "{key[1]}" already exists')
            one = deepcopy(one)
            metadata = one.setdefault("metadata", {})
            metadata |= {"name": key[1], "uid": str(uuid.uuid4())}
            metadata |= {"creationTimestamp": "2026-11-30T00:00:00Z"}
            if key[0]:
                metadata["namespace"] = key[0]
            return self._commit(kind, key, one, "ADDED")

    def seed(self, kind: str, key: Key, one: Json) -> None:
        """Take up an object that was there before anybody looked; for the sake of many."""
        with self.changed:
            self.revision += 1
            version = {"resourceVersion": str(self.revision), "uid": str(uuid.uuid4())}
            one["metadata"] |= version
            self._by_kind.setdefault(kind, {})[key] = one

    def replace(self, kind: str, key: Key, one: Json) -> Json:
        """Write an object that is there; one that is as it was is no change."""
        with self.changed:
            had = self._by_kind[kind][key]
            one["metadata"]["resourceVersion"] = had["metadata"]["resourceVersion"]
            return deepcopy(had) if one == had else self._commit(kind, key, one, "MODIFIED")

    def delete(self, kind: str, key: Key) -> Json:
        """Remove an object. Raises RefusedError."""
        with self.changed:
            one = self.get(kind, key)
            del self._by_kind[kind][key]
            return self._commit(kind, key, one, "DELETED")

    def compact(self) -> None:
        """Forget all that happened, and every list that is read in pages."""
        with self.changed:
            self.compacted, self.changes = self.revision, []
            self._snapshots.clear()

    def back_up(self) -> None:
        """Copy all objects as they are now."""
        with self.changed:
            self._copy = (self.revision, deepcopy(self._by_kind))

    def restore(self) -> None:
        """Go back to the copy; of what happened before it, nothing is remembered."""
        with self.changed:
            self.revision, self._by_kind = self._copy[0], deepcopy(self._copy[1])
            self.compact()

    def page(self, kind: str, limit: int, token: str, selected: "Selection") -> Json:
        """Return a page of a list, as it was when its first page was read. Raises RefusedError."""
        with self.changed:
            revision, start = self.revision, 0
            if token:
                told = json.loads(base64.urlsafe_b64decode(token))
                revision, start = told["rv"], told["start"]
                rows = self._snapshots.get(str(revision))
                if rows is None:
                    message = "The provided continue parameter is too old to display a list."
                    raise RefusedError(410, "Expired", message)
            else:
                rows = [one for one in self.all(kind) if selected.takes(one)]
            end = start + limit if limit else len(rows)
            metadata: Json = {"resourceVersion": str(revision)}
            if end < len(rows):
                self._snapshots[str(revision)] = rows
                while len(self._snapshots) > _SNAPSHOTS_MAX:
                    del self._snapshots[next(iter(self._snapshots))]
                following = json.dumps({"rv": revision, "start": end}).encode()
                metadata["continue"] = base64.urlsafe_b64encode(following).decode()
                metadata["remainingItemCount"] = len(rows) - end
            return {"metadata": metadata, "items": rows[start:end]}

    def since(self, kind: str, revision: int) -> Iterator[Change]:
        """Yield the changes of a resource after a revision. Raises RefusedError."""
        with self.changed:
            if revision < self.compacted:
                message = f"too old resource version: {revision} ({self.compacted})"
                raise RefusedError(410, "Expired", message)
            found = []
            for change in reversed(self.changes):
                if change.revision <= revision:
                    break
                found.append(change)
        return iter([change for change in reversed(found) if change.kind == kind])

    def _commit(self, kind: str, key: Key, one: Json, what: str) -> Json:
        self.revision += 1
        before = self._by_kind[kind].get(key) if what != "DELETED" else deepcopy(one)
        one["metadata"]["resourceVersion"] = str(self.revision)
        if what != "DELETED":
            self._by_kind[kind][key] = one
        self.changes.append(Change(self.revision, kind, what, deepcopy(one), before))
        self.changed.notify_all()
        return deepcopy(one)


@dataclass(frozen=True)
class Selection:
    """Label and field selector: equality and existence, which is all that the suite asks."""

    labels: str = ""
    fields: str = ""

    def takes(self, one: Json) -> bool:
        """Return whether an object is selected. Raises RefusedError for a wrong selector."""
        labels = one["metadata"].get("labels") or {}
        return all(self._holds(term, labels) for term in _terms(self.labels)) and all(
            _field(one, name) == value
            for name, _, value in (term.partition("=") for term in _terms(self.fields))
        )

    def check(self) -> None:
        """Raise RefusedError for a selector with a mistake."""
        self.takes({"metadata": {}})

    @staticmethod
    def _holds(term: str, labels: Json) -> bool:
        if any(sign in term for sign in "()<> "):
            message = f"unable to parse requirement: found '{term}'"
            raise RefusedError(400, "BadRequest", message)
        name, is_equal, value = term.partition("=")
        if name.endswith("!"):
            return labels.get(name[:-1]) != value
        if not is_equal:
            return term[1:] not in labels if term.startswith("!") else term in labels
        return labels.get(name) == value.removeprefix("=")


def _terms(selector: str) -> list[str]:
    return [term for term in selector.split(",") if term]


def _field(one: Json, path: str) -> object:
    value: Any = one
    for part in path.split("."):
        value = (value or {}).get(part)
    return value
