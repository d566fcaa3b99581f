"""Lines of the event list, as webhooks get them."""

from everstep_common.judging.findings import Severity
from everstep_controller.core.actions import About, Topic
from everstep_controller.journal.codec import encode_about
from everstep_controller.journal.port import Announcement
from everstep_controller.webhooks.cloud_events import News, news_of

S = 1_000_000_000
# 2026-11-30T00:00:00Z
BEGUN_NS = 1_796_083_200 * S


def line(
    number: int,
    subject: str = "n1",
    reason: str = "XidFatal",
    message: str = "fatal on n1: Xid 79",
    about: About | None = None,
) -> Announcement:
    """Return a line that was written so many seconds after the first."""
    told = encode_about(about)
    return Announcement(number, number, BEGUN_NS + number * S, subject, reason, message, told)


def finding(severity: Severity = Severity.FATAL, seen_s: float | None = None) -> About:
    """Return what a line about a finding says, which was seen so many seconds after the first."""
    seen_ns = 0 if seen_s is None else BEGUN_NS + int(seen_s * S)
    return About(
        topic=Topic.FINDING_RAISED,
        evidence_ns=seen_ns,
        component="gpu/0",
        condition="XidFatal",
        severity=severity.value,
        mode="enforce",
        evidence="NVRM: Xid 79",
        suggested_action="reboot_node",
    )


def news(number: int, subject: str = "n1", about: About | None = None) -> News:
    """Return a line with what it is about: a fatal finding, unless it is said."""
    return news_of(line(number, subject, about=about or finding()), ())
