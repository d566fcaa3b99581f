"""Guard of the page: by which name, from where and by whom it is asked, before it is shown."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from everstep_cli.page.access import Access, Person
from everstep_cli.page.connection import SCOPE_KEY, PageConnection
from everstep_cli.page.doors import NOBODY, Doors, Peer

COOKIE = "everstep-session"
# Browsers take a cookie of this name only over TLS, for this host alone and for all its paths.
COOKIE_TLS = f"__Host-{COOKIE}"
SIGN_OUT = "/sign-out"
PERSON_KEY = "everstep.person"
_LOGIN = "/login"
_STATIC = "/static/"
# A look at them is recorded, and asks ranks: nothing that another site may have a browser do.
_OF_ONE_JOB = ("/output/", "/stacks/")
# Requests of one person at once: streams of events are among them.
_AT_ONCE_MAX = 16
# No script but the page's own file, no other site, no frame around it.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_OPEN_IT = "Open the address that 'everstep page' has printed: it lets you in once."
_templates = Environment(
    loader=PackageLoader("everstep_cli.page"), autoescape=True, undefined=StrictUndefined
)


def refusal(code: int, heading: str, sentence: str, again: str = "") -> Response:
    """Return a page that says why something is not shown; ``again`` is where to try once more."""
    page = _templates.get_template("refused.html.j2")
    shown = page.render(heading=heading, sentence=sentence, again=again)
    # Of a request that was refused no more is read: its body may be endless.
    return HTMLResponse(shown, code, {"connection": "close"})


def person_of(request: Request) -> Person:
    """Return who asks, as the guard has found out."""
    found: Person = request.scope[PERSON_KEY]
    return found


class SessionGuard:
    """Lets nobody in who is not known, and gives every answer the headers that keep it here."""

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        doors: Doors,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._app, self._access, self._doors, self._now_s = app, access, doors, now_s
        self._at_once: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            # It starts and ends; the server has no web sockets.
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                own = {name for name, _ in kept}
                others = [one for one in message["headers"] if one[0].lower() not in own]
                message["headers"] = [*others, *kept]
            await send(message)

        request = Request(scope)
        refused = self._refuse(request)
        # The path as it is routed by: the one in a URL begins where the header Host says it does.
        path = scope["path"]
        if refused is None and path != _LOGIN and not path.startswith(_STATIC):
            await self._answer_known(request, receive, sent)
            return
        await (refused or self._app)(scope, receive, sent)

    async def _answer_known(self, request: Request, receive: Receive, send: Send) -> None:
        person, connection = self._person(request), _connection(request.scope)
        if person is None:
            await self._unknown(request)(request.scope, receive, send)
            return
        if self._at_once[person.key] >= _AT_ONCE_MAX:
            sentence = f"{_AT_ONCE_MAX} pages are being loaded or followed already: close some."
            await refusal(429, "Too much at once", sentence)(request.scope, receive, send)
            return
        if connection is not None:
            connection.count_for(person.key)
            connection.end_unless(lambda: self._person(request) is not None)
        request.scope[PERSON_KEY] = person
        self._at_once[person.key] += 1
        try:
            await self._app(request.scope, receive, send)
        finally:
            self._at_once[person.key] -= 1
            self._at_once += Counter()  # without those that are at 0

    def _refuse(self, request: Request) -> Response | None:
        """Return what is wrong with a request, whoever makes it."""
        headers, path = request.headers, request.scope["path"]
        if not self._doors.is_known(headers.get("host", "")):
            return refusal(
                400,
                "Not by this name",
                "This page is not known by the name in the address: open it by the one that"
                " 'everstep page' has printed, or name this one there with --name.",
            )
        wanted = ("POST",) if path == SIGN_OUT else ("GET", "HEAD")
        if request.method not in wanted:
            return refusal(405, "Nothing is changed here", "This page only shows.")
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            return refusal(400, "Nothing is sent here", "A request to this page has no body.")
        if not _is_asked_by_itself(headers, path):
            return refusal(403, "Not from another site", "Open the page itself.", _again(request))
        return None

    def _person(self, request: Request) -> Person | None:
        peer = _peer(request.scope)
        if self._now_s() > peer.until_s:
            return None
        if peer.is_proxy:
            return self._doors.named_by_proxy(request.scope["headers"])
        return peer.person or self._access.person(session_of(request, self._doors))

    def _unknown(self, request: Request) -> Response:
        if _peer(request.scope).is_proxy:
            sentence = f"The proxy does not say once, in {self._doors.user_header}, who you are."
            return refusal(401, "Who are you?", sentence)
        # A browser keeps the cookie back where a link of another site leads here.
        elsewhere = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        again = _again(request) if elsewhere else ""
        return refusal(401, "Who are you?", _OPEN_IT, again)


def session_of(request: Request, doors: Doors) -> str:
    """Return the session that a browser shows; "" for none."""
    return request.cookies.get(cookie_name(doors), "")


def cookie_name(doors: Doors) -> str:
    """Return the name of the cookie: with TLS it is one that browsers guard."""
    return COOKIE_TLS if doors.has_tls else COOKIE


def _is_asked_by_itself(headers: Mapping[str, str], path: str) -> bool:
    """Return whether the page itself, or a person, asks, and no site that a browser shows."""
    if headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return True
    opened = headers.get("sec-fetch-mode") == "navigate"
    whole = headers.get("sec-fetch-dest") == "document"
    return opened and whole and path != SIGN_OUT and not path.startswith(_OF_ONE_JOB)


def _again(request: Request) -> str:
    """Return the same address, as one that cannot lead to another site."""
    if request.method != "GET":
        return ""
    path = "/" + request.scope["raw_path"].decode("latin-1").lstrip("/\\")
    return f"{path}?{request.url.query}" if request.url.query else path


def _connection(scope: Scope) -> PageConnection | None:
    found: Any = scope.get(SCOPE_KEY)
    return found if isinstance(found, PageConnection) else None


def _peer(scope: Scope) -> Peer:
    connection = _connection(scope)
    return NOBODY if connection is None else connection.peer
