"""One run of the demo: sets it up, plays it, reports, and cleans up."""

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everstep_cli.admin import AdminError
from everstep_cli.connection import Connection
from everstep_cli.demo.audience import Audience
from everstep_cli.demo.cluster import JOB, DemoCluster
from everstep_cli.demo.play import Play
from everstep_cli.demo.processes import Household
from everstep_cli.demo.report import DemoReport
from everstep_cli.demo.stage import DemoError, Stage
from everstep_cli.grpc_admin import connect
from everstep_proto.generated import admin_pb2

_ASK_TIMEOUT_S = 2.0
_ENDING = {signal.SIGINT, signal.SIGTERM}


def perform(audience: Audience, steps: int, keep: Path | None) -> DemoReport:
    """Play the demo and clean up after it. Only in the main thread; Ctrl-C raises afterwards."""
    began = time.monotonic()
    with _household(keep) as (household, folder):
        cluster = DemoCluster.plan(folder, household, steps)
        connection = Connection(address=cluster.address, timeout_s=_ASK_TIMEOUT_S)
        with connect(connection) as admin:
            play = Play(cluster, Stage(household, admin, audience, JOB))
            trouble = _play(play)
            if trouble and keep is None:
                trouble += "; to keep the logs: everstep demo --keep DIR"
            return DemoReport(
                duration_s=time.monotonic() - began,
                steps=steps,
                claims=tuple(play.claims),
                ledger=_ledger(play.stage),
                losses=play.losses,
                trouble=trouble,
            )


def _play(play: Play) -> str:
    try:
        play.perform()
    except (DemoError, AdminError) as error:
        return str(error)
    finally:
        play.stage.audience.leave()
    return ""


def _ledger(stage: Stage) -> admin_pb2.Ledger | None:
    try:
        return stage.admin.ledger(stage.job)
    except AdminError:
        return None


@contextmanager
def _household(keep: Path | None) -> Iterator[tuple[Household, Path]]:
    """Make the folder and its janitor, and turn SIGTERM into the way out that Ctrl-C takes."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Not between a folder and the janitor who is to remove it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    folder = keep or Path(tempfile.mkdtemp(prefix="everstep-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    household = Household(folder, keep=keep is not None)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        yield household, folder
    finally:
        # A second Ctrl-C must not end the cleaning; the janitor hears neither.
        interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)
        household.close()
        signal.signal(signal.SIGINT, interrupted)
        signal.signal(signal.SIGTERM, before)
