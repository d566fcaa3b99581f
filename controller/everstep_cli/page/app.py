"""Application of the page: its addresses, who may open them, and what each shows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from everstep_cli.client.admin import AdminError, NameNotFoundError
from everstep_cli.page.access import SESSION_S, Access
from everstep_cli.page.live import Live, TooManyViewersError
from everstep_cli.page.source import Source
from everstep_cli.page.tiles import STATES, by_domain
from everstep_cli.report import amounts, bars, svg, timeline, waterfall
from everstep_cli.report.account import IncidentAccount
from everstep_cli.report.from_admin import account_of_job
from everstep_cli.views import formatting

COOKIE = "everstep-session"
_OPEN_TO_ALL = ("/login", "/static/")
# No script but the page's own file, no other site, no frame around it.
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
_EVENTS = 50
_INCIDENTS = 100


class SessionGuard:
    """Lets nobody in without a session, and gives every answer the headers that keep it here."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sent(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
            if message["type"] == "http.response.start":
                kept = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *kept]
            await send(message)

        request = Request(scope)
        answer: ASGIApp = self._app
        if request.method not in ("GET", "HEAD"):
            answer = PlainTextResponse("this page changes nothing\n", 405)
        elif not request.url.path.startswith(_OPEN_TO_ALL) and not self._access.has_session(
            request.cookies.get(COOKIE, "")
        ):
            answer = PlainTextResponse(
                "Open the address that 'everstep page' has printed: it lets you in once.\n", 401
            )
        await answer(scope, receive, sent)


class Pages:
    """What each address shows."""

    def __init__(self, source: Source, access: Access, used: Callable[[], None]) -> None:
        self._source, self._access, self._used = source, access, used
        self._live = Live(source)
        self._templates = Environment(
            loader=PackageLoader("everstep_cli.page"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "moment": amounts.moment,
            "span": amounts.span,
            "size": formatting.size,
            "printable": lambda text: text.translate(svg.CONTROLS),
        }

    async def login(self, request: Request) -> Response:
        """Open a session with a token."""
        session = self._access.open_session(request.query_params.get("token", ""))
        if session is None:
            return PlainTextResponse(
                "This address was used already, or is too old: 'everstep page' prints a new one.\n",
                403,
            )
        self._used()
        answer = RedirectResponse("/", 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(
            COOKIE, session, int(SESSION_S), httponly=True, samesite="strict", secure=secure
        )
        return answer

    async def fleet(self, request: Request) -> Response:
        """Show all nodes, by failure domain, and all jobs."""
        nodes, jobs = await asyncio.gather(self._source.nodes(), self._source.jobs())
        return self._shown(
            "fleet.html.j2",
            domains=by_domain(nodes.nodes),
            summary=nodes.summary,
            halted=nodes.halted,
            drivers_paused=nodes.drivers_paused,
            jobs=jobs.jobs,
            states=STATES,
        )

    async def node(self, request: Request) -> Response:
        """Show a node: its devices, findings and what was decided."""
        name = request.path_params["name"]
        detail, why, events = await asyncio.gather(
            self._source.node(name), self._source.why(name), self._source.events(name, _EVENTS)
        )
        return self._shown(
            "node.html.j2", detail=detail, node=detail.summary, why=why, events=events
        )

    async def job(self, request: Request) -> Response:
        """Show a job: where its time went, when what happened, and who holds it back."""
        name = request.path_params["name"]
        detail, ledger, why, events = await asyncio.gather(
            self._source.job(name),
            self._source.ledger(name),
            self._source.why(name),
            self._source.events(name, _EVENTS),
        )
        account = account_of_job(ledger, detail, events)
        return self._shown(
            "job.html.j2",
            detail=detail,
            job=detail.summary,
            ledger=ledger,
            why=why,
            events=events,
            waterfall=Markup(waterfall.waterfall(account)),
            timeline=Markup(timeline.timeline(account)),
            incidents=sorted(account.incidents, key=lambda one: -one.onset_ns)[:_INCIDENTS],
        )

    async def incident(self, request: Request) -> Response:
        """Show an incident: its sentence, its seconds by stage, its evidence."""
        name = request.path_params["name"]
        listed = await self._source.incidents()
        found = next((one for one in listed.incidents if one.incident == name), None)
        if found is None:
            raise NameNotFoundError(f"no incident {name!r} is listed; older ones are in reports")
        # Its id begins with the job's: "train-3.7".
        job = await self._source.job(
            found.subjects[0] if found.subjects else name.rpartition(".")[0]
        )
        ledger = await self._source.ledger(job.summary.job)
        shown = [one for one in account_of_job(ledger, job, []).incidents if one.id == name]
        return self._shown(
            "incident.html.j2",
            incident=found,
            job=job.summary,
            stages=Markup(bars.incident_bars(shown)),
            legend=Markup(_legend(shown)),
            account=shown[0] if shown else None,
        )

    async def why(self, request: Request) -> Response:
        """Lead to the node or job that was searched for."""
        name = request.query_params.get("q", "").strip()
        if not name:
            return RedirectResponse("/", 303)
        found = await self._source.why(name)
        return RedirectResponse(request.url_for(found.kind or "node", name=name).path, 303)

    async def live(self, request: Request) -> Response:
        """Tell a browser of changes for as long as it reads them."""
        changes = self._live.changes()
        try:
            first = await anext(changes)
        except TooManyViewersError:
            return PlainTextResponse("as many browsers as may are told of changes\n", 503)

        async def told() -> AsyncIterator[dict[str, str]]:
            # Who goes away makes room for another at once.
            async with aclosing(changes):
                yield {"data": first}
                async for change in changes:
                    yield {"data": change}

        return EventSourceResponse(told(), ping=15)

    def _shown(self, template: str, **values: object) -> Response:
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        return HTMLResponse(self._templates.get_template(template).render(now=now, **values))

    async def failed(self, request: Request, error: Exception) -> Response:
        """Say in a sentence what the controller did not answer."""
        missing = isinstance(error, NameNotFoundError)
        page = self._templates.get_template("error.html.j2")
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        return HTMLResponse(page.render(now=now, sentence=str(error)), 404 if missing else 502)


def _legend(incidents: Iterable[IncidentAccount]) -> str:
    names = dict.fromkeys(stage.name for one in incidents for stage in one.stages)
    return svg.legend([(name, bars.stage_fill(name)) for name in names], 960)


def application(
    source: Source, access: Access, hosts: Iterable[str], used: Callable[[], None] = lambda: None
) -> Starlette:
    """Return the application; ``hosts`` are the names by which it may be asked for."""
    pages = Pages(source, access, used)
    static = resources.files("everstep_cli.page").joinpath("static")
    failed: Callable[[Request, Exception], Awaitable[Response]] = pages.failed
    return Starlette(
        routes=[
            Route("/", pages.fleet, name="fleet"),
            Route("/login", pages.login),
            Route("/node/{name:path}", pages.node, name="node"),
            Route("/job/{name:path}", pages.job, name="job"),
            Route("/incident/{name:path}", pages.incident, name="incident"),
            Route("/why", pages.why),
            Route("/live", pages.live),
            Mount("/static", StaticFiles(directory=str(static)), name="static"),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            Middleware(SessionGuard, access=access),
        ],
        exception_handlers={AdminError: failed},
    )
