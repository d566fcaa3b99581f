"""Where a record of an agent comes from, and when what it tells happened."""

from collections.abc import Callable
from dataclasses import dataclass

from everstep_controller.core.model.facts import Origin
from everstep_proto.generated import fleet_pb2

# No text of an agent's is kept beyond it.
TEXT_MAX = 4096


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Where a record comes from, and how its node's boot clock maps to controller time."""

    origin: Origin
    # (boot id, boot_ns) to controller time
    to_ns: Callable[[str, int], int]


def happened(record: fleet_pb2.Record, context: RecordContext, boot_ns: int = 0) -> int:
    """Return when it happened; the stamp stands in where a body has no time of its own."""
    return context.to_ns(record.stamp.boot_id, boot_ns or record.stamp.boot_ns)
