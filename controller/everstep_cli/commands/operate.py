"""Commands for operators: drain, isolate and release nodes, pause and resume automation."""

from collections.abc import Iterator

import click
from rich.text import Text

from everstep_cli.commands.node_lists import (
    nodes_argument,
    several_subjects_argument,
    several_words,
)
from everstep_cli.commands.session import Ask, asks_controller
from everstep_cli.commands.several_nodes import each_node
from everstep_cli.views import formatting
from everstep_proto.generated import admin_pb2


@click.command()
@nodes_argument
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def isolate(ask: Ask, names: list[str], reason: str) -> None:
    r"""Keep NODES from taking ranks until you release it.

    Jobs on them stop at once and go on elsewhere, from their newest snapshot. Automation never
    removes your claim.

    \b
    Examples:
      everstep isolate gpu-0042 --reason "fan replaced on Tuesday"
      everstep isolate 'gpu-[0001-0016]' --reason "rack 7 smells of smoke"
    """

    def order(name: str) -> admin_pb2.NodeDetail:
        request = admin_pb2.IsolateRequest(node=name, reason=reason)
        return ask.admin.call(lambda stub: stub.Isolate, request, name)

    each_node(ask, names, order, lambda _, reply: [_outcome(reply), *_untold(reply)])


@click.command()
@nodes_argument
@click.option("--reason", default="", help="What was repaired; kept in the audit log.")
@click.option(
    "--accept",
    "accepted",
    metavar="CONDITION",
    multiple=True,
    callback=several_words,
    help="Take it back in spite of this open fatal finding.",
)
@asks_controller
def release(ask: Ask, names: list[str], reason: str, accepted: list[str]) -> None:
    r"""Remove the operator's claim from NODES, and say that they were repaired.

    A node is checked before it takes ranks. A fatal finding that is still open is named, and the
    node is only given back in spite of it with --accept. Claims of other owners stay: that of a
    maintenance window until its end or 'everstep maintenance cancel ID', that of a scheduler until
    the node is freed there.

    \b
    Examples:
      everstep release gpu-0042 --reason "GPU 3 replaced, dcgmi diag -r 3 passed"
      everstep release gpu-0042 --reason "a drill" --accept XidFatal
    """

    def order(name: str) -> admin_pb2.NodeDetail:
        request = admin_pb2.ReleaseRequest(node=name, reason=reason, accepted=accepted)
        return ask.admin.call(lambda stub: stub.Release, request, name)

    each_node(ask, names, order, lambda _, reply: [_outcome(reply), *_kept_by_others(ask, reply)])


_drivers_option = click.option(
    "--drivers", is_flag=True, help="Not automation, but what schedulers are told."
)


@click.command()
@several_subjects_argument
@_drivers_option
@click.option("--reason", default="", help="Kept in the audit log.")
@asks_controller
def pause(ask: Ask, subjects: list[str], drivers: bool, reason: str) -> None:
    r"""Stop automation for nodes, a job, or everything; or with --drivers, telling schedulers.

    Nothing that runs is stopped. Findings and events are still listed; decisions wait. With
    --drivers nothing is decided otherwise, but no scheduler is told anything any more: neither to
    withhold a node nor to free one, whoever wants it. What was begun ends. Schedulers are still
    read.

    \b
    Examples:
      everstep pause --reason "switch upgrade until 14:00"
      everstep pause 'gpu-[0001-0016]' --reason "under investigation"
      everstep pause --drivers --reason "Slurm is upgraded"
    """
    if drivers:
        _refuse_subjects(subjects)
        request = admin_pb2.PauseRequest(drivers=True, reason=reason)
        reply = ask.admin.call(lambda stub: stub.Pause, request)
        ask.answer(reply, *_drivers_state(reply))
        return
    if not reason:
        raise click.UsageError("Missing option '--reason'.")

    def order(name: str) -> admin_pb2.AutomationReply:
        request = admin_pb2.PauseRequest(subject=name, reason=reason)
        return ask.admin.call(lambda stub: stub.Pause, request, name)

    each_node(ask, subjects, order, _paused)


@click.command()
@several_subjects_argument
@_drivers_option
@asks_controller
def resume(ask: Ask, subjects: list[str], drivers: bool) -> None:
    r"""Start automation again for nodes, a job, or everything; or with --drivers, the drivers.

    Schedulers are read then, and told of what differs by now, and of nothing else.

    \b
    Examples:
      everstep resume
      everstep resume gpu-0042
      everstep resume --drivers
    """
    if drivers:
        _refuse_subjects(subjects)
        reply = ask.admin.call(lambda stub: stub.Resume, admin_pb2.ResumeRequest(drivers=True))
        ask.answer(reply, *_drivers_state(reply))
        return

    def order(name: str) -> admin_pb2.AutomationReply:
        request = admin_pb2.ResumeRequest(subject=name)
        return ask.admin.call(lambda stub: stub.Resume, request, name)

    each_node(ask, subjects, order, _paused)


def _refuse_subjects(subjects: list[str]) -> None:
    if subjects != [""]:
        raise click.UsageError(
            "--drivers is about all schedulers at once; for nodes alone, give them a group without "
            "drivers (docs/groups.md)"
        )


def _drivers_state(reply: admin_pb2.AutomationReply) -> Iterator[Text]:
    nodes = formatting.count(reply.waiting_nodes, "node")
    if reply.drivers_paused:
        yield Text(f"No scheduler is told anything: {reply.drivers_paused}.", style="yellow")
        yield Text(f"{nodes} would be told of now; to go on: everstep resume --drivers")
    else:
        yield Text("Schedulers are read, and told of what differs there.")
        if reply.waiting_nodes:
            yield Text(f"{nodes} waited for that; 'everstep drivers' shows how far it is.")


def _outcome(node: admin_pb2.NodeDetail) -> Text:
    summary = node.summary
    owners = " and ".join(claim.owner for claim in summary.claims)
    takes = f"takes no ranks: claimed by {owners}" if owners else "no claim is on it"
    state = formatting.state(summary.state)
    return Text.assemble((summary.node, "bold"), ": ", state, f", {takes}")


def _untold(node: admin_pb2.NodeDetail) -> Iterator[Text]:
    """Yield which schedulers have not been told what is so now, though nothing is under way."""
    for one in node.schedulers:
        if one.waiting_since_ns:
            yield Text(
                f"Scheduler of driver {one.driver}: not told yet; 'everstep drivers' shows when.",
                style="yellow",
            )


def _kept_by_others(ask: Ask, node: admin_pb2.NodeDetail) -> Iterator[Text]:
    """Yield what ends the claims that no operator's release ends."""
    for claim in node.summary.claims:
        if claim.owner == "scheduler":
            yield Text(
                f"Others withhold it at a scheduler ({claim.reason}); to end that, free it there.",
                style="yellow",
            )
    yield from _maintained(ask, node)


def _maintained(ask: Ask, node: admin_pb2.NodeDetail) -> Iterator[Text]:
    """Yield what ends the maintenance that a node is kept for: its window's claim is its own."""
    name = node.summary.node
    if not any(claim.owner == "maintenance" for claim in node.summary.claims):
        return
    known = ask.admin.call(lambda stub: stub.ListMaintenance, admin_pb2.ListMaintenanceRequest())
    for window in known.windows:
        if name in window.nodes and window.state in ("draining", "begun"):
            yield Text(
                f"It is kept for maintenance {window.window}; to end that: "
                f"everstep maintenance cancel {window.window}",
                style="yellow",
            )


def _paused(_: str, reply: admin_pb2.AutomationReply) -> Iterator[Text]:
    if not reply.paused:
        yield Text("Automation runs everywhere.")
    else:
        yield Text.assemble("Automation is paused for: ", (" ".join(reply.paused), "bold"))


@click.command()
@nodes_argument
@click.option("--reason", required=True, help="Kept in the audit log.")
@asks_controller
def drain(ask: Ask, names: list[str], reason: str) -> None:
    r"""Drain NODES: jobs leave them at a step boundary, and they take no new ranks.

    No work is lost: a job stops after a step that can be restored, and goes on with a spare, or
    with fewer nodes if it may. If it can do neither, it stays until a node joins. The answer says
    what will happen; 'everstep why NODE' and 'everstep events' show the progress, and 'everstep
    release NODE' cancels it. To have jobs leave at once, use 'everstep isolate'.

    \b
    Examples:
      everstep drain gpu-0042 --reason "fan replaced on Tuesday"
      everstep drain 'gpu-[0001-0016,0020]' --reason "new firmware"
    """

    def order(name: str) -> admin_pb2.DrainReply:
        request = admin_pb2.DrainRequest(node=name, reason=reason)
        return ask.admin.call(lambda stub: stub.Drain, request, name)

    each_node(ask, names, order, _leaving)


def _leaving(_: str, reply: admin_pb2.DrainReply) -> Iterator[Text]:
    yield Text.assemble((reply.node, "bold"), " takes no new ranks.")
    yield from map(Text, reply.plans or ["no job has ranks there"])


COMMANDS = (drain, isolate, release, pause, resume)
