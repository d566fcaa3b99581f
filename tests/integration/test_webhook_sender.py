"""Sender of a webhook over a real journal: digests, what is given up, gaps, files that change."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_common.credential_file import CredentialFile
from everstep_controller.journal.port import Announcement
from everstep_controller.journal.sqlite.compaction import compact
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_controller.webhooks.config import WebhookConfig
from everstep_controller.webhooks.cursors import Cursor, CursorFile
from everstep_controller.webhooks.http_post import Poster, system_addresses, tls_context
from everstep_controller.webhooks.sender import SenderParts, WebhookSender
from fakes.receiver import GOOD, Receiver, answer, receiver, say
from unit.webhooks.lines import line

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


class Journal:
    """A journal with an event list, and a webhook of it."""

    def __init__(self, folder: Path, server: Receiver) -> None:
        self.store = SqliteJournal(folder / "journal.sqlite")
        self.cursor = CursorFile(folder / "pager.json")
        self.url = folder / "url"
        self.write_url(server.url())
        (folder / "key").write_text("k" * 24)
        (folder / "key").chmod(0o600)
        self._key = CredentialFile(folder / "key")
        self._sender: WebhookSender | None = None

    def write_url(self, url: str) -> None:
        """Replace the URL."""
        self.url.write_text(url)
        self.url.chmod(0o600)

    def announce(self, *lines: Announcement) -> None:
        """Have lines written, and the sender know of it."""
        with self.store.transaction():
            self.store.announce(lines)
        if self._sender is not None:
            self._sender.note_announced(lines[-1].id)

    @contextmanager
    def sending(self, max_per_second: int = 1000) -> Iterator[WebhookSender]:
        """Run the sender for a while."""
        config = WebhookConfig(
            url_file=CredentialFile(self.url),
            key_file=self._key,
            hosts=("127.0.0.1",),
            max_per_second=max_per_second,
            timeout_s=20,
        )
        parts = SenderParts(
            config=config,
            open_reader=self.store.another_reader,
            cursor=self.cursor,
            cluster="c",
            conditions=(),
            now_ns=time.time_ns,
            poster=Poster(tls_context(""), system_addresses),
        )
        self._sender = WebhookSender("pager", parts)
        self._sender.start()
        try:
            yield self._sender
        finally:
            assert not self._sender.has_ended
            self._sender.stop(30)
            self._sender = None


@pytest.fixture
def journal(tmp_path: Path, server: Receiver) -> Iterator[Journal]:
    made = Journal(tmp_path, server)
    made.cursor.write(Cursor("c", 0))
    yield made
    made.store.close()


def numbers(server: Receiver) -> list[int]:
    """Return the numbers of the lines that came one by one."""
    return [int(event["sequence"]) for event in server.events("decision.taken")]


def test_a_storm_is_some_events_and_one_digest_and_all_of_it_is_counted(
    journal: Journal, server: Receiver
) -> None:
    journal.announce(*(line(number, f"n{number}", "NodeIsolated") for number in range(1, 301)))
    with journal.sending(max_per_second=5) as sender:
        server.wait_until(lambda one: bool(one.events("digest")))
        journal.announce(line(301, "n301", "NodeIsolated"))
        server.wait_until(lambda one: 301 in numbers(one))
    told = sum(event["data"]["events"] for event in server.events("digest"))
    assert told + len(numbers(server)) == 301
    assert (sender.status.digested, sender.status.sent) == (told, len(server.requests))
    assert journal.cursor.read() == Cursor("c", 301)


def test_an_event_that_is_refused_is_given_up_and_its_place_says_so(
    journal: Journal, server: Receiver
) -> None:
    server.react = lambda connection, request: connection.sendall(
        answer(422, "no such field") if request.event["subject"] == "bad" else GOOD
    )
    journal.announce(line(1, "bad"), line(2, "bad"), line(3, "good"))
    with journal.sending() as sender:
        server.wait_until(lambda one: len(one.events("not-sent")) == 2)
    assert sender.status.given_up == 2
    first, second = server.events("not-sent")
    assert "given up: it answered 422: no such field" in first["data"]["sentence"]
    assert (first["id"].split("/")[2], second["id"].split("/")[2]) == ("1", "2")
    order = [request.event["subject"] for request in server.requests]
    assert order.index("good") < 3, "it does not wait for the others"
    assert journal.cursor.read() == Cursor("c", 3)


def test_lines_that_were_deleted_before_they_were_sent_are_told(
    journal: Journal, server: Receiver
) -> None:
    journal.announce(*(line(number) for number in range(1, 11)))
    journal.cursor.write(Cursor("c", 3))
    with journal.store.transaction():
        compact(journal.store, 0, line(7).at_ns)
    with journal.sending():
        server.wait_until(lambda one: 10 in numbers(one))
    (told,) = server.events("not-sent")
    assert "3 lines of the event list were deleted" in told["data"]["sentence"]
    assert numbers(server) == [7, 8, 9, 10]


def test_what_is_not_sent_is_told_again_by_the_next_start_where_nobody_has_heard_it(
    journal: Journal, server: Receiver
) -> None:
    server.react = say(answer(503))
    journal.announce(line(1))
    journal.cursor.path.write_bytes(b"half of a cur")
    with journal.sending():
        server.wait_until(lambda one: len(one.requests) >= 2)
    server.react = say(GOOD)
    with journal.sending():
        server.wait_until(
            lambda one: one.requests[-1].id.startswith("c/lost/") and len(one.requests) > 2
        )
        journal.announce(line(2))
        server.wait_until(lambda one: 2 in numbers(one))
    assert len({request.id for request in server.requests if "/lost/" in request.id}) == 1
    assert journal.cursor.read() == Cursor("c", 2)


def test_a_url_that_is_gone_holds_events_back_until_it_is_there_again(
    journal: Journal, server: Receiver
) -> None:
    journal.url.unlink()
    journal.announce(line(1))
    with journal.sending() as sender:
        answered = sender.test().result(30)
        assert (answered.accepted, "cannot be read" in answered.sentence) == (False, True)
        assert not server.requests
        journal.write_url(server.url())
        assert sender.test().result(30).accepted
        server.wait_until(lambda one: numbers(one) == [1])


def test_a_receiver_that_repeats_the_url_does_not_spread_it(
    journal: Journal, server: Receiver
) -> None:
    server.react = say(answer(404, "Cannot POST /hook/secret"))
    with journal.sending() as sender:
        assert sender.test().result(30).sentence == "it answered 404: Cannot POST …"
        assert "secret" not in sender.status.answer
