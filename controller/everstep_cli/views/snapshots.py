"""View of a job's snapshots: its steps, their copies, and the step that it would go back to."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from everstep_cli.views import formatting, tables
from everstep_proto.generated import admin_pb2

# Longer lists of nodes are counted: they would hide what the table is about.
_NODES_WIDTH_MAX = 30

_STEPS_SHOWN = 4
_STYLES = {"complete": "green", "partial": "dim", "probation": "yellow", "blacklisted": "red"}


def snapshot_sheet(table: admin_pb2.Snapshots, now_ns: int) -> Iterator[RenderableType]:
    """Yield where the job would go back to and why, then every step with its copies."""
    yield tables.facts(_facts(table, now_ns))
    if not table.steps:
        return
    yield ""
    yield _steps(table, now_ns)
    told = list(_sentences(table))
    if told:
        yield ""
    yield from told


def storage_facts(storage: admin_pb2.StorageLine, now_ns: int) -> Iterator[tuple[str, tables.Cell]]:
    """Yield where the state is brought to, how often, how far that is, and what went wrong."""
    yield "storage", f"{storage.path} {_how_often(storage)}, keeps {storage.keep} complete steps"
    if storage.has_step:
        ago = formatting.duration(now_ns - storage.stored_ns)
        age = f", {ago} ago" if storage.stored_ns else ""
        size = f", {formatting.size(storage.size_bytes)}" if storage.size_bytes else ""
        yield "stored", f"step {storage.step} of generation {storage.generation}{age}{size}"
    else:
        yield "stored", "no complete step yet"
    if storage.pending:
        steps = ", ".join(str(step) for step in storage.pending)
        yield "storing", f"{'step' if len(storage.pending) == 1 else 'steps'} {steps}"
    if storage.failure:
        yield "not stored", Text(f"step {storage.failed_step}: {storage.failure}", style="red")


def cadence_line(cadence: admin_pb2.Cadence) -> str:
    """Return how often a job is snapshotted and why; empty while that is not decided."""
    if not cadence.every:
        return cadence.reason
    often = "every step" if cadence.every == 1 else f"every {cadence.every} steps"
    snapshots = formatting.count(cadence.skipped, "snapshot")
    skipped = f"; {snapshots} skipped" if cadence.skipped else ""
    return f"{cadence.reason or often}{skipped}"


def copy_lines(copies: Iterable[admin_pb2.CopyLine]) -> Iterator[str]:
    """Yield a line for each copy, as they come: there may be a hundred thousand."""
    row = "{:>9} {:>10} {:>6} {:<14} {:>8} {:<12} {}"
    number = 0
    for number, copy in enumerate(copies, 1):
        if number == 1:
            yield row.format("step", "generation", "rank", "tier", "size", "hash", "node")
        yield row.format(
            copy.step,
            copy.generation,
            copy.rank,
            copy.tier,
            formatting.size(copy.size_bytes),
            copy.root_hash[:12],
            copy.node + (", away" if copy.unreachable else ""),
        )
    if not number:
        yield "No node holds such a copy."


def forgotten(reply: admin_pb2.ForgetJobReply) -> Iterator[Text]:
    """Yield a sentence for each thing that became of the memory of a job."""
    name = (reply.job, "bold")
    if reply.dropped:
        size = formatting.size(reply.dropped_bytes)
        yield Text.assemble(
            name, f": {size} of snapshots dropped from memory on ", _on(reply.dropped)
        )
    if reply.dropping:
        size, nodes = formatting.size(reply.dropping_bytes), _on(reply.dropping)
        yield Text.assemble(
            name, f": {size} of snapshots still being dropped on {nodes}; ask again"
        )
    if reply.away:
        size, nodes = formatting.size(reply.away_bytes), _on(reply.away)
        what = f"{size} of snapshots on {nodes}" if reply.away_bytes else f"what {nodes} keeps"
        yield Text.assemble(name, f": {what}, away now: dropped when back")
    if not (reply.dropped or reply.dropping or reply.away):
        yield Text.assemble(name, ": no node keeps memory of it")
    if reply.stays:
        yield Text(f"Its files under {reply.stays} stay; they are its user's.")


def _facts(table: admin_pb2.Snapshots, now_ns: int) -> Iterator[tuple[str, tables.Cell]]:
    step = f", step {table.step}" if table.has_step else ""
    yield "job", Text.assemble(
        (table.job, "bold"), ", ", formatting.state(table.state),
        f", generation {table.generation}{step}",
    )  # fmt: skip
    yield "restore step", _restores(table)
    yield "not newer", table.not_newer
    if table.has_recoverable:
        yield "recoverable", _recoverable(table)
    yield "snapshots", cadence_line(table.cadence)
    yield "slots", _slots(table.cadence)
    yield "a state", _size(table)
    if table.HasField("storage"):
        yield from storage_facts(table.storage, now_ns)
    if table.bad_copies:
        yield "bad copies", f"{table.bad_copies} ('everstep events --subject {table.job}' has them)"
    if table.forgotten_by:
        yield "forgotten", f"its memory was dropped by {table.forgotten_by}"


def _restores(table: admin_pb2.Snapshots) -> Text:
    if not table.has_restore:
        without = bool(table.cadence.reason) and not table.cadence.every
        why = "its script takes no snapshots" if without else table.restore_reason
        return Text.assemble(("nothing", "bold"), f": {why}")
    step = f"step {table.restore_step}"
    # The sentence of the catalogue names the step itself.
    reason = table.restore_reason.removeprefix(f"{step} ")
    return Text.assemble((step, "bold"), " " if reason != table.restore_reason else ": ", reason)


def _recoverable(table: admin_pb2.Snapshots) -> str:
    behind = table.steps_behind
    steps = f", {formatting.count(behind, 'step')} behind" if behind else ""
    age = formatting.duration(table.recoverable_age_ns)
    lasts = (
        "survives the loss of any one node" if table.members > 1 else "lasts while its node does"
    )
    return f"step {table.recoverable_step} {lasts}, {age} old{steps}"


def _slots(cadence: admin_pb2.Cadence) -> str:
    if not cadence.slots:
        return ""
    usual = _taken(cadence.slot_taken_p50_ns)
    slow = _taken(cadence.slot_taken_p99_ns)
    return f"{cadence.slots} for each rank, free again {usual} after a snapshot (p99 {slow})"


def _taken(ns: int) -> str:
    """Return how long a slot is taken, to two digits of a second where it is short."""
    return f"{ns / 1e9:.2g} s" if ns < 10_000_000_000 else formatting.duration(ns)


def _size(table: admin_pb2.Snapshots) -> str:
    whole = [line for line in table.steps if line.parts and line.parts == line.parts_held]
    if not whole:
        return ""
    return f"{formatting.size(whole[0].size_bytes)} in {formatting.count(whole[0].parts, 'part')}"


def _how_often(storage: admin_pb2.StorageLine) -> str:
    steps = formatting.count(storage.every_steps, "step") if storage.every_steps != 1 else "step"
    by_steps = f"every {steps}" if storage.every_steps else ""
    by_time = f"every {formatting.duration(storage.every_ns)}" if storage.every_ns else ""
    return " or ".join(filter(None, (by_steps, by_time))) or "when the job stops"


def _steps(table: admin_pb2.Snapshots, now_ns: int) -> Table:
    made = tables.table(
        "", "step", "generation", "age", "state", "copies",
        right=("step", "generation"), wrap=("copies",),
    )  # fmt: skip
    goal = (table.restore_generation, table.restore_step) if table.has_restore else None
    for line in table.steps:
        chosen = (line.generation, line.step) == goal
        made.add_row(
            "→" if chosen else "",
            str(line.step),
            str(line.generation),
            formatting.duration(now_ns - line.ended_ns) if line.ended_ns else "-",
            Text(line.state, style=_STYLES.get(line.state, "cyan")),
            "\n".join(_tier(tier, line) for tier in line.tiers) or "-",
            style="bold" if chosen else None,
        )
    return made


def _sentences(table: admin_pb2.Snapshots) -> Iterator[Text]:
    """Yield what is to say of steps that are not simply whole; the same of several steps once."""
    alike: dict[tuple[str, str], list[int]] = {}
    for line in table.steps:
        if line.reason and not table.not_newer.endswith(line.reason):
            alike.setdefault((line.state, line.reason), []).append(line.step)
    for (state, reason), steps in alike.items():
        shown = ", ".join(str(step) for step in steps[:_STEPS_SHOWN])
        more = f" and {len(steps) - _STEPS_SHOWN} more" if len(steps) > _STEPS_SHOWN else ""
        which = f"{'step' if len(steps) == 1 else 'steps'} {shown}{more}"
        yield Text.assemble((which, "bold"), f", {state}: {reason}")


def _tier(tier: admin_pb2.TierLine, line: admin_pb2.StepLine) -> str:
    part = "all" if tier.parts >= line.parts else f"{tier.parts} of {line.parts}"
    return f"{tier.tier}: {part}" + (f" on {_on(tier.nodes)}" if tier.nodes else "")


def _on(nodes: Iterable[str]) -> str:
    known = list(nodes)
    shown = formatting.names(known)
    return shown if len(shown) <= _NODES_WIDTH_MAX else formatting.count(len(known), "node")
