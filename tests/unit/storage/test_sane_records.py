"""Records of a job's folder, which its user may write: numbers that nobody could count with."""

import pytest

from everstep_agent.storage.formats.records import LatestPointer, StepKey, StepManifest, is_sane
from everstep_common import quantities as q
from everstep_common.reports import StoredStep
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire, to_wire

_LATEST = LatestPointer(generation=3, target=StepKey(2, 7), world_size=4, size_bytes=1)


def _with(**fields: object) -> LatestPointer:
    values = {"generation": 3, "target": StepKey(2, 7), "world_size": 4, "size_bytes": 1}
    return LatestPointer(**(values | fields))  # type: ignore[arg-type]


def test_what_everstep_writes_is_sane() -> None:
    assert is_sane(_LATEST)
    assert is_sane(_with(target=None))
    assert is_sane(_with(world_size=q.RANKS_MAX, target=StepKey(q.TOLD_MAX, q.TOLD_MAX)))


@pytest.mark.parametrize(
    "fields",
    [
        # The controller goes through the ranks of what it is told one by one.
        {"world_size": q.RANKS_MAX + 1},
        {"world_size": 2**31 - 1},
        {"target": StepKey(0, q.TOLD_MAX + 1)},
        {"target": StepKey(2**62, 0)},
        {"target": StepKey(-1, 0)},
        {"generation": q.TOLD_MAX + 1},
        {"size_bytes": -1},
    ],
)
def test_a_pointer_with_a_number_that_nobody_counts_with_is_none(fields: dict[str, object]) -> None:
    assert not is_sane(_with(**fields))


def test_a_manifest_of_a_step_that_nobody_counts_with_is_none() -> None:
    key = StepKey(1, q.TOLD_MAX + 1)
    assert not is_sane(StepManifest(job="j", key=key, world_size=1, files=()))


def test_what_is_sane_is_what_the_controller_can_use() -> None:
    """The limits of the files are those of the reports, so no user's file is sent in vain."""
    most = StoredStep(q.TOLD_MAX, q.TOLD_MAX, q.RANKS_MAX, "5a", 2**62)
    assert from_wire(StoredStep, to_wire(most, fleet_pb2.StoredStep)) == most
