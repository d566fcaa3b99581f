"""A real systemd, booted in a container: its services as the agent sees them, and our own units."""

import select
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.detectors.host.services import ServicesReading, UnitReading
from everstep_agent.probes.machine.services import ServicesProbe
from everstep_agent.probes.machine.system_bus import SystemBus
from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot, enable, program
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]

# Inside, where only the container's own loopback is.
_ASK = """\
#!/usr/bin/python3
from urllib.request import urlopen
print(urlopen("http://127.0.0.1:7435/metrics", timeout=5).read().decode())
"""
_UNIT = "[Service]\n{service}\n[Install]\nWantedBy=multi-user.target\n"
_UNITS = {
    "steady": _UNIT.format(service="ExecStart=/bin/sleep infinity"),
    "broken": _UNIT.format(service="ExecStart=/bin/false"),
    "flapping": "[Unit]\nStartLimitIntervalSec=0\n"
    + _UNIT.format(service="ExecStart=/bin/sleep 0.05\nRestart=always\nRestartSec=0.05"),
    "stopped": _UNIT.format(service="ExecStart=/bin/sleep infinity"),
    "skipped": "[Unit]\nConditionPathExists=/nowhere\n"
    + _UNIT.format(service="ExecStart=/bin/sleep infinity"),
    "once": _UNIT.format(service="Type=oneshot\nExecStart=/bin/true"),
}
_STARTED = [f"{name}.service" for name in ("steady", "flapping", "skipped", "once")]


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("box"), "everstep-services") as started:
        for name, text in _UNITS.items():
            started.install(f"{name}.service", text)
        enable(started, [f"{name}.service" for name in _UNITS])
        started.run("systemctl", "start", *_STARTED)
        started.run("systemctl", "start", "broken.service", check=False)
        yield started


@pytest.fixture
def probe(box: Box) -> Iterator[ServicesProbe]:
    names = [*(f"{name}.service" for name in _UNITS), "nothing.service"]
    bus = SystemBus(box.bus)
    yield ServicesProbe(Path("/sys"), names, bus)
    bus.close()


def _told(reading: ServicesReading) -> dict[str, UnitReading]:
    return {unit.name.removesuffix(".service"): unit for unit in reading.units}


def test_units_are_told_as_systemd_knows_them(probe: ServicesProbe) -> None:
    told: dict[str, UnitReading] = {}

    def settled() -> bool:
        # A unit that is not installed is asked for once a minute.
        told.update(_told(probe.read()))
        return told["broken"].active == "failed"

    wait_until(settled)
    steady = UnitReading(name="steady.service", restarts=0)
    assert told["steady"] == steady
    assert told["nothing"].load == "not-found"
    assert (told["stopped"].active, told["stopped"].file_state) == ("inactive", "enabled")
    assert (told["skipped"].active, told["skipped"].skipped) == ("inactive", True)
    assert (told["once"].active, told["once"].oneshot) == ("inactive", True)


def test_automatic_restarts_are_counted(probe: ServicesProbe) -> None:
    def restarts() -> int:
        return _told(probe.read())["flapping"].restarts or 0

    before = restarts()
    wait_until(lambda: restarts() >= before + 3)


def test_a_service_that_dies_is_told_at_once(box: Box, probe: ServicesProbe) -> None:
    # Alone, so that what is heard is not the one that flaps.
    bus = SystemBus(box.bus)
    alone = ServicesProbe(Path("/sys"), ["steady.service"], bus)
    assert _told(alone.read())["steady"].active == "active"
    with alone.signals() or pytest.fail("no signals") as signals:
        # Only it: what is left of its group may be gone while systemd looks at that.
        box.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", "steady.service")
        assert select.select([signals], [], [], 30.0)[0], "systemd said nothing"
        wait_until(lambda: _told(alone.read())["steady"].active == "failed")
    bus.close()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Both daemons, from the units and the examples that are shipped."""
    with booted(tmp_path_factory.mktemp("fleet"), "everstep-fleet") as started:
        shipped, root = REPOSITORY / "systemd", started.root
        programs = root / "opt/everstep/bin"
        programs.mkdir(parents=True)
        for daemon in ("agent", "controller"):
            path = programs / f"everstep-{daemon}"
            path.write_text(program(f"everstep_{daemon}"))
            path.chmod(0o755)
            shutil.copy(shipped / f"everstep-{daemon}.service", root / "etc/systemd/system")
        started.run("systemd-sysusers", "/opt/source/systemd/sysusers.d/everstep.conf")
        started.run("systemd-tmpfiles", "--create", "/opt/source/systemd/tmpfiles.d/everstep.conf")
        for daemon in ("agent", "controller"):
            shutil.copy(shipped / f"{daemon}.toml", root / "etc/everstep")
        (root / "opt/ask").write_text(_ASK)
        (root / "opt/ask").chmod(0o755)
        enable(started, [])
        started.run("systemctl", "start", "--no-block", "everstep-controller", "everstep-agent")
        yield started


@pytest.mark.parametrize("daemon", ["agent", "controller"])
def test_a_shipped_unit_becomes_ready_and_comes_back_when_it_is_killed(
    fleet: Box, daemon: str
) -> None:
    unit = f"everstep-{daemon}.service"

    def running() -> str | None:
        # Type=notify: it is active when the daemon has said READY=1.
        active = fleet.show(unit, "ActiveState") == "active"
        pid = fleet.show(unit, "MainPID")
        # It may have died between the two questions: then systemd knows no process of it.
        return pid if active and pid != "0" else None

    def replaced() -> str | None:
        pid = running()
        return pid if pid not in (None, first) else None

    try:
        first = wait_until(running, 60.0)
        restarts = int(fleet.show(unit, "NRestarts"))
        fleet.run("kill", "-KILL", first)
        wait_until(replaced, 60.0)
        assert int(fleet.show(unit, "NRestarts")) == restarts + 1
    finally:
        print(fleet.run("journalctl", "--no-pager", "--lines=50", f"--unit={unit}", check=False))


def test_the_shipped_agent_reaches_the_shipped_controller(fleet: Box) -> None:
    def connected() -> bool:
        return "everstep_agent_controller_connected 1.0" in fleet.run("/opt/ask", check=False)

    try:
        wait_until(connected, 60.0)
    finally:
        print(fleet.run("ls", "-l", "/run/everstep-controller", check=False))
        print(fleet.run("journalctl", "--no-pager", "--lines=50", check=False))


def test_the_confined_agent_may_ask_for_what_it_must_know(fleet: Box) -> None:
    def page() -> str | None:
        told = fleet.run("/opt/ask", check=False)
        return told if "everstep_node_clock_max_error_seconds" in told else None

    told = wait_until(page, 60.0)
    assert "everstep_node_service_active" in told
