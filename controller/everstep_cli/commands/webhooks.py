"""`everstep webhooks`: how each webhook of the controller fares, and a test of one."""

import click

from everstep_cli.commands.next_command import Commands
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.views.webhooks import tested, webhook_list
from everstep_proto.generated import admin_pb2


@click.group(cls=Commands, invoke_without_command=True)
@asks_controller
def webhooks(ask: Ask, /) -> None:
    r"""List the webhooks: how far each has come, what it sent, and its newest answer.

    A webhook sends decisions, findings and incidents to a receiver of yours, as the controller's
    configuration says ([webhooks.NAME], docs/webhooks.md). Counts are of this start of it.

    \b
    Examples:
      everstep webhooks
      everstep webhooks test pager
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    request = admin_pb2.ListWebhooksRequest()
    reply = ask.admin.call(lambda stub: stub.ListWebhooks, request)
    ask.answer(reply, *webhook_list(reply.webhooks, ask.now_ns))


@webhooks.command()
@click.argument("name", metavar="NAME")
@asks_controller
def test(ask: Ask, name: str) -> None:
    r"""Send a test event by the webhook NAME, and print the answer. Exits with 1 for a bad one.

    \b
    Example:
      everstep webhooks test pager
    """
    request = admin_pb2.TestWebhookRequest(name=name)
    reply = ask.admin.call(lambda stub: stub.TestWebhook, request, name)
    ask.answer(reply, *tested(name, reply))
    if not reply.accepted:
        raise click.exceptions.Exit(1)


COMMANDS = (webhooks,)
