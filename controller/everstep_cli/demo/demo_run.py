"""One run of the demo: sets up, plays the scenario, reports, and cleans up."""

import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from everstep_cli.client.admin import AdminError
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_cli.demo.cluster import JOB, DemoCluster
from everstep_cli.demo.cluster_watch import ClusterWatch, DemoError
from everstep_cli.demo.display import Display
from everstep_cli.demo.processes import OwnedProcesses
from everstep_cli.demo.report import DemoReport
from everstep_cli.demo.scenario import Scenario
from everstep_proto.generated import admin_pb2

_ASK_TIMEOUT_S = 2.0
_ENDING = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class DemoPage:
    """The page of a demo: who is told its address, and who looks at it when all is played."""

    opened: Callable[[str], None]
    # Is handed the report and the newest address; the cluster runs until it returns.
    stay: Callable[[DemoReport, str], None]


def run_demo(
    display: Display, steps: int, keep: Path | None, page: DemoPage | None = None
) -> DemoReport:
    """Play the demo and clean up after it. Only in the main thread; Ctrl-C raises afterwards."""
    began = time.monotonic()
    with _owned_processes(keep) as (owned, folder):
        cluster = DemoCluster.plan(folder, owned, steps)
        connection = Connection(address=cluster.address, timeout_s=_ASK_TIMEOUT_S)
        with connect(connection) as admin:
            scenario = Scenario(cluster, ClusterWatch(owned, admin, display, JOB))
            scenario.page_opened = page.opened if page is not None else None
            trouble = _run_scenario(scenario)
            if trouble and keep is None:
                trouble += "; to keep the logs: everstep demo --keep DIR"
            report = DemoReport(
                duration_s=time.monotonic() - began,
                steps=steps,
                claims=tuple(scenario.claims),
                ledger=_ledger(scenario.watch),
                losses=scenario.losses,
                trouble=trouble,
            )
            if page is not None and (address := cluster.page_address()):
                page.stay(report, address)
            return report


def _run_scenario(scenario: Scenario) -> str:
    try:
        scenario.run()
    except (DemoError, AdminError) as error:
        return str(error)
    finally:
        scenario.watch.display.close()
    return ""


def _ledger(watch: ClusterWatch) -> admin_pb2.Ledger | None:
    try:
        return watch.ledger()
    except AdminError:
        return None


@contextmanager
def _owned_processes(keep: Path | None) -> Iterator[tuple[OwnedProcesses, Path]]:
    """Make the folder and its reaper, and turn SIGTERM into the way out that Ctrl-C takes."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Not between a folder and the reaper who is to remove it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    folder = keep or Path(tempfile.mkdtemp(prefix="everstep-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    owned = OwnedProcesses(folder, keep=keep is not None)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        yield owned, folder
    finally:
        # A second Ctrl-C must not end the cleaning; the reaper hears neither.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        owned.close()
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, before)
