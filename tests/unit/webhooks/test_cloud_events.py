"""CloudEvents of webhooks: their attributes, what is in them, which of them a webhook gets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everstep_common.credential_file import CredentialFile
from everstep_common.judging.findings import Severity
from everstep_controller.core.actions import About, Topic
from everstep_controller.webhooks.cloud_events import (
    Collected,
    EventWriter,
    News,
    is_wanted,
    news_of,
)
from everstep_controller.webhooks.config import EventKind, WebhookConfig
from unit.webhooks.lines import BEGUN_NS, S, finding, line, news

WRITER = EventWriter("c0ffee")
FILE = CredentialFile(Path("/secret"))
ALL = WebhookConfig(url_file=FILE, key_file=FILE, hosts=("h",))


def event(found: News) -> Any:  # noqa: ANN401 - JSON
    return json.loads(WRITER.event(found)[1])


def test_a_finding_is_a_cloud_event_with_the_age_of_its_evidence() -> None:
    told = event(news(7, about=finding(seen_s=-3 * 3600)))
    assert told == {
        "specversion": "1.0",
        "id": f"c0ffee/7/{BEGUN_NS + 7 * S}",
        "source": "/everstep/c0ffee",
        "type": "io.everstep.finding.raised",
        "subject": "n1",
        "time": "2026-12-01T00:00:07.000000Z",
        "datacontenttype": "application/json",
        "sequence": "00000000000000000007",
        "data": {
            "sentence": "fatal on n1: Xid 79",
            "reason": "XidFatal",
            "component": "gpu/0",
            "condition": "XidFatal",
            "severity": "fatal",
            "mode": "enforce",
            "evidence": "NVRM: Xid 79",
            "suggested_action": "reboot_node",
            "evidence_age_s": 10807.0,
            "evidence_time": "2026-11-30T21:00:00.000000Z",
            "command": "everstep why n1",
        },
    }


def test_the_same_line_is_the_same_event_byte_by_byte() -> None:
    assert WRITER.event(news(7)) == WRITER.event(news(7))
    assert WRITER.event(news(7))[0] != WRITER.event(news(8))[0]


def test_a_line_without_more_is_a_decision_unless_it_names_a_condition_of_the_controller() -> None:
    assert event(news_of(line(1, reason="NodeIsolated"), ()))["type"].endswith("decision.taken")
    full = line(1, "controller", "JournalFull", "the disk is full")
    told = event(news_of(full, {"JournalFull"}))
    assert (told["type"], told["data"]["condition"]) == (
        "io.everstep.finding.raised",
        "JournalFull",
    )
    over = replace(full, reason="JournalFullCleared")
    assert event(news_of(over, {"JournalFull"}))["type"] == "io.everstep.finding.cleared"
    assert told["data"]["command"] == "everstep findings"


def test_hostile_words_stay_within_a_sentence() -> None:
    words = 'he said "no"\r\n\x1b[2J\x00 \u202e {"type": 1}'
    told = event(news_of(line(1, "j\x07b", "JobFault", words), ()))
    assert told["subject"] == "j\\x07b"
    assert told["data"]["sentence"] == 'he said "no"\\r\\n\\x1b[2J\\x00 \\u202e {"type": 1}'
    assert WRITER.event(news_of(line(1, message=words), ()))[1].isascii()


def test_a_line_about_nothing_is_about_the_controller() -> None:
    assert event(news_of(line(1, ""), ()))["subject"] == "controller"


@pytest.mark.parametrize(
    ("config", "about", "wanted"),
    [
        (ALL, finding(Severity.INFO), True),
        (replace(ALL, severity=Severity.DEGRADED), finding(Severity.INFO), False),
        (replace(ALL, severity=Severity.DEGRADED), finding(Severity.FATAL), True),
        (replace(ALL, severity=Severity.FATAL), About(topic=Topic.INCIDENT_BEGUN), True),
        (replace(ALL, kinds=(EventKind.FINDING,)), About(), False),
        (replace(ALL, kinds=(EventKind.INCIDENT,)), About(topic=Topic.INCIDENT_OVER), True),
        (replace(ALL, conditions=("LinkDown",)), finding(), False),
        (replace(ALL, conditions=("LinkDown", "XidFatal")), finding(), True),
        (replace(ALL, conditions=("LinkDown",)), About(), True),
        (replace(ALL, subjects=("gpu-*",)), finding(), False),
        (replace(ALL, subjects=("gpu-*", "n?")), finding(), True),
    ],
)
def test_a_webhook_gets_what_its_configuration_says(
    config: WebhookConfig, about: About, wanted: bool
) -> None:
    assert is_wanted(news(1, about=about), config) is wanted


def test_a_digest_counts_all_and_lists_the_gravest_in_their_order() -> None:
    first = news(11, about=finding(Severity.INFO))
    found = Collected(first)
    for number in range(11, 2011):
        severity = Severity.FATAL if number % 100 == 0 else Severity.INFO
        found.add(news(number, f"n{number}", finding(severity)))
    event_id, body = WRITER.digest(11, found)
    told = json.loads(body)
    assert event_id == f"c0ffee/digest/11-2010/{BEGUN_NS + 2010 * S}"
    assert told["type"] == "io.everstep.digest"
    data = told["data"]
    assert (data["events"], data["not_listed"]) == (2000, 1950)
    assert data["topics"] == {"finding.raised": 2000}
    assert data["reasons"] == {"XidFatal": 2000}
    fatal = [one["subject"] for one in data["listed"] if one["severity"] == "fatal"]
    assert fatal == [f"n{number}" for number in range(100, 2001, 100)]
    assert len(data["listed"]) == 50
    assert data["command"].startswith("everstep events --since 2026-12-01T00:00:11")
    assert len(body) < 64 << 10, "CloudEvents: every receiver has to take 64 KiB"


def test_a_digest_of_long_and_hostile_sentences_fits_a_receiver() -> None:
    words, found = "\x1b" * 4096, Collected(news(1))
    for number in range(1, 200):
        told = replace(finding(), evidence=words, component=words)
        found.add(news_of(line(number, words, "R" * 200, words, told), ()))
    _, body = WRITER.digest(1, found)
    assert len(body) < 64 << 10
    assert json.loads(body)["data"]["events"] == 199


def test_a_notice_says_what_is_not_sent() -> None:
    _, body = WRITER.notice(9, BEGUN_NS, "gap", "4 lines were deleted")
    told = json.loads(body)
    assert told["type"] == "io.everstep.not-sent"
    assert told["data"]["sentence"] == "4 lines were deleted"
