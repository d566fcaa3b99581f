"""What an agent tells of everything at once fits one message, whatever the users of a node have."""

from everstep_agent.message_fitting import (
    HELLO_BYTES_MAX,
    REPORT_BYTES_MAX,
    fitting_hello,
    fitting_report,
)
from everstep_agent.vault_reports import VaultReports
from everstep_proto.generated import fleet_pb2
from everstep_proto.message_sizes import TO_CONTROLLER_BYTES_MAX

_SKIPPED = [fleet_pb2.DataRange(first=10**17 + 2 * n, last=10**17 + 2 * n) for n in range(1000)]


def _stored(count: int) -> list[fleet_pb2.StoredStep]:
    """Return steps in storage, each with as much left-out data as a job may have."""
    return [
        fleet_pb2.StoredStep(generation=1, step=step, world_size=1, skipped=_SKIPPED)
        for step in range(count)
    ]


def _copies(count: int) -> list[fleet_pb2.VaultCopy]:
    return [
        fleet_pb2.VaultCopy(
            generation=10**17,
            rank=rank,
            step=10**17,
            size_bytes=2**40,
            root_hash=b"r" * 16,
            layout=b"l" * 16,
            needed_layout=b"n" * 16,
        )
        for rank in range(count)
    ]


def test_a_report_of_ordinary_size_is_the_same() -> None:
    # The largest node: 64 ranks, 8 copies of each, own ones and replicas; 100 steps in storage.
    report = fleet_pb2.VaultReport(job="j", copies=_copies(1024), stored=_stored(100)[:100])
    assert fitting_report(report) is report


def test_of_a_folder_with_too_many_steps_the_newest_are_told() -> None:
    report = fleet_pb2.VaultReport(job="j", copies=_copies(512), stored=_stored(1000))
    assert report.ByteSize() > TO_CONTROLLER_BYTES_MAX
    fitting = fitting_report(report)
    assert fitting.ByteSize() <= REPORT_BYTES_MAX
    assert len(fitting.copies) == 512
    assert fitting.stored[-1].step == 999
    assert len(report.stored) == 1000


def test_a_change_of_a_long_report_fits_too() -> None:
    reports = VaultReports()
    reports.put(fleet_pb2.VaultReport(job="j", copies=_copies(200_000)))
    first = reports.pop_next()
    reports.put(fleet_pb2.VaultReport(job="j", copies=_copies(1), stored=_stored(1000)))
    second = reports.pop_next()
    for told in (first, second):
        assert told is not None
        assert told.ByteSize() <= TO_CONTROLLER_BYTES_MAX


def test_a_hello_of_very_many_jobs_and_findings_fits() -> None:
    finding = fleet_pb2.Finding(component="c" * 100, condition="Odd", evidence="ü" * 4096)
    hello = fleet_pb2.Hello(
        node="n",
        jobs=[fleet_pb2.JobOnNode(job=f"{n}" * 30, job_id="x" * 200) for n in range(10_000)],
        open_findings=[finding] * 3000,
        ended_jobs=[fleet_pb2.EndedJob(job="j", job_id=f"j-{n}") for n in range(64)],
    )
    assert hello.ByteSize() > HELLO_BYTES_MAX
    fitting = fitting_hello(hello)
    assert fitting.ByteSize() <= HELLO_BYTES_MAX
    assert len(fitting.jobs) == 10_000
    # What only a controller needs that has lost its journal goes first.
    assert not fitting.ended_jobs
