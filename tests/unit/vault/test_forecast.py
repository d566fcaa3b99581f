"""What a job will need, and what is said when it is not there."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.memory.capacity import (
    SLOTS_MIN,
    Capacity,
    MemoryForecast,
    NodeCapacity,
    forecast_refusal,
)

_JOB = MemoryForecast(processes=2, snapshot_bytes=100, slots=3, replicas=False)


def _left(size_bytes: int, whose: str = "this node can spare") -> Capacity:
    return Capacity(size_bytes, whose, NodeCapacity(size_bytes))


def test_a_job_on_one_node_needs_its_slots_and_one_with_others_replicas_too() -> None:
    assert _JOB.total_bytes() == 600
    assert replace(_JOB, replicas=True).total_bytes() == 1200


def test_a_rank_that_has_its_slots_needs_them_and_no_more() -> None:
    assert _JOB.total_bytes([]) == 600
    assert _JOB.total_bytes([150]) == 150 + 300
    assert _JOB.total_bytes([150, 900]) == 1050
    assert replace(_JOB, replicas=True).total_bytes([150, 150]) == 600


def test_what_fits_is_not_refused() -> None:
    assert forecast_refusal(_JOB, _left(600)) is None


def test_a_refusal_says_what_would_fit() -> None:
    said = forecast_refusal(
        replace(_JOB, replicas=True), _left(800, "jobs.memory_bytes_max leaves")
    )
    assert said == (
        "snapshots of this job take 1.2 KiB on this node (2 ranks x 100 bytes x 3 slots and "
        "replicas) and jobs.memory_bytes_max leaves 800 bytes; 66 bytes a rank would fit, or 2 "
        "slots each (jobs.slots_per_rank of the agent)"
    )


def test_where_fewer_slots_do_not_help_it_says_what_else_to_do() -> None:
    said = forecast_refusal(_JOB, _left(90))
    assert said is not None
    assert said.endswith(
        "15 bytes a rank would fit; save a share in each data-parallel rank, or "
        "use fewer ranks on a node"
    )


@given(
    st.builds(
        MemoryForecast, st.integers(1, 16), st.integers(1, 1000), st.integers(2, 5), st.booleans()
    ),
    st.integers(0, 50_000),
)
def test_what_is_said_to_fit_does(job: MemoryForecast, left: int) -> None:
    room = _left(left)
    said = forecast_refusal(job, room)
    assert (said is None) == (job.total_bytes() <= left)
    if said is None:
        return
    smaller = replace(job, snapshot_bytes=left // job.copies_max(job.slots))
    assert forecast_refusal(smaller, room) is None
    for slots in range(SLOTS_MIN, job.slots):
        if f" {slots} slots each" in said:
            assert forecast_refusal(replace(job, slots=slots), room) is None
