"""A database is put back to a moment while its controller runs, by the letter of the page."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.postgres_server import PostgresServer, binaries, postgres_server
from fakes.waits import wait_until
from integration.real_fleet import JOB, RealFleet, running_fleet
from integration.test_controller_recover import NODES, STEP_S, STEPS, acts, halted
from real.page_blocks import blocks, replaced

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(420),
    pytest.mark.skipif(
        binaries() is None or os.geteuid() != 0,
        reason="needs root and PostgreSQL (apt: postgresql)",
    ),
]
_PAGE, _HEADING = "docs/postgresql-ha.md", "A restore to a moment of the past"
_MOMENT = "2026-11-30 21:30:00+00"
# What the machine's service manager does for a server that has no unit.
_SYSTEMCTL = """\
#!/bin/sh -e
test "$2" = postgresql@15-main
as() {{ setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"; }}
case $1 in
    stop | restart) as {bin}/pg_ctl stop --wait --mode=fast --pgdata={data} ;;
esac
case $1 in
    start | restart)
        as {bin}/pg_ctl start --wait --timeout=100 --pgdata={data} --options="{options}" \\
            >>{log} 2>&1 </dev/null ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """The machine of the page: a server with its folders, and what is typed there."""

    server: PostgresServer
    places: dict[str, str]

    def type(self, block: str, **places: str) -> None:
        """Type a block of the page."""
        tools = self.server.folder / "tools"
        environment = os.environ | {
            "PATH": f"{tools}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.server.port),
        }
        told = subprocess.run(
            ["sh", "-e", "-c", replaced(block, self.places | places)],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=150,
            env=environment, cwd="/", check=False,
        )  # fmt: skip
        log = (self.server.folder / "log").read_text()[-2000:]
        assert told.returncode == 0, (block, told.stdout, log)


@contextmanager
def machine() -> Iterator[Machine]:
    with postgres_server() as server:
        folder, data = server.folder, server.folder / "data"
        folder.chmod(0o755)
        server.stop()
        options = f"-c port={server.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        (folder / "tools").mkdir()
        shim = folder / "tools" / "systemctl"
        shim.write_text(
            _SYSTEMCTL.format(bin=binaries(), data=data, log=folder / "log", options=options)
        )
        shim.chmod(0o755)
        places = {
            "/var/lib/postgresql/15/main": str(data),
            "/var/backups/postgresql": str(folder / "backups"),
        }
        one = Machine(server, places)
        one.type("systemctl start postgresql@15-main")
        try:
            yield one
        finally:
            one.type("systemctl stop postgresql@15-main")


def test_a_restore_to_a_moment_ends_the_controller_and_a_recovery_harms_no_job(
    tmp_path: Path,
) -> None:
    archive, restore, recover, clean_up = blocks(_PAGE, _HEADING, "sh")
    assert "everstep-controller recover --config" in recover
    with machine() as here:
        here.type(archive)
        url = here.server.url(here.server.new_database())
        with running_fleet(*NODES, journal_url=url) as fleet:
            fleet.launch(STEPS, STEP_S)
            fleet.until("steps", 60, lambda: fleet.step() > 20)
            fleet.until("a recoverable step", 30, lambda: fleet.sheet(JOB).has_recoverable)
            ((moment,),) = here.server.execute("select clock_timestamp()::text")
            reached = fleet.step()
            # More than its writer keeps of what it has written, and could write again.
            fleet.until("steps of 40 s", 200, lambda: fleet.step() > reached + round(40 / STEP_S))
            here.type(restore, **{_MOMENT: moment})
            assert "the database goes back to event" in end_of_the_controller(fleet)
            recovered_by_the_page(fleet)
        here.type(clean_up)


def end_of_the_controller(fleet: RealFleet) -> str:
    """Wait until the controller has ended by itself; return what it said."""
    controller = fleet.controller
    assert controller is not None
    wait_until(lambda: controller.exit_code is not None)
    fleet.controller = None
    assert controller.exit_code == 1
    return controller.log.read_text(encoding="utf-8")


def recovered_by_the_page(fleet: RealFleet) -> None:
    """See the controller halt, and recover; the job trains on all the time, in its generation."""
    fleet.start_controller()
    fleet.until("a halt", 40, lambda: "recover" in halted(fleet))
    reached = fleet.step()
    fleet.end_controller(signal.SIGTERM)
    fleet.start_controller("recover")
    fleet.until("the end of the recovery", 60, lambda: acts(fleet))
    fleet.end_controller(signal.SIGINT)
    fleet.start_controller()
    fleet.until("new steps", 60, lambda: fleet.step() > reached + 40)
    fleet.until("a running job", 60, lambda: fleet.job().state == "running")
    assert fleet.job().generation == 1
    assert set(fleet.first_steps()) == {1}
    assert fleet.replay().returncode == 0
