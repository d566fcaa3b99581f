"""Message fitting: what an agent tells of everything at once, made short enough for one message.

How much there is to tell is up to the users of a node: what they store, and what they call jobs. A
message that is too long would end every stream, for all of them.
"""

import logging
from typing import TypeVar

from google.protobuf.message import Message

from everstep_proto.generated import fleet_pb2
from everstep_proto.message_sizes import TO_CONTROLLER_BYTES_MAX

logger = logging.getLogger(__name__)
# A change of a report lists what is new and what is gone, each as long as a report at most.
REPORT_BYTES_MAX = TO_CONTROLLER_BYTES_MAX // 2
HELLO_BYTES_MAX = TO_CONTROLLER_BYTES_MAX - 65_536
M = TypeVar("M", bound=Message)


def fitting_report(report: fleet_pb2.VaultReport) -> fleet_pb2.VaultReport:
    """Return a report that fits: without the oldest of what it lists, files before memory."""
    return _shortened(report, REPORT_BYTES_MAX, "persist_failures", "stored", "copies")


def fitting_hello(hello: fleet_pb2.Hello) -> fleet_pb2.Hello:
    """Return a Hello that fits: without what is not needed to go on, if need be."""
    if hello.ByteSize() > HELLO_BYTES_MAX:
        logger.warning("Hello is too long with the inventory: %d bytes", hello.ByteSize())
        hello.ClearField("inventory")
        hello.ClearField("findings_since")  # it goes by their order
    return _shortened(hello, HELLO_BYTES_MAX, "ended_jobs", "open_findings", "jobs")


def _shortened(message: M, bytes_max: int, *lists: str) -> M:
    if message.ByteSize() <= bytes_max:
        return message
    kept = type(message)()
    kept.CopyFrom(message)
    for name in lists:
        items = getattr(kept, name)
        while items and kept.ByteSize() > bytes_max:
            del items[: (len(items) + 1) // 2]
    kind = message.DESCRIPTOR.name
    logger.warning(
        "a %s of %d bytes is too long for the controller, and was shortened to %d",
        kind,
        message.ByteSize(),
        kept.ByteSize(),
    )
    return kept
