"""Storage message conversion: between steps in storage and the controller's messages. Pure."""

from collections.abc import Iterable

from everstep_agent.storage.formats.records import StepKey, StoredFile, WholeStep
from everstep_agent.storage.worker.messages import MoveLatest, StorageLocation
from everstep_common.trainer_messages import DataRange
from everstep_proto.generated import fleet_pb2


def move_latest_from_wire(publish: fleet_pb2.Publish, location: StorageLocation) -> MoveLatest:
    """Return what a storage worker is to do to publish a step."""
    return MoveLatest(
        location=location,
        generation=publish.generation,
        target=stored_from_wire(publish.target) if publish.HasField("target") else None,
        files=tuple(
            StoredFile(file.rank, file.root_hash, file.size_bytes, file.layout)
            for file in publish.files
        ),
        keep=tuple(StepKey(step.generation, step.step) for step in publish.keep),
        skipped=ranges_from_wire(publish.skipped),
    )


def ranges_from_wire(ranges: Iterable[fleet_pb2.DataRange]) -> tuple[DataRange, ...]:
    """Return data that a job leaves out."""
    return tuple(DataRange(one.first, one.last) for one in ranges)


def ranges_to_wire(ranges: Iterable[DataRange]) -> list[fleet_pb2.DataRange]:
    """Return data that a job leaves out as it is told."""
    return [fleet_pb2.DataRange(first=one.first, last=one.last) for one in ranges]


def stored_from_wire(step: fleet_pb2.StoredStep) -> WholeStep:
    """Return a step as the controller names it; its hash is empty before there is a manifest."""
    key = StepKey(step.generation, step.step)
    return WholeStep(key, step.world_size, step.manifest_hash, step.size_bytes)


def stored_to_wire(stored: WholeStep) -> fleet_pb2.StoredStep:
    """Return a step as it is reported."""
    return fleet_pb2.StoredStep(
        generation=stored.key.generation,
        step=stored.key.step,
        world_size=stored.world_size,
        manifest_hash=stored.manifest_hash,
        size_bytes=stored.size_bytes,
        skipped=ranges_to_wire(stored.skipped),
    )
