"""Fake API server over HTTP: routes, rights, lists and watches, and faults that a test asks for."""

import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from fakes.kubernetes.objects import Change, Json, Key, Objects, RefusedError, Selection
from fakes.kubernetes.pod_tokens import PodTokens
from fakes.kubernetes.rules import Rules
from fakes.kubernetes.writes import APPLY, MERGE, applied, applied_data, check_node, patched

ADMIN_TOKEN = "admintoken"
DRIVER_TOKEN = "everstep-token"
DRIVER_USER = "system:serviceaccount:everstep:everstep-controller"
_VERBS = {"POST": "create", "PATCH": "patch", "DELETE": "delete", "PUT": "update"}
_TICK_S = 0.05


@dataclass
class Fault:
    """What goes wrong with the next requests of a kind."""

    verb: str
    resource: str
    times: int = 1
    # Of an object with this name alone.
    name: str = ""
    code: int = 0
    retry_after_s: int = 0
    # Sent as it is instead of an answer; "half": the right answer, cut in its middle.
    body: bytes = b""
    half: bool = False
    # How long nothing comes before the answer does.
    hang_s: float = 0.0
    # Done before the request is answered: somebody else comes first.
    first: Callable[[], None] | None = None


@dataclass(frozen=True)
class Target:
    """What a request is about, in words of RBAC."""

    verb: str
    resource: str
    group: str
    namespace: str
    name: str
    subresource: str

    @property
    def right(self) -> str:
        """Return the resource as a rule names it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def kind(self) -> str:
        """Return under what its objects are stored."""
        return f"{self.group}/{self.resource}" if self.group else self.resource

    @property
    def key(self) -> Key:
        """Return the key of its object."""
        return (self.namespace, self.name)


@dataclass
class FakeApiServer:
    """A fake API server on a free port of loopback, from ``start`` to ``stop``."""

    objects: Objects = field(default_factory=Objects)
    tokens: dict[str, str] = field(
        default_factory=lambda: {ADMIN_TOKEN: "admin", DRIVER_TOKEN: DRIVER_USER}
    )
    faults: list[Fault] = field(default_factory=list)
    requests: list[Target] = field(default_factory=list)
    bookmark_s: float = 60.0
    port: int = 0

    def __post_init__(self) -> None:
        self.rules = Rules(self.objects, frozenset({"admin"}))
        self.pod_tokens = PodTokens(self.objects)
        self._server: _Server | None = None

    def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen, at the same port as before where there was one."""
        self._server = _Server(("127.0.0.1", self.port), _Handler)
        self._server.fake = self
        self.port = self._server.server_address[1]
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Cut all connections, and listen no more; what it has stored stays."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.cut()
            server.server_close()

    def take_fault(self, target: Target) -> Fault | None:
        """Return what is to go wrong with a request."""
        for one in self.faults:
            is_meant = (one.verb, one.resource) == (target.verb, target.right)
            if one.times and is_meant and one.name in ("", target.name):
                one.times -= 1
                return one
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    fake: FakeApiServer

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.is_cut = False
        self._open: set[object] = set()

    def cut(self) -> None:
        """End every connection in the middle of what it does."""
        self.is_cut = True
        for one in list(self._open):
            with suppress(OSError):
                one.shutdown(2)  # type: ignore[attr-defined]

    def process_request(self, request: object, client_address: object) -> None:
        self._open.add(request)
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def shutdown_request(self, request: object) -> None:
        self._open.discard(request)
        super().shutdown_request(request)  # type: ignore[arg-type]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections that their clients cut."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names of http.server

    # ---------------------------------------------------------------------------------------------

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        self._params = {key: values[-1] for key, values in parse_qs(url.query).items()}
        fake, fault = self.server.fake, None
        try:
            user = self._user()
            target = self._target(unquote(url.path))
            fake.requests.append(target)
            fake.rules.check(user, target.verb, target.right, target.group, target.namespace)
            fault = fake.take_fault(target)
            if fault is not None and self._go_wrong(fault):
                return
            if target.verb == "watch":
                self._watch(target)
                return
            code, answer = self._carry_out(target, json.loads(body) if body else {}, user)
        except RefusedError as error:
            code, answer = error.code, error.status()
            self._send(code, answer, error.retry_after_s)
            return
        self._send(code, answer, cut=fault is not None and fault.half)

    def _user(self) -> str:
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        user = self.server.fake.tokens.get(token)
        if user is None:
            raise RefusedError(401, "Unauthorized", "Unauthorized")
        return user

    def _target(self, path: str) -> Target:
        parts = path.strip("/").split("/")
        group = ""
        if parts[0] == "apis":
            group, parts = parts[1], parts[3:]
        else:
            parts = parts[2:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        resource, name, subresource = (*parts, "", "")[:3]
        verb = _VERBS.get(self.command, "get" if name else "list")
        if verb == "list" and self._params.get("watch") == "true":
            verb = "watch"
        return Target(verb, resource, group, namespace, name, subresource)

    def _carry_out(self, target: Target, body: Json, user: str) -> tuple[int, Json]:
        objects = self.server.fake.objects
        if (answer := self._question(target, body, user)) is not None:
            return 201, answer
        if target.verb == "list":
            return 200, self._list(target)
        if target.verb in ("get", "delete"):
            carry_out = objects.get if target.verb == "get" else objects.delete
            return 200, carry_out(target.kind, target.key)
        if target.verb == "patch":
            return 200, self._patch(target, body)
        if target.verb != "create":
            raise RefusedError(405, "MethodNotAllowed", "this fake has no such verb")
        if target.kind == "nodes":
            check_node(body)
        return 201, objects.create(target.kind, (target.namespace, body["metadata"]["name"]), body)

    def _question(self, target: Target, body: Json, user: str) -> Json | None:
        """Answer a request that stores nothing under its own name; None for another."""
        tokens = self.server.fake.pod_tokens
        if target.resource == "selfsubjectaccessreviews":
            return self._review(body, user)
        if target.resource == "tokenreviews":
            return tokens.review(body)
        if target.right == "serviceaccounts/token":
            return tokens.make(target.key, body)
        if target.subresource == "eviction":
            return self._evict(target, body)
        return None

    def _list(self, target: Target) -> Json:
        selection = self._selection()
        selection.check()
        limit, token = int(self._params.get("limit", 0)), self._params.get("continue", "")
        page = self.server.fake.objects.page(target.kind, limit, token, selection)
        return {"kind": "List", "apiVersion": "v1", **page}

    def _selection(self) -> Selection:
        return Selection(
            self._params.get("labelSelector", ""), self._params.get("fieldSelector", "")
        )

    def _patch(self, target: Target, body: Json) -> Json:
        objects, content = self.server.fake.objects, self.headers.get("Content-Type")
        with objects.changed:
            had = objects.get(target.kind, target.key)
            if content == APPLY:
                manager = self._params.get("fieldManager", "")
                if not manager:
                    raise RefusedError(
                        400, "BadRequest", "fieldManager is required for apply patch"
                    )
                force = self._params.get("force") == "true"
                if target.kind == "configmaps":
                    return objects.replace(target.kind, target.key, applied_data(had, body))
                new = applied(had, body, manager, target.subresource, force=force)
            elif content == MERGE:
                new = patched(had, body, target.kind, target.subresource)
            else:
                raise RefusedError(415, "UnsupportedMediaType", f"no patch: {content}")
            return objects.replace(target.kind, target.key, new)

    def _review(self, body: Json, user: str) -> Json:
        asked = body["spec"]["resourceAttributes"]
        resource = asked["resource"]
        if asked.get("subresource"):
            resource = f"{resource}/{asked['subresource']}"
        allowed = self.server.fake.rules.allow(
            user, asked["verb"], resource, asked.get("group", ""), asked.get("namespace", "")
        )
        return body | {"status": {"allowed": allowed}}

    def _evict(self, target: Target, body: Json) -> Json:
        """Evict a pod, unless a disruption budget forbids it."""
        objects = self.server.fake.objects
        with objects.changed:
            pod = objects.get("pods", target.key)
            wanted = (body.get("deleteOptions") or {}).get("preconditions", {}).get("uid")
            if wanted not in (None, pod["metadata"]["uid"]):
                raise RefusedError(409, "Conflict", "the UID in the precondition differs")
            labels = pod["metadata"].get("labels") or {}
            for budget in objects.all("policy/poddisruptionbudgets"):
                if not budget["spec"]["selector"]["matchLabels"].items() <= labels.items():
                    continue
                left = budget.get("status", {}).get("disruptionsAllowed", 0)
                if left <= 0:
                    message = "Cannot evict pod as it would violate the pod's disruption budget."
                    raise RefusedError(429, "TooManyRequests", message, retry_after_s=1)
                budget = deepcopy(budget)
                budget["status"]["disruptionsAllowed"] = left - 1
                key = (target.namespace, budget["metadata"]["name"])
                objects.replace("policy/poddisruptionbudgets", key, budget)
            objects.delete("pods", target.key)
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }

    # --- what goes out ---------------------------------------------------------------------------

    def _go_wrong(self, fault: Fault) -> bool:
        """Do what a test has asked for; return whether that was the answer."""
        if fault.first is not None:
            fault.first()
        time.sleep(fault.hang_s)
        if fault.code:
            reason = "TooManyRequests" if fault.code == 429 else "InternalError"
            raise RefusedError(fault.code, reason, "a fault of the test", fault.retry_after_s)
        if fault.body:
            self.send_response(200)
            self.send_header("Content-Length", str(len(fault.body)))
            self.end_headers()
            self.wfile.write(fault.body)
            return True
        return False

    def _send(self, code: int, answer: Json, retry_after_s: int = 0, *, cut: bool = False) -> None:
        body = json.dumps(answer, separators=(",", ":")).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if retry_after_s:
            self.send_header("Retry-After", str(retry_after_s))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.close_connection = self.close_connection or cut

    def _watch(self, target: Target) -> None:
        """Send what changes, as lines, until the time that was asked for is over."""
        objects = self.server.fake.objects
        selection = self._selection()
        end = time.monotonic() + float(self._params.get("timeoutSeconds", 1800))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        revision = int(self._params.get("resourceVersion") or objects.revision)
        marked = time.monotonic()
        while not self.server.is_cut and time.monotonic() < end:
            try:
                found, reached = self._news(target.kind, revision)
            except RefusedError as error:
                self._event("ERROR", error.status())
                break
            for change in found:
                what = _seen(change, selection)
                if what:
                    self._event(what, change.object)
            revision, marked = reached, self._mark(reached, marked)
            self.wfile.flush()
        if not self.server.is_cut:
            self.wfile.write(b"0\r\n\r\n")

    def _news(self, kind: str, revision: int) -> tuple[list[Change], int]:
        """Return what has changed since, and up to where; wait a moment where nothing has."""
        objects = self.server.fake.objects
        with objects.changed:
            found = list(objects.since(kind, revision))
            reached = objects.revision
            if not found:
                objects.changed.wait(_TICK_S)
        return found, reached

    def _mark(self, revision: int, marked: float) -> float:
        """Send a bookmark where one is due; return when the last one was sent."""
        is_due = time.monotonic() - marked >= self.server.fake.bookmark_s
        if not is_due or self._params.get("allowWatchBookmarks") != "true":
            return marked
        at: Json = {"metadata": {"resourceVersion": str(revision)}}
        self._event("BOOKMARK", {"kind": "Node", "apiVersion": "v1", **at})
        return time.monotonic()

    def _event(self, kind: str, one: Json) -> None:
        line = json.dumps({"type": kind, "object": one}, separators=(",", ":")).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def _seen(change: Change, selection: Selection) -> str:
    """Return what a change is to a watch with this selection; empty for nothing."""
    had = change.before is not None and selection.takes(change.before)
    has = change.type != "DELETED" and selection.takes(change.object)
    return {(False, True): "ADDED", (True, True): "MODIFIED", (True, False): "DELETED"}.get(
        (had, has), ""
    )
