"""The page as a browser is answered: who gets in, what is shown, and that nothing is a script."""

import asyncio
import json
import secrets

import pytest
from starlette.testclient import TestClient

from everstep_cli.client.admin import AdminError
from everstep_cli.page.access import Access
from everstep_cli.page.app import application
from everstep_cli.page.doors import Doors
from everstep_cli.page.live import VIEWERS_MAX, Live, TooManyViewersError
from everstep_cli.page.source import Source
from everstep_cli.page.tiles import STATES, by_domain, tile_of, troubled
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin

_HOSTILE = "<script>alert(1)</script>"


class _Page:
    def __init__(self, admin: FakeAdmin | None = None) -> None:
        self.admin = admin or FakeAdmin()
        self.access = Access(lambda: 0.0, secrets.token_urlsafe)
        app = application(Source(self.admin), self.access, Doors(listen="127.0.0.1:0"))
        self.browser = TestClient(
            app, base_url="http://127.0.0.1", follow_redirects=False, raise_server_exceptions=True
        )

    def log_in(self) -> "_Page":
        answer = self.browser.get("/login", params={"token": self.access.new_token()})
        assert answer.status_code == 303
        return self


@pytest.fixture
def page() -> _Page:
    return _Page().log_in()


PATHS = ("/", "/node/node-2", "/job/demo", "/incident/demo-1", "/why?q=demo", "/live")


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_a_session(path: str) -> None:
    stranger = _Page()
    answer = stranger.browser.get(path)
    assert answer.status_code == 401
    assert "everstep page" in answer.text
    stranger.browser.cookies.set("everstep-session", "guess")
    assert stranger.browser.get(path).status_code == 401


def test_a_token_lets_in_once_and_its_session_is_for_this_site_alone() -> None:
    page = _Page()
    token = page.access.new_token()
    answer = page.browser.get("/login", params={"token": token})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    again = page.browser.get("/login", params={"token": token})
    assert (again.status_code, "prints a new one" in again.text) == (403, True)


def test_another_name_for_this_machine_is_refused(page: _Page) -> None:
    answer = page.browser.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 400


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(page: _Page, method: str) -> None:
    assert page.browser.request(method, "/").status_code == 405


@pytest.mark.parametrize("path", PATHS[:-2])
def test_every_answer_keeps_scripts_and_frames_of_others_out(page: _Page, path: str) -> None:
    answer = page.browser.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "<script>" not in answer.text
    assert " style=" not in answer.text


def test_the_fleet_has_a_link_for_each_node_with_letter_and_words(page: _Page) -> None:
    told = page.browser.get("/").text
    assert told.count('class="tile ') == 5
    assert 'aria-label="node-2: ' in told
    assert 'href="/job/demo"' in told


def test_a_search_leads_to_what_was_searched_for(page: _Page) -> None:
    assert page.browser.get("/why", params={"q": "node-2"}).headers["location"] == "/node/node-2"
    assert page.browser.get("/why", params={"q": " "}).headers["location"] == "/"


def test_a_controller_that_is_away_is_a_sentence() -> None:
    page = _Page(FakeAdmin(trouble=AdminError(f"no controller answers {_HOSTILE}"))).log_in()
    answer = page.browser.get("/node/node-2")
    assert answer.status_code == 502
    assert _HOSTILE not in answer.text


def test_what_a_node_is_called_and_claims_say_stays_words() -> None:
    node = admin_pb2.NodeSummary(node=_HOSTILE, state="healthy", reason=_HOSTILE, domain=_HOSTILE)
    node.claims.add(owner=_HOSTILE, reason=_HOSTILE)
    ((domain, (tile,)),) = by_domain([node])
    assert (domain, tile.state, tile.letter) == (_HOSTILE, "claimed", "C")


def test_claims_and_doubt_are_seen_before_a_good_state() -> None:
    claimed = admin_pb2.NodeSummary(node="a", state="healthy")
    claimed.claims.add(owner="operator")
    doubtful = admin_pb2.NodeSummary(node="b", state="healthy", doubt="its agent is away")
    well = admin_pb2.NodeSummary(node="c", state="healthy")
    lost = admin_pb2.NodeSummary(node="d", state="lost")
    lost.claims.add(owner="automation")
    states = [tile_of(node).state for node in (claimed, doubtful, well, lost)]
    assert states == ["claimed", "doubtful", "healthy", "lost"]
    assert [one[0] for one in troubled([claimed, doubtful, well, lost])] == ["a", "b", "d"]


def test_states_are_told_apart_without_colour() -> None:
    looks = [
        (tile.letter, tile.shape)
        for tile in (tile_of(admin_pb2.NodeSummary(node="n", state=state)) for state in STATES)
    ]
    assert len(set(looks)) == len(looks)


def test_all_browsers_are_told_by_one_question_a_turn_and_a_slow_one_misses_what_is_old() -> None:
    async def scenario() -> None:
        admin = FakeAdmin()
        asked = 0
        turns: asyncio.Queue[None] = asyncio.Queue()

        class Counting(Source):
            async def nodes(self) -> admin_pb2.ListNodesReply:
                nonlocal asked
                asked += 1
                reply = await super().nodes()
                shown = admin_pb2.ListNodesReply()
                shown.CopyFrom(reply)
                shown.summary.states.add(name="turn", nodes=asked)
                return shown

        live = Live(Counting(admin), lambda _: turns.get())
        browsers = [live.changes() for _ in range(50)]
        first = await asyncio.gather(*(anext(one) for one in browsers))
        assert asked == 1
        assert len(set(first)) == 1
        assert json.loads(first[0])["troubled"]
        slow, quick = browsers[0], browsers[1]
        for turn in (2, 3, 4):
            turns.put_nowait(None)
            assert json.loads(await anext(quick))["states"]["turn"] == turn
        assert json.loads(await anext(slow))["states"]["turn"] == 4
        for one in browsers:
            await one.aclose()
        turns.put_nowait(None)

    asyncio.run(scenario())


def test_one_browser_too_many_is_told_so() -> None:
    async def scenario() -> None:
        live = Live(Source(FakeAdmin()), lambda _: asyncio.Event().wait())
        browsers = [live.changes() for _ in range(VIEWERS_MAX)]
        await asyncio.gather(*(anext(one) for one in browsers))
        with pytest.raises(TooManyViewersError):
            await anext(live.changes())
        await browsers[0].aclose()
        assert await anext(live.changes())

    asyncio.run(scenario())
