"""The shipped unit of the page under a booted systemd: what it shows, and says where it cannot."""

import re
import shutil
from collections.abc import Iterator

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot, enable, program
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(400),
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_UNIT = "everstep-page.service"
_ADDRESS = "/run/everstep-page/address"
# Inside, as a browser does: the address, its cookie, and then the fleet and who one is.
_LOOK = """\
#!/usr/bin/python3
import sys
from http.cookiejar import CookieJar
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener
browser = build_opener(HTTPCookieProcessor(CookieJar()))
address = open("/run/everstep-page/address").read().strip()
for place in (address, address.partition("/login")[0] + "/session"):
    try:
        print(browser.open(place, timeout=10).read().decode())
    except HTTPError as error:
        print(error.code, error.read().decode())
"""
# As the proxy's login: a request at the socket, with the header of a proxy.
_PROXY = """\
#!/usr/bin/python3
import socket
connection = socket.socket(socket.AF_UNIX)
connection.settimeout(10)
connection.connect("/run/everstep-page/page.sock")
connection.sendall(
    b"GET /session HTTP/1.1\\r\\nHost: fleet.example\\r\\nX-Remote-User: ann\\r\\n"
    b"Connection: close\\r\\n\\r\\n"
)
while told := connection.recv(65536):
    print(told.decode(), end="")
"""
_PROXIED = """\
EVERSTEP_PAGE_LISTEN=unix:/run/everstep-page/page.sock
EVERSTEP_PAGE_NAMES=fleet.example
EVERSTEP_PAGE_PROXY_USER=www-data
EVERSTEP_PAGE_USER_HEADER=X-Remote-User
EVERSTEP_PAGE_OPERATORS=ann bob
"""
_NO_CERTIFICATE = """\
EVERSTEP_CONTROLLER=control.cluster.example:7433
EVERSTEP_TLS_CA=/etc/everstep/tls/ca.pem
EVERSTEP_TLS_CERTIFICATE=/etc/everstep/tls/fleet.pem
EVERSTEP_TLS_KEY=/etc/everstep/tls/fleet.key
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Yield a machine with the controller and the page, installed as the documentation says."""
    with booted(tmp_path_factory.mktemp("page"), "everstep-page") as started:
        shipped, root = REPOSITORY / "systemd", started.root
        programs = root / "opt/everstep/bin"
        programs.mkdir(parents=True)
        scripts = {
            "opt/everstep/bin/everstep-controller": program("everstep_controller"),
            "opt/everstep/bin/everstep": program("everstep_cli"),
            "opt/look": _LOOK,
            "opt/proxy": _PROXY,
        }
        for place, text in scripts.items():
            (root / place).write_text(text)
            (root / place).chmod(0o755)
        for unit in ("everstep-controller.service", _UNIT):
            shutil.copy(shipped / unit, root / "etc/systemd/system")
        started.run("systemd-sysusers", "/opt/source/systemd/sysusers.d/everstep.conf")
        started.run("systemd-tmpfiles", "--create", "/opt/source/systemd/tmpfiles.d/everstep.conf")
        shutil.copy(shipped / "controller.toml", root / "etc/everstep")
        enable(started, [])
        started.run("systemctl", "start", "--no-block", "everstep-controller", "everstep-page")
        try:
            yield started
        finally:
            print(_journal(started))


def _journal(machine: Box) -> str:
    return machine.run("journalctl", "--no-pager", "--lines=60", f"--unit={_UNIT}", check=False)


def _restart(machine: Box, environment: str) -> None:
    (machine.root / "etc/everstep/page.env").write_text(environment)
    machine.run("systemctl", "reset-failed", _UNIT, check=False)
    machine.run("systemctl", "restart", "--no-block", _UNIT)


def _has_address(machine: Box) -> bool:
    return machine.run("test", "-s", _ADDRESS, check=False) == "" and bool(
        machine.run("cat", _ADDRESS, check=False)
    )


def test_the_unit_shows_the_fleet_to_who_opens_its_address(machine: Box) -> None:
    wait_until(lambda: _has_address(machine), 120)

    def fleet() -> str | None:
        # Each look uses an address up; the next one is there before the answer.
        told = machine.run("/opt/look", check=False)
        return told if "0 nodes" in told or ("<h1" in told and "No answer" not in told) else None

    told = wait_until(fleet, 60)
    assert "somebody with an address of this page, viewer" in told
    mode = machine.run("stat", "--format=%a %U %n", _ADDRESS, "/run/everstep-page")
    assert mode.splitlines() == [
        f"600 everstep-controller {_ADDRESS}",
        "711 everstep-controller /run/everstep-page",
    ]
    # Nobody but root and the service reads it; and no token is in the journal.
    refused = machine.run("runuser", "-u", "nobody", "--", "cat", _ADDRESS, check=False)
    assert refused == ""
    assert "token=" not in _journal(machine)


def test_its_sandbox_is_tight(machine: Box) -> None:
    told = machine.run("systemd-analyze", "security", "--no-pager", _UNIT)
    print(told)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", told)
    assert score is not None
    assert float(score[1]) <= 2.0


def test_a_controller_that_is_away_is_said_on_the_page_and_ends_nothing(machine: Box) -> None:
    wait_until(lambda: _has_address(machine), 60)
    machine.run("systemctl", "stop", "everstep-controller")
    try:
        # An answer is kept for a second.
        wait_until(lambda: "no controller answers" in machine.run("/opt/look"), 60)
        assert "502" in machine.run("/opt/look")
        assert machine.show(_UNIT, "ActiveState") == "active"
    finally:
        machine.run("systemctl", "start", "--no-block", "everstep-controller")


def test_a_proxy_of_the_machine_is_heard_and_no_other_user(machine: Box) -> None:
    _restart(machine, _PROXIED)
    socket = "/run/everstep-page/page.sock"
    wait_until(lambda: machine.run("ls", socket, check=False) == socket, 60)

    def ask(login: str) -> str:
        return machine.run("runuser", "-u", login, "--", "/opt/proxy", check=False)

    try:
        assert "ann, operator" in wait_until(lambda: ask("www-data"), 30)
        assert "ann" not in ask("nobody")
    finally:
        _restart(machine, "")


def test_a_certificate_that_is_missing_is_said_in_the_journal(machine: Box) -> None:
    _restart(machine, _NO_CERTIFICATE)
    try:
        wait_until(lambda: "/etc/everstep/tls/" in _journal(machine), 60)
        said = _journal(machine)
        assert "No such file or directory" in said
        assert "Traceback" not in said
    finally:
        _restart(machine, "")


def test_an_address_off_the_machine_without_tls_is_refused_with_what_to_do(machine: Box) -> None:
    _restart(machine, "EVERSTEP_PAGE_LISTEN=0.0.0.0:7436\n")
    try:
        wait_until(lambda: machine.show(_UNIT, "ActiveState") == "failed", 60)
        assert "needs TLS: --certificate and --key" in _journal(machine)
    finally:
        _restart(machine, "")
