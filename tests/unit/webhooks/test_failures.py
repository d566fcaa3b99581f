"""Webhooks that fail: what people are told, and when that is over; what answers mean."""

from dataclasses import replace
from pathlib import Path

import pytest

from everstep_common.credential_file import CredentialFile
from everstep_controller.core.model.state import State
from everstep_controller.journal.port import JournalReader
from everstep_controller.runtime.controller_findings import ShellTrouble, open_controller_findings
from everstep_controller.webhooks.config import WebhookConfig
from everstep_controller.webhooks.cursors import CursorFile
from everstep_controller.webhooks.http_post import Answer, Poster, tls_context
from everstep_controller.webhooks.queue import Outcome
from everstep_controller.webhooks.sender import SenderParts, WebhookSender, outcome_of
from everstep_controller.webhooks.webhooks import Webhooks

FILE = CredentialFile(Path("/secret"))


def no_reader() -> JournalReader:
    raise AssertionError("nothing is read: the sender is not started")


def sender(name: str) -> WebhookSender:
    parts = SenderParts(
        config=WebhookConfig(url_file=FILE, key_file=FILE, hosts=("h",)),
        open_reader=no_reader,
        cursor=CursorFile(Path("/nowhere")),
        cluster="c",
        conditions=(),
        now_ns=lambda: 1,
        poster=Poster(tls_context(""), lambda *_: []),
    )
    return WebhookSender(name, parts)


def test_people_are_told_once_that_a_webhook_fails_and_once_that_it_works_again() -> None:
    one, other = sender("pager"), sender("chat")
    webhooks = Webhooks({"pager": one, "chat": other}, {"pager": 1, "chat": 1})
    told: list[tuple[str, str, str]] = []
    webhooks.tell_changes(lambda *line: told.append(line))
    assert told == []
    one.status = replace(one.status, trouble="it answered 503", trouble_ns=7, newest=9, cursor=4)
    for _ in range(2):
        webhooks.tell_changes(lambda *line: told.append(line))
    assert told == [("controller", "WebhookFailed", "webhook pager fails: it answered 503")]

    (held,) = open_controller_findings(
        State(), ShellTrouble(webhook_failures=webhooks.failures()), lambda *_: 0
    )
    assert (held.finding.component, held.since_ns) == ("controller/webhook/pager", 7)
    assert held.finding.evidence == "5 lines of the event list wait for it"
    assert "everstep webhooks test pager" in held.finding.rule

    one.status = replace(one.status, trouble="", trouble_ns=0, answer="it answered 204")
    webhooks.tell_changes(lambda *line: told.append(line))
    assert told[1:] == [
        ("controller", "WebhookFailedCleared", "webhook pager works again: it answered 204")
    ]
    assert not webhooks.failures()
    assert [status.name for status in webhooks.statuses()] == ["chat", "pager"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.ACCEPTED),
        (204, Outcome.ACCEPTED),
        (301, Outcome.FAILED),
        (304, Outcome.FAILED),
        (400, Outcome.REFUSED),
        (401, Outcome.FAILED),
        (404, Outcome.FAILED),
        (408, Outcome.FAILED),
        (410, Outcome.FAILED),
        (413, Outcome.REFUSED),
        (422, Outcome.REFUSED),
        (429, Outcome.FAILED),
        (500, Outcome.FAILED),
        (199, Outcome.FAILED),
    ],
)
def test_only_what_is_about_the_event_itself_is_ever_given_up(
    status: int, outcome: Outcome
) -> None:
    assert outcome_of(Answer(status, "", 0)) is outcome
