"""Webhooks of a controller: their senders, what is known of each, and which of them fail."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.journal.port import Announcement
from everstep_controller.webhooks.sender import TestedAnswer, WebhookSender, WebhookStatus

_LOOK_S = 1.0
# A request that is on its way at the end of the controller is not waited for any longer.
_STOP_S = 1.0
# How long an operator's test may take besides the request: another one may be on its way.
_TEST_SLACK_S = 2.0

WEBHOOK_FAILED = Condition(
    name="WebhookFailed",
    component="controller/webhook/NAME",
    meaning="events of a webhook are not accepted: they wait, and nobody hears of what happens",
    source="five requests in a row without success, for 30 s",
    clears_when="the receiver accepts an event; it is asked at least every 5 minutes",
    mode=Mode.ADVISE,
)


class UnknownWebhookError(Exception):
    """There is no webhook of that name; the message says which there are."""


@dataclass(frozen=True, slots=True)
class WebhookFailure:
    """A webhook that fails, why, and since when."""

    name: str
    why: str
    since_ns: int
    lag: int


class Webhooks:
    """All webhooks of the configuration; used on the event loop."""

    def __init__(
        self, senders: Mapping[str, WebhookSender], timeouts_s: Mapping[str, float]
    ) -> None:
        self._senders = senders
        self._timeouts_s = timeouts_s
        self._failing: dict[str, WebhookFailure] = {}

    def start(self) -> None:
        """Begin to send."""
        for sender in self._senders.values():
            sender.start()

    async def stop(self) -> None:
        """End all of them, at the same time."""
        ends = (asyncio.to_thread(one.stop, _STOP_S) for one in self._senders.values())
        await asyncio.gather(*ends)

    def note_line(self, line: Announcement) -> None:
        """Learn of a new line of the event list."""
        for sender in self._senders.values():
            sender.note_announced(line.id)

    def statuses(self) -> Iterator[WebhookStatus]:
        """Yield what is known of each, by name."""
        for name in sorted(self._senders):
            yield self._status(name)

    async def test(self, name: str) -> TestedAnswer:
        """Send a test event and return the answer. Raises UnknownWebhookError, TimeoutError."""
        sender = self._senders.get(name)
        if sender is None:
            raise UnknownWebhookError(f"no webhook named {name!r}; {self._named()}")
        async with asyncio.timeout(2 * self._timeouts_s[name] + _TEST_SLACK_S):
            return await asyncio.wrap_future(sender.test())

    def failures(self) -> tuple[WebhookFailure, ...]:
        """Return those that fail, by name."""
        found = (status for status in self.statuses() if status.trouble)
        return tuple(
            WebhookFailure(one.name, one.trouble, one.trouble_ns, one.lag) for one in found
        )

    async def watch(self, announce: Callable[[str, str, str], None]) -> None:
        """Tell people of webhooks that begin to fail, and of those that work again; endless."""
        while True:
            await asyncio.sleep(_LOOK_S)
            self.tell_changes(announce)

    def tell_changes(self, announce: Callable[[str, str, str], None]) -> None:
        """Tell people what has changed since the last time."""
        now = {one.name: one for one in self.failures()}
        for name in now.keys() - self._failing.keys():
            sentence = f"webhook {name} fails: {now[name].why}"
            announce(CONTROLLER, WEBHOOK_FAILED.name, sentence)
        for name in self._failing.keys() - now.keys():
            sentence = f"webhook {name} works again: {self._status(name).answer}"
            announce(CONTROLLER, f"{WEBHOOK_FAILED.name}Cleared", sentence)
        self._failing = now

    def _status(self, name: str) -> WebhookStatus:
        sender = self._senders[name]
        status = sender.status
        if sender.has_ended and not status.trouble:
            return replace(status, trouble="its thread has ended; the log has more")
        return status

    def _named(self) -> str:
        names = ", ".join(sorted(self._senders))
        return f"there are {names}" if names else "none is configured: docs/webhooks.md"


def webhook_finding(failure: WebhookFailure) -> Finding:
    """Return the finding that a webhook fails, with what to do."""
    return Finding(
        component=f"controller/webhook/{failure.name}",
        condition=WEBHOOK_FAILED.name,
        mode=WEBHOOK_FAILED.mode,
        severity=Severity.DEGRADED,
        message=f"the receiver of webhook {failure.name} accepts nothing: {failure.why}",
        evidence=f"{failure.lag} lines of the event list wait for it",
        suggested_action=SuggestedAction.WATCH,
        rule=f"correct the receiver, or the files of [webhooks.{failure.name}], which are read for "
        f"each event; then 'everstep webhooks test {failure.name}'. Cleared by an accepted event",
    )
