"""Application of the page: its addresses, who may open them, and what each shows."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from datetime import UTC, datetime
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from everstep_cli.client.admin import AdminError, NameNotFoundError
from everstep_cli.page.access import Access
from everstep_cli.page.doors import Doors
from everstep_cli.page.guard import SIGN_OUT, SessionGuard
from everstep_cli.page.live import Live, TooManyViewersError
from everstep_cli.page.ranks import RankPages
from everstep_cli.page.sessions import SessionPages
from everstep_cli.page.source import Source
from everstep_cli.page.tiles import STATES, by_domain
from everstep_cli.report import amounts, bars, svg, timeline, waterfall
from everstep_cli.report.account import IncidentAccount
from everstep_cli.report.from_admin import account_of_job
from everstep_cli.views import formatting

_EVENTS = 50
_INCIDENTS = 100


class Pages:
    """What each address shows."""

    def __init__(self, source: Source) -> None:
        self._source = source
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
        nodes, jobs = await asyncio.gather(self._source.nodes(), self._source.jobs())
        return self.shown(
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
        return self.shown(
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
        return self.shown(
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
        return self.shown(
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

    def shown(self, template: str, **values: object) -> Response:
        """Return a page of a template."""
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
    source: Source, access: Access, doors: Doors, used: Callable[[], None] = lambda: None
) -> Starlette:
    """Return the application; ``used`` is told that an address has let somebody in."""
    pages = Pages(source)
    ranks, sessions = (
        RankPages(source, pages.shown),
        SessionPages(access, doors, used, pages.shown),
    )
    static = resources.files("everstep_cli.page").joinpath("static")
    failed: Callable[[Request, Exception], Awaitable[Response]] = pages.failed
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
            Mount("/static", StaticFiles(directory=str(static)), name="static"),
        ],
        middleware=[
            Middleware(SessionGuard, access=access, doors=doors),
        ],
        exception_handlers={AdminError: failed},
    )
