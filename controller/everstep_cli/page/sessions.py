"""Sessions of the page: an address opens one, and its holder, or time, ends it."""

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from everstep_cli.page.access import SESSION_S, Access
from everstep_cli.page.doors import Doors
from everstep_cli.page.guard import cookie_name, person_of, refusal, session_of
from everstep_cli.page.ranks import Shown
from everstep_cli.report import amounts


class SessionPages:
    """What opens a session, tells of it, and ends it."""

    def __init__(
        self, access: Access, doors: Doors, used: Callable[[], None], shown: Shown
    ) -> None:
        self._access, self._doors, self._used, self._shown = access, doors, used, shown

    async def login(self, request: Request) -> Response:
        """Open a session with a token."""
        if request.method == "HEAD" or "prefetch" in request.headers.get("sec-purpose", ""):
            # A program that looks at links must not use up somebody's only way in.
            return refusal(403, "Open it in a browser", "This address lets one person in, once.")
        session = self._access.open_session(request.query_params.get("token", ""))
        if session is None:
            return refusal(
                403,
                "Used or too old",
                "This address was used already, or is too old: 'everstep page' prints a new one.",
            )
        self._access.end_session(session_of(request, self._doors))
        self._used()
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            cookie_name(self._doors),
            session,
            int(SESSION_S),
            httponly=True,
            samesite="strict",
            secure=self._doors.has_tls,
        )
        return answer

    async def session(self, request: Request) -> Response:
        """Say who somebody is here, and how to end it."""
        left_s = self._access.left_s(session_of(request, self._doors))
        person = person_of(request)
        can_end = person.key.startswith("session ")
        way = (
            f"By a session that ends in {amounts.span(left_s)}."
            if can_end
            else "By your certificate, or by what the proxy says: the way out is there."
        )
        values = {"told": person.told, "way": way, "can_end": can_end}
        return self._shown("session.html.j2", values)

    async def sign_out(self, request: Request) -> Response:
        """End a session; streams that follow with it end too."""
        self._access.end_session(session_of(request, self._doors))
        answer = refusal(
            200, "Signed out", "'everstep page' prints the address of the next session."
        )
        answer.delete_cookie(
            cookie_name(self._doors), secure=self._doors.has_tls, httponly=True, samesite="strict"
        )
        return answer
