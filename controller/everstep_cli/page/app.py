"""Application of the page: its addresses, who may open them, and what each shows."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from everstep_cli.client.admin import AdminError, NameNotFoundError
from everstep_cli.page import contents
from everstep_cli.page.access import Access
from everstep_cli.page.doors import Doors
from everstep_cli.page.guard import SIGN_OUT, SessionGuard
from everstep_cli.page.live import Live, TooManyViewersError
from everstep_cli.page.ranks import RankPages
from everstep_cli.page.sessions import SessionPages
from everstep_cli.page.source import Source
from everstep_cli.report import amounts, svg
from everstep_cli.views import formatting

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PageOptions:
    """What somebody chooses about the page."""

    # Address of Grafana; "": there are no links to it.
    grafana: str = ""
    # A browser that reads nothing for so long is told nothing more.
    unread_s: float = 30.0


class _Events(EventSourceResponse):
    """Events to a browser; one that does not read them is told nothing more."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            await super().__call__(scope, receive, send)
        except* SendTimeoutError:
            logger.info("a browser does not read what it is told, and makes room for another")


class Pages:
    """What each address shows."""

    def __init__(self, source: Source, options: PageOptions) -> None:
        self._source = source
        self._grafana, self._unread_s = options.grafana, options.unread_s
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

    async def fleet(self, request: Request) -> Response:
        """Show all nodes, by failure domain, and all jobs."""
        return self.shown("fleet.html.j2", await contents.fleet(self._source, self._grafana))

    async def node(self, request: Request) -> Response:
        """Show a node: its devices, findings and what was decided."""
        name = request.path_params["name"]
        return self.shown("node.html.j2", await contents.node(self._source, self._grafana, name))

    async def job(self, request: Request) -> Response:
        """Show a job: where its time went, when what happened, and who holds it back."""
        name = request.path_params["name"]
        return self.shown("job.html.j2", await contents.job(self._source, self._grafana, name))

    async def incident(self, request: Request) -> Response:
        """Show an incident: its sentence, its seconds by stage, its evidence."""
        name = request.path_params["name"]
        return self.shown("incident.html.j2", await contents.incident(self._source, name))

    async def why(self, request: Request) -> Response:
        """Lead to the node, job or incident that was searched for."""
        name = request.query_params.get("q", "").strip()
        if not name:
            return RedirectResponse("/", 303)
        kind = await contents.kind_of(self._source, name)
        return RedirectResponse(request.url_for(kind, name=name).path, 303)

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

        return _Events(told(), ping=15, send_timeout=self._unread_s)

    def shown(self, template: str, values: Mapping[str, object]) -> Response:
        """Return a page of a template."""
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        return HTMLResponse(self._templates.get_template(template).render(values, now=now))

    async def failed(self, request: Request, error: Exception) -> Response:
        """Say in a sentence what the controller did not answer."""
        missing = isinstance(error, NameNotFoundError)
        page = self._templates.get_template("error.html.j2")
        now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
        return HTMLResponse(page.render(now=now, sentence=str(error)), 404 if missing else 502)


def _files() -> StaticFiles:
    """Return the files of the page, and the styles that it has in common with reports."""
    static = resources.files("everstep_cli.page").joinpath("static")
    return StaticFiles(directory=str(static), packages=[("everstep_cli.report", "styles")])


def application(
    source: Source,
    access: Access,
    doors: Doors,
    used: Callable[[], None] = lambda: None,
    options: PageOptions = PageOptions(),
) -> Starlette:
    """Return the application; ``used`` is told that an address has let somebody in."""
    pages = Pages(source, options)
    ranks = RankPages(source, pages.shown)
    sessions = SessionPages(access, doors, used, pages.shown)
    failed: Callable[[Request, Exception], Awaitable[Response]] = pages.failed

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        source.read_ahead()
        yield

    return Starlette(
        routes=[
            Route("/", pages.fleet, name="fleet"),
            Route("/login", sessions.login),
            Route("/session", sessions.session),
            Route(SIGN_OUT, sessions.sign_out, methods=["POST"]),
            Route("/output/{name:path}", ranks.output, name="output"),
            Route("/stacks/{name:path}", ranks.stacks, name="stacks"),
            Route("/node/{name:path}", pages.node, name="node"),
            Route("/job/{name:path}", pages.job, name="job"),
            Route("/incident/{name:path}", pages.incident, name="incident"),
            Route("/why", pages.why),
            Route("/live", pages.live),
            Mount("/static", _files(), name="static"),
        ],
        middleware=[
            Middleware(SessionGuard, access=access, doors=doors),
        ],
        exception_handlers={AdminError: failed},
        lifespan=lifespan,
    )
