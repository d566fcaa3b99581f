"""The health-check service of ft_launcher, asked as its client asks and reads."""

import asyncio
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import grpc
import pytest

from everstep_agent.health.nvhcd import HealthCheckServer, asked_for
from everstep_agent.health.report import HealthReport, Known, report_on
from everstep_common.clock import Stamp
from everstep_common.judging.book import BookEntry
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_proto.generated import nvhcd_pb2, nvhcd_pb2_grpc
from fakes.health_service import user_quota
from fakes.one_loop import run

_XID = Finding(
    component="gpu/0000:3b:00.0",
    condition="XidFatal",
    severity=Severity.FATAL,
    message="Xid 79, GPU has fallen off the bus",
    mode=Mode.ENFORCE,
    injected=True,
)
_SLOW = Finding(
    component="link/mlx5_0/1",
    condition="LinkSlow",
    severity=Severity.DEGRADED,
    message="link mlx5_0/1 runs below its speed",
)


class _Desk:
    """A node with these findings; keeps what it was asked."""

    def __init__(self, *findings: Finding) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._held = [BookEntry(finding, Stamp("b", 1, 1)) for finding in findings]

    def report(self, groups: Iterable[str]) -> HealthReport:
        wanted = tuple(groups)
        self.asked.append(wanted)
        known = Known(node="n", asked="agent", findings=self._held, looks=(), probes={})
        return report_on(known, wanted)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path: the name of a socket in it has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="es") as path:
        yield Path(path)


def _ask(path: Path, *arguments: str) -> tuple[bool, str]:
    """Return whether ft_launcher would go on with this node, and why not: as its client reads."""
    with grpc.insecure_channel(f"unix://{path}") as channel:
        stub = nvhcd_pb2_grpc.HealthCheckServiceStub(channel)
        request = nvhcd_pb2.HealthCheckRequest(args=arguments)
        response = stub.RunHealthCheck(request, timeout=20)
    if not response.success:
        assert response.exit_code != 0
        return False, response.output
    assert response.exit_code == 0
    result = json.loads(response.output)
    return result["fail_count"] == 0, " ".join(result["failed_checks"])


def _served(folder: Path, desk: _Desk, *arguments: str) -> tuple[bool, str]:
    async def scenario() -> tuple[bool, str]:
        server = HealthCheckServer(folder / "nvhcd.sock", desk, user_quota())
        task = asyncio.create_task(server.run())
        await server.ready.wait()
        assert (folder / "nvhcd.sock").stat().st_mode & 0o777 == 0o666
        try:
            return await asyncio.to_thread(_ask, folder / "nvhcd.sock", *arguments)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run(scenario())


def test_a_node_without_findings_goes_on(folder: Path) -> None:
    assert _served(folder, _Desk(), "--no-slurm") == (True, "")


def test_a_degraded_node_goes_on_as_well(folder: Path) -> None:
    assert _served(folder, _Desk(_SLOW), "--no-slurm") == (True, "")


def test_a_fatal_finding_takes_the_node_from_the_job_and_says_that_it_was_injected(
    folder: Path,
) -> None:
    fit, output = _served(folder, _Desk(_XID, _SLOW), "--no-slurm", "--group", "prolog", "gpu")
    assert not fit
    result = json.loads(output)
    assert result["fail_count"] == 1
    assert result["failed_checks"] == [
        "XidFatal on gpu/0000:3b:00.0: Xid 79, GPU has fallen off the bus [injected]"
    ]
    assert result["ignored_arguments"] == ["--no-slurm"]


def test_only_the_groups_that_are_asked_for_count(folder: Path) -> None:
    desk = _Desk(_XID)
    assert _served(folder, desk, "--group", "storage")[0]
    assert desk.asked == [("disk",)]


@pytest.mark.parametrize(
    ("arguments", "groups", "ignored"),
    [
        ([], (), ()),
        (["--no-slurm"], (), ("--no-slurm",)),
        (["--no-slurm", "--group", "gpu", "logs"], ("gpu", "kernel"), ("--no-slurm",)),
        (["--group=nic,gpu", "--json"], ("gpu", "ib", "net"), ("--json",)),
        (["--group", "gpu", "prolog"], (), ()),
        (["--group", "warp-core"], (), ("warp-core",)),
        (["stray", "--verbose", "x"], (), ("stray", "--verbose", "x")),
    ],
)
def test_arguments_are_honoured_as_far_as_they_are_known(
    arguments: list[str], groups: tuple[str, ...], ignored: tuple[str, ...]
) -> None:
    assert asked_for(arguments) == (groups, ignored)
