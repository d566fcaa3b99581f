"""What a launcher has waiting is told by the agent: to the controller, and on its metrics page."""

from pathlib import Path

from everstep_common.reports import Standbys
from everstep_proto.generated import fleet_pb2
from integration.vault_world import Outlet, launcher, lived, running, settings


@lived
async def test_what_a_launcher_has_waiting_is_reported_until_it_is_gone(tmp_path: Path) -> None:
    async with running(settings(tmp_path, reconnect_grace_s=0.1)) as node:
        async with launcher(node) as one:
            node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
            await one.tell(Standbys(ready=3, making=1, memory_bytes=2**30))
            await node.outlet.until(lambda: _told(node.outlet) == (3, 1, ""))
            metrics = node.jobs.metrics()
            assert (metrics.standbys_ready, metrics.standbys_starting) == (3, 1)
            assert metrics.standby_memory_bytes == 2**30
            await one.tell(Standbys(ended="one takes 5.0 GiB"))
            await node.outlet.until(lambda: _told(node.outlet) == (0, 0, "one takes 5.0 GiB"))
        await node.outlet.until(lambda: _told(node.outlet) is None)
        assert node.jobs.metrics().standby_memory_bytes == 0


def _told(outlet: Outlet) -> tuple[int, int, str] | None:
    report = outlet.reports.get("demo")
    if report is None or not report.HasField("standbys"):
        return None
    return report.standbys.ready, report.standbys.making, report.standbys.ended
