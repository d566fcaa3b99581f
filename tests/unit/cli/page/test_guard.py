"""What a hostile site, or a user of the same machine, tries on the page, and is answered."""

import secrets
from collections.abc import Mapping

import pytest
from starlette.testclient import TestClient

from everstep_cli.client.admin import DeniedError
from everstep_cli.page.access import SESSION_S, Access
from everstep_cli.page.app import application
from everstep_cli.page.doors import Doors
from everstep_cli.page.guard import COOKIE, COOKIE_TLS
from everstep_cli.page.source import Source
from everstep_proto.tls import Role
from fakes.cli_admin import FakeAdmin

_IMAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
_LINK = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}
_FRAME = {**_LINK, "sec-fetch-dest": "iframe"}
# A page of another user's server on the same machine: another port is the same site.
_NEIGHBOUR = {**_IMAGE, "sec-fetch-site": "same-site"}


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class _Page:
    def __init__(self, admin: FakeAdmin | None = None, doors: Doors | None = None) -> None:
        self.clock = _Clock()
        self.access = Access(self.clock, secrets.token_urlsafe)
        self.app = application(
            Source(admin or FakeAdmin()), self.access, doors or Doors(listen="127.0.0.1:0")
        )
        self.browser = self.new_browser()

    def new_browser(self) -> TestClient:
        return TestClient(self.app, base_url="http://127.0.0.1", follow_redirects=False)

    def log_in(self, role: Role = Role.VIEWER) -> "_Page":
        token = self.access.new_token(role)
        assert self.browser.get("/login", params={"token": token}).status_code == 303
        return self

    def code(self, path: str, headers: Mapping[str, str] | None = None) -> int:
        return self.browser.get(path, headers=headers).status_code


def test_a_session_that_somebody_else_has_chosen_is_none() -> None:
    page = _Page()
    page.browser.cookies.set(COOKIE, "chosen", domain="127.0.0.1")
    page.log_in()
    assert page.browser.cookies[COOKIE] != "chosen"
    attacker = page.new_browser()
    attacker.cookies.set(COOKIE, "chosen")
    assert attacker.get("/").status_code == 401


def test_who_lets_oneself_in_again_has_no_second_session() -> None:
    page = _Page().log_in()
    before = page.browser.cookies[COOKIE]
    page.log_in()
    assert not page.access.has_session(before)
    assert page.access.has_session(page.browser.cookies[COOKIE])


@pytest.mark.parametrize(
    ("method", "headers"),
    [("HEAD", {}), ("GET", {"sec-purpose": "prefetch;prerender"})],
)
def test_a_program_that_looks_at_links_does_not_use_up_the_address(
    method: str, headers: dict[str, str]
) -> None:
    page = _Page()
    token = page.access.new_token()
    looked = page.browser.request(method, "/login", params={"token": token}, headers=headers)
    assert looked.status_code == 403
    assert "set-cookie" not in looked.headers
    assert page.browser.get("/login", params={"token": token}).status_code == 303


@pytest.mark.parametrize(
    "host", ["127.0.0.1:80/static/?", "127.0.0.1/login?", "127.0.0.1:80@x/static/", "localhost#"]
)
def test_no_name_in_a_request_leads_past_the_question_who_asks(host: str) -> None:
    assert _Page().code("/job/demo", {"host": host}) == 400


@pytest.mark.parametrize(
    "path",
    [
        "/static/../job/demo",
        "/static/%2e%2e/job/demo",
        "/static/..%2f..%2f..%2fapp.py",
        "/static/....//app.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/page.css%00",
        "/login/../job/demo",
        "/loginx",
        "//job/demo",
        "/.//job/demo",
        "/STATIC/page.css",
    ],
)
def test_no_path_leads_out_of_the_folder_or_past_the_session(path: str) -> None:
    assert _Page().code(path) in (401, 404)


@pytest.mark.parametrize("headers", [_IMAGE, _FRAME, _NEIGHBOUR])
def test_another_site_cannot_have_a_browser_ask(headers: dict[str, str]) -> None:
    page = _Page().log_in(Role.OPERATOR)
    for path in ("/", "/live", "/job/demo", "/stacks/demo"):
        assert page.code(path, headers) == 403


def test_a_link_of_another_site_opens_the_page_and_looks_at_no_rank() -> None:
    page = _Page().log_in(Role.OPERATOR)
    assert page.code("/job/demo", _LINK) == 200
    for path in ("/stacks/demo", "/output/demo"):
        answer = page.browser.get(path, headers=_LINK)
        assert answer.status_code == 403
        assert f'<a href="{path}">' in answer.text


def test_where_a_browser_keeps_the_cookie_back_the_way_on_is_a_link_here() -> None:
    answer = _Page().browser.get("http://127.0.0.1//evil.example/job/x?a=%22%3E", headers=_LINK)
    assert answer.status_code == 401
    assert '<a href="/evil.example/job/x?a=%22%3E">' in answer.text
    assert "<a " not in _Page().browser.get("/job/demo").text


@pytest.mark.parametrize("headers", [{"content-length": "5"}, {"transfer-encoding": "chunked"}])
def test_a_body_is_refused_unread(headers: dict[str, str]) -> None:
    page = _Page().log_in()
    answer = page.browser.request("GET", "/", headers=headers, content=b"")
    assert answer.status_code == 400
    assert answer.headers["connection"] == "close"


def test_signing_out_ends_the_session_and_another_site_cannot_do_it() -> None:
    page = _Page().log_in()
    session = page.browser.cookies[COOKIE]
    assert "sign out" in page.browser.get("/session").text
    assert page.browser.get("/sign-out").status_code == 405
    assert page.browser.post("/sign-out", headers=_LINK).status_code == 403
    assert page.access.has_session(session)
    assert page.browser.post("/sign-out").status_code == 200
    assert not page.access.has_session(session)
    assert page.code("/") == 401


def test_a_session_is_over_after_its_time() -> None:
    page = _Page().log_in()
    page.clock.now_s = SESSION_S + 1
    assert page.code("/") == 401


def test_over_tls_browsers_guard_the_cookie() -> None:
    doors = Doors(listen="127.0.0.1:0", certificate="page.pem", key="page.key")
    page = _Page(doors=doors)
    answer = page.browser.get("/login", params={"token": page.access.new_token()})
    told = answer.headers["set-cookie"]
    assert told.startswith(COOKIE_TLS)
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= set(told.split("; "))
    assert "Domain" not in told


def test_output_and_stacks_are_asked_for_in_the_name_of_who_looks() -> None:
    admin = FakeAdmin()
    _Page(admin).log_in(Role.OPERATOR).code("/output/demo?rank=3")
    page = _Page(admin).log_in()
    assert page.code("/output/demo") == 200
    assert page.code("/stacks/demo") == 200
    told = [(asked.asked_for.name, asked.asked_for.role) for asked in admin.asked_for_people]
    assert told == [("", "operator"), ("", "viewer"), ("", "viewer")]
    assert page.code("/output/demo?rank=-1") == 400
    assert page.code("/output/demo?rank=99999999999999999999") == 400


def test_who_is_not_the_owner_is_told_so_and_not_what_to_type() -> None:
    denied = DeniedError("…; ask again with --tls-ca", "eve is viewer, and demo is another user's")
    answer = _Page(FakeAdmin(trouble=denied)).log_in().browser.get("/output/demo")
    assert answer.status_code == 403
    assert "demo is another user" in answer.text
    assert "tls-ca" not in answer.text


def test_the_page_of_a_job_leads_to_what_is_its_users() -> None:
    told = _Page().log_in().browser.get("/job/demo").text
    assert 'href="/output/demo"' in told
    assert 'href="/stacks/demo"' in told
    assert 'href="/session"' in told
