"""View of one node, and the warning of a controller that acts on nothing."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_cli.views.findings import finding_table
from everstep_cli.views.fleet import state_of
from everstep_proto.generated import admin_pb2


def halt(reason: str) -> Iterator[RenderableType]:
    """Yield the warning of a controller that acts on nothing."""
    if reason:
        yield Text(f"The controller acts on nothing: {reason}", style="bold red")
        yield ""


def node_sheet(node: admin_pb2.NodeDetail, now_ns: int) -> Iterator[RenderableType]:
    """Yield everything known of one node."""
    yield tables.facts(_facts(node, now_ns))
    if node.findings:
        yield tables.section("findings")
        yield finding_table([[one] for one in node.findings], now_ns, with_node=False)
    if node.schedulers:
        yield tables.section("schedulers")
        yield _schedulers(node, now_ns)
    if node.disks:
        yield tables.section("disks")
        yield _disks(node)
    if node.interfaces:
        yield tables.section("interfaces")
        yield _interfaces(node)
    if node.accelerators:
        yield tables.section("accelerators")
        yield _accelerators(node)
    if node.kernel_messages:
        yield tables.section("kernel messages")
        yield from (Text(line) for line in node.kernel_messages)


def _facts(node: admin_pb2.NodeDetail, now_ns: int) -> Iterator[tuple[str, tables.Cell]]:
    summary = node.summary
    since = formatting.duration(now_ns - summary.since_ns)
    yield "node", Text(summary.node, style="bold")
    yield "state", state_of(summary).append(f" for {since}")
    yield "because", summary.reason
    if summary.doubt:
        age = formatting.duration(now_ns - summary.doubted_ns)
        yield "doubtful", f"for {age}: {summary.doubt}"
    for claim in summary.claims:
        age = formatting.duration(now_ns - claim.since_ns)
        yield "claim", f"{claim.owner} for {age}: {claim.reason}"
    yield "window", summary.maintenance
    yield "foretold", node.swap_plan
    yield "no spare", summary.no_spare
    yield "stream", "open" if summary.connected else "closed"
    yield "jobs", " ".join(summary.jobs) or "none"
    yield "findings", "" if node.findings else "none"
    yield "domain", node.domain
    yield "groups", " ".join(summary.groups)
    yield "agent", node.agent_version
    yield "cpu", f"{summary.cpu_count} x {node.cpu_model or 'unknown model'}"
    yield "memory", formatting.size(summary.memory_bytes)
    yield "accelerators", "" if node.accelerators else summary.accelerators or "none"
    yield "kernel", node.kernel
    yield "boot", node.boot_id
    if node.clock_uncertainty_ns:
        yield "clock", f"known to ±{node.clock_uncertainty_ns / 1e6:.3f} ms"
    for note in node.notes:
        yield "note", note


def _schedulers(node: admin_pb2.NodeDetail, now_ns: int) -> RenderableType:
    made = tables.table("driver", "state", "work", "withheld", "as of", "told")
    for one in node.schedulers:
        whose = "for Everstep" if one.ours else "by others"
        told = "yes"
        if one.elsewhere:
            told = "no: its groups name other drivers"
        elif one.waiting_since_ns:
            waits = formatting.duration(now_ns - one.waiting_since_ns)
            told = f"not yet, for {waits}"
        made.add_row(
            one.driver,
            one.state or "not told",
            " ".join(one.work) or "none told",
            f"{whose}: {one.held}" if one.held else "no",
            f"{formatting.duration(round(one.age_s * 1e9))} ago" if one.HasField("age_s") else "-",
            told,
        )
    return made


def _disks(node: admin_pb2.NodeDetail) -> RenderableType:
    made = tables.table("device", "mount", "type", "size", "free", right=("size", "free"))
    for disk in node.disks:
        made.add_row(
            disk.device,
            disk.mount,
            disk.filesystem,
            formatting.size(disk.size_bytes),
            formatting.size(disk.free_bytes),
        )
    return made


def _interfaces(node: admin_pb2.NodeDetail) -> RenderableType:
    made = tables.table(
        "name", "kind", "link", "speed", "numa", "pci", "firmware", right=("speed", "numa")
    )
    for interface in node.interfaces:
        made.add_row(
            interface.name,
            interface.kind,
            Text("up", "green") if interface.up else Text("down", "yellow"),
            formatting.speed(interface.speed_bits_per_s),
            _numa(interface),
            interface.pci_address,
            interface.firmware,
        )
    return made


def _accelerators(node: admin_pb2.NodeDetail) -> RenderableType:
    made = tables.table(
        "name", "vendor", "memory", "numa", "pci", "nearest links", "uuid",
        right=("memory", "numa"), wrap=("nearest links",),
    )  # fmt: skip
    for device in node.accelerators:
        made.add_row(
            device.name,
            device.vendor,
            formatting.size(device.memory_bytes),
            _numa(device),
            device.pci_address,
            device.nearest,
            device.uuid,
        )
    return made


def _numa(part: admin_pb2.InterfaceLine | admin_pb2.AcceleratorLine) -> str:
    return str(part.numa_node) if part.HasField("numa_node") else ""
