"""Assembly of the webhooks: a sender for each table of the configuration."""

from everstep_controller.assembly.foundation import Foundation
from everstep_controller.conditions import GROUPS
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.journal.address import is_url
from everstep_controller.webhooks.config import WebhookConfig
from everstep_controller.webhooks.cursors import CursorFile, JournalCursor
from everstep_controller.webhooks.http_post import Poster, system_addresses, tls_context
from everstep_controller.webhooks.sender import SenderParts, WebhookSender
from everstep_controller.webhooks.webhooks import Webhooks

_OF_CONTROLLER = "The controller itself"


def assemble_webhooks(config: ControllerConfig, base: Foundation) -> Webhooks:
    """Return them, not started; they hear of every line of the event list from now on."""
    conditions = frozenset(one.name for one in GROUPS[_OF_CONTROLLER])

    def sender(name: str, one: WebhookConfig) -> WebhookSender:
        parts = SenderParts(
            config=one,
            open_reader=base.history.another_reader,
            cursor=_cursor(config, base, name),
            cluster=base.cluster.cluster.id,
            conditions=conditions,
            now_ns=base.runtime.now_ns,
            poster=Poster(tls_context(one.authorities), system_addresses),
        )
        return WebhookSender(name, parts)

    senders = {name: sender(name, one) for name, one in config.webhooks.items()}
    timeouts_s = {name: one.timeout_s for name, one in config.webhooks.items()}
    webhooks = Webhooks(senders, timeouts_s)
    base.runtime.on_announcement(webhooks.note_line)
    return webhooks


def _cursor(config: ControllerConfig, base: Foundation, name: str) -> CursorFile | JournalCursor:
    """Return where a webhook keeps how far it has come."""
    file = CursorFile(config.webhook_cursor(name))
    if not is_url(config.journal):
        return file
    return JournalCursor(name, base.history.another_reader, base.journal.write, file)
