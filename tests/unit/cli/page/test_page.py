"""The page as a browser is answered: who gets in, what is shown, and that nothing is a script."""

import asyncio
import json
import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from starlette.types import Message

from everstep_cli.client.admin import AdminError, NameNotFoundError
from everstep_cli.client.times import RequestedTime
from everstep_cli.page.access import Access
from everstep_cli.page.app import PageOptions, application
from everstep_cli.page.doors import Doors
from everstep_cli.page.grafana import board, grafana_problem
from everstep_cli.page.live import VIEWERS_MAX, Live, TooManyViewersError
from everstep_cli.page.roster import roster_of
from everstep_cli.page.source import FleetNow, Source
from everstep_cli.page.tiles import STATES, Tile, html_of, tile_of, troubled
from everstep_proto.generated import admin_pb2
from fakes.cli_admin import FakeAdmin
from fakes.cli_fleet import INCIDENT

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
    assert told.count('<a class="tile') == 5
    assert 'title="node-1: healthy"></a>' in told
    assert 'aria-label="node-2: lost">L</a>' in told
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
    node.claims.add(owner=_HOSTILE, reason=f"{_HOSTILE}\x1b\x00")
    tile = tile_of(node)
    assert (tile.state, tile.letter) == ("claimed", "C")
    for drawn in (html_of(tile), html_of(tile_of(admin_pb2.NodeSummary(node=_HOSTILE)))):
        assert "<script" not in drawn
        assert "\x1b" not in drawn
    (section,) = roster_of([node]).sections({_HOSTILE: tile})
    assert (section.name, section.nodes, section.trouble) == (_HOSTILE, 1, "1 claimed")
    assert "<script" not in section.tiles


def test_domains_and_nodes_are_in_the_order_in_which_people_count() -> None:
    nodes = [
        admin_pb2.NodeSummary(node=f"n{number}", domain=domain, state="healthy", connected=True)
        for domain, number in (("rack-10", 1), ("rack-2", 10), ("rack-2", 9), ("", 3))
    ]
    roster = roster_of(nodes)
    assert list(roster.domains.items()) == [
        ("rack-2", ["n9", "n10"]),
        ("rack-10", ["n1"]),
        ("", ["n3"]),
    ]
    assert roster.has(["n9"], 4)
    assert not roster.has(["n9"], 5)
    assert not roster.has(["n77"], 4)
    assert roster.mark != roster_of(nodes[1:]).mark
    lost = {"n9": tile_of(admin_pb2.NodeSummary(node="n9", state="lost"))}
    counts = roster.counts(lost)
    assert (counts["lost"], counts["healthy"], sum(counts.values())) == (1, 3, 4)


def test_claims_and_doubt_are_seen_before_a_good_state() -> None:
    claimed = admin_pb2.NodeSummary(node="a", state="healthy")
    claimed.claims.add(owner="operator")
    doubtful = admin_pb2.NodeSummary(node="b", state="healthy", doubt="its agent is away")
    well = admin_pb2.NodeSummary(node="c", state="healthy", connected=True)
    away = admin_pb2.NodeSummary(node="e", state="healthy")
    lost = admin_pb2.NodeSummary(node="d", state="lost")
    lost.claims.add(owner="automation")
    nodes = (claimed, doubtful, well, lost, away)
    states = [tile_of(node).state for node in nodes]
    assert states == ["claimed", "doubtful", "healthy", "lost", "away"]
    assert [*troubled(nodes)] == ["d", "a", "b", "e"]


def test_states_are_told_apart_without_colour() -> None:
    looks = [(tile.letter, tile.shape) for tile in (Tile("n", state, "") for state in STATES)]
    assert len(set(looks)) == len(looks)


def test_all_browsers_are_told_by_one_question_a_turn_and_a_slow_one_misses_what_is_old() -> None:
    async def scenario() -> None:
        admin = FakeAdmin()
        asked = 0
        turns: asyncio.Queue[None] = asyncio.Queue()

        class Counting(Source):
            async def fleet(self) -> FleetNow:
                nonlocal asked
                asked += 1
                now = await super().fleet()
                tile = Tile("turn", "lost", str(asked))
                return replace(now, troubled=now.troubled | {"turn": tile})

        live = Live(Counting(admin), lambda _: turns.get())
        browsers = [live.changes() for _ in range(50)]
        first = await asyncio.gather(*(anext(one) for one in browsers))
        assert asked == 1
        assert len(set(first)) == 1
        assert json.loads(first[0])["tiles"]
        slow, quick = browsers[0], browsers[1]
        for turn in (2, 3, 4):
            turns.put_nowait(None)
            assert json.loads(await anext(quick))["tiles"][-1][-1] == str(turn)
        assert json.loads(await anext(slow))["tiles"][-1][-1] == "4"
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


def test_a_fleet_is_read_whole_once_and_then_by_what_is_not_well() -> None:
    asked: list[bool] = []

    class Counting(FakeAdmin):
        def nodes(
            self, request: admin_pb2.ListNodesRequest | None = None
        ) -> admin_pb2.ListNodesReply:
            asked.append(request is not None and request.troubled)
            return super().nodes(request)

    async def scenario() -> None:
        admin, now_s = Counting(), 0.0
        admin.summary.fleet_nodes = 5
        source = Source(admin, lambda: now_s)
        await source.fleet()
        assert asked == [True, False]
        now_s = 2.0
        assert len((await source.fleet()).roster.well) == 5
        assert asked[2:] == [True]
        # A node has come: all are read again, at once.
        now_s, admin.summary.fleet_nodes = 4.0, 6
        await source.fleet()
        assert asked[3:] == [True, False]

    asyncio.run(scenario())


def test_a_search_finds_an_incident_and_says_of_what_there_is_not() -> None:
    class Knowing(FakeAdmin):
        def why(self, name: str) -> admin_pb2.WhyReply:
            if name != "demo":
                raise NameNotFoundError(f"no node or job named {name!r}")
            return admin_pb2.WhyReply(kind="job")

    page = _Page(Knowing()).log_in()
    found = {name: page.browser.get("/why", params={"q": name}) for name in ("demo", "demo-1", "x")}
    assert found["demo"].headers["location"] == "/job/demo"
    assert found["demo-1"].headers["location"] == "/incident/demo-1"
    assert (found["x"].status_code, "no node or job named" in found["x"].text) == (404, True)


def test_an_incident_is_told_with_seconds_evidence_decisions_and_what_was_not_done() -> None:
    class Telling(FakeAdmin):
        def events(
            self, subject: str, limit: int, follow: bool, since: RequestedTime | None = None
        ) -> Iterator[admin_pb2.Event]:
            told = "node-2 is not isolated: 1 of 1 is already"
            at_ns = INCIDENT.onset_ns + 1
            yield admin_pb2.Event(
                at_ns=at_ns, reason="IsolationHeldBack", subject=subject, message=told
            )
            late_ns = INCIDENT.over_ns + 10**12
            yield admin_pb2.Event(
                at_ns=late_ns, reason="NodeLost", subject=subject, message="later"
            )

        def history(self, asked: admin_pb2.GetHistoryRequest) -> Iterator[admin_pb2.HistoryRow]:
            yield admin_pb2.HistoryRow(told='{"evidence": ["exit code by signal 9 <b>"]}')

    told = _Page(Telling()).log_in().browser.get("/incident/demo-1").text
    assert "inc.init: processes start and import: 1.4 s" in told
    assert "exit code by signal 9 &lt;b&gt;" in told
    assert told.count("1 of 1 is already") == 4  # of the job and the node, decided and not done
    assert "later" not in told


def test_curves_are_a_table_without_a_script(page: _Page) -> None:
    job, node = page.browser.get("/job/demo").text, page.browser.get("/node/node-2").text
    assert "100 steps, without those made again, 51.5 s: 500 ms each at the median, 2.0 s" in job
    assert job.count('<td class="when" data-at="') == 33
    assert 'data-group="step time" data-unit="s"' in job
    assert "CPUs busy, %" in node
    assert "GPUs busy" not in node
    assert "grafana" not in node


def test_boards_are_where_grafana_was_said_to_be() -> None:
    address = board("https://grafana.example/x/", "node", "node", "a&b/c")
    assert address == "https://grafana.example/x/d/everstep-node?var-node=a%26b%2Fc"
    assert board("", "node", "node", "a") == ""
    assert grafana_problem("https://grafana.example") == ""
    for wrong in ("grafana.example", "javascript:alert(1)", "https://g/?a=b"):
        assert "no address of Grafana" in grafana_problem(wrong)


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fmain.py", "/static/"]
)
def test_no_other_file_is_served(page: _Page, path: str) -> None:
    answer = page.browser.get(page.browser.base_url.copy_with(raw_path=path.encode()))
    assert answer.status_code in (404, 405)


def test_a_browser_that_does_not_read_its_events_is_dropped() -> None:
    async def scenario() -> None:
        access = Access(lambda: 0.0, secrets.token_urlsafe)
        session = access.open_session(access.new_token())
        app = application(
            Source(FakeAdmin()),
            access,
            Doors(listen="127.0.0.1:0"),
            options=PageOptions(unread_s=0.05),
        )
        told: list[Message] = []

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            told.append(message)
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        headers = [(b"host", b"127.0.0.1"), (b"cookie", f"everstep-session={session}".encode())]
        scope = {
            "type": "http", "method": "GET", "path": "/live", "query_string": b"",
            "headers": headers, "scheme": "http", "server": ("127.0.0.1", 80), "root_path": "",
        }  # fmt: skip
        await asyncio.wait_for(app(scope, receive, send), 20)
        assert [one["type"] for one in told] == ["http.response.start", "http.response.body"]

    asyncio.run(scenario())
