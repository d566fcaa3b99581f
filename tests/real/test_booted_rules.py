"""Words of a site on a booted machine: its rules, a daemon's log, a scheduler without the node."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_fleet
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]

_PATIENCE_S = 120.0
_RULES = r"""
[conditions.PduPhaseLost]
component = "pdu/NAME"
meaning = "a power unit has lost a phase"
finding.component = "pdu/{unit}"
finding.message = "power unit {unit} has lost phase {phase}"

[[rules]]
name = "pdu-phase-lost"
condition = "PduPhaseLost"
needle = "pdumon"
pattern = 'pdumon (?P<unit>[\w-]{1,32}): phase (?P<phase>\d) lost'
source = "pdumon 2.1, report_phase()"
examples = '''
pdu/left pdumon left: phase 2 lost, 187 V
'''
"""
_LOG = "var/log/daemons.log"
_STAMP = "Nov  3 12:00:01 gpu-1"
_SMARTD = (
    f"{_STAMP} smartd[812]: Device: /dev/sdq [SAT], FAILED SMART self-check. BACK UP DATA NOW!"
)
# A user's words, as `logger` writes them, and the daemon's own that mean nothing.
_OTHERS = (
    f"{_STAMP} alice: Device: /dev/sdr [SAT], FAILED SMART self-check. BACK UP DATA NOW!",
    f"{_STAMP} smartd[812]: Device: /dev/sds [SAT], is SMART capable.",
)
# A scheduler that has none of our nodes, and says so; what it was asked, it writes down.
_SCHEDULER = """\
#!/bin/sh
read -r request
echo "$request" >> /var/lib/everstep-controller/asked
case $request in
*'"read"'*) echo '{"holds": {}}' ;;
*) echo '{"now": {}, "unmanaged": ["gpu-1"]}' ;;
esac
"""
_EVERSTEP = "import sys; from everstep.entry import main; sys.exit(main())"
_CONTROLLER = "unix:/run/everstep-controller/controller.sock"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A machine with both daemons, as they are shipped, and a site's own files."""
    with booted(tmp_path_factory.mktemp("box"), "everstep-rules") as started:
        etc = started.root / "etc/everstep"
        etc.mkdir(parents=True, exist_ok=True)
        program = started.root / "usr/local/sbin/isolate-nodes"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(_SCHEDULER)
        program.chmod(0o755)
        (etc / "rules.d").mkdir()
        (etc / "rules.d/pdu.toml").write_text(_RULES)
        _make_log(started)
        install_fleet(started, ("[Service]\nSupplementaryGroups=adm\n",))
        _change(etc / "agent.toml", 'node = "gpu-1"', f'system_log = "/{_LOG}"')
        driver = "[drivers.command]"
        _change(etc / "controller.toml", driver, 'argv = ["/usr/local/sbin/isolate-nodes"]')
        started.run("systemctl", "restart", "everstep-controller", "everstep-agent")
        try:
            wait_until(lambda: "gpu-1" in _everstep(started, "nodes"), _PATIENCE_S)
            yield started
        finally:
            units = ("--unit=everstep-agent", "--unit=everstep-controller")
            print(started.run("journalctl", "--no-pager", "--lines=80", *units, check=False))


def _make_log(box: Box) -> None:
    """Make a system log as Debian's rsyslog does: root's, and readable by the group adm."""
    log = box.root / _LOG
    log.write_text("")
    box.run("chown", "root:adm", f"/{_LOG}")
    log.chmod(0o640)


def _change(path: Path, *lines: str) -> None:
    """Put lines before the first table of a file, or at the end of one where they begin one."""
    text = path.read_text()
    words = "\n".join(lines) + "\n"
    path.write_text(text + words if lines[0].startswith("[") else words + text)


def _everstep(box: Box, *words: str) -> str:
    environment = (f"EVERSTEP_CONTROLLER={_CONTROLLER}", "COLUMNS=200")
    return box.run("env", *environment, PYTHON, "-c", _EVERSTEP, *words, check=False)


def _found(box: Box, condition: str, component: str) -> bool | None:
    """Return whether the command line tells an open finding of the node."""
    told = json.loads(_everstep(box, "node", "gpu-1", "--json") or "{}")
    key = (condition, component)
    return key in {(one["condition"], one["component"]) for one in _findings(told)} or None


def _findings(told: object) -> Iterator[dict[str, object]]:
    if isinstance(told, dict):
        if "condition" in told and "component" in told:
            yield told
        for value in told.values():
            yield from _findings(value)
    elif isinstance(told, list):
        for value in told:
            yield from _findings(value)


def test_the_agent_is_an_ordinary_user(box: Box) -> None:
    pid = box.show("everstep-agent", "MainPID")
    status = box.run("cat", f"/proc/{pid}/status")
    uid = box.run("id", "-u", "everstep-agent")
    assert f"\nUid:\t{uid}\t" in f"\n{status}"
    assert uid != "0"


def test_a_rule_of_the_site_finds_what_the_kernel_says(box: Box) -> None:
    # The real ring buffer, which all processes of this machine share: a name that nobody else has.
    unit = f"left-{socket.gethostname()[:8]}-{os.getpid()}"

    def found() -> bool | None:
        box.run("sh", "-c", f"echo '<3>pdumon {unit}: phase 2 lost, 187 V' > /dev/kmsg")
        return _found(box, "PduPhaseLost", f"pdu/{unit}")

    wait_until(found, _PATIENCE_S)
    assert "power unit" in _everstep(box, "node", "gpu-1")


def test_a_daemons_log_is_read_with_the_rights_of_its_group(box: Box) -> None:
    with (box.root / _LOG).open("a") as log:
        log.write("\n".join((*_OTHERS, _SMARTD)) + "\n")
    wait_until(lambda: _found(box, "DiskSelfCheckFailed", "disk/sdq"), _PATIENCE_S)
    assert not _found(box, "DiskSelfCheckFailed", "disk/sdr")


def test_a_log_that_the_agent_may_not_read_is_told_with_what_to_do(box: Box) -> None:
    box.run("chown", "root:root", f"/{_LOG}")
    try:
        told = wait_until(lambda: _told(box, "may not read it"), _PATIENCE_S)
        assert "add that user to the log's group" in told
    finally:
        box.run("chown", "root:adm", f"/{_LOG}")
    # It goes on where it was, when it may again.
    with (box.root / _LOG).open("a") as log:
        log.write(_SMARTD.replace("sdq", "sdt") + "\n")

    wait_until(lambda: _found(box, "DiskSelfCheckFailed", "disk/sdt"), _PATIENCE_S)


def _told(box: Box, words: str) -> str | None:
    told = _everstep(box, "node", "gpu-1", "--json")
    return told if words in told else None


def test_a_scheduler_that_does_not_have_the_node_says_so(box: Box) -> None:
    _everstep(box, "isolate", "gpu-1", "--reason", "a test")
    told = wait_until(lambda: _why(box, "its scheduler has no such node"), _PATIENCE_S)
    assert "driver command does not manage it" in told
    asked = (box.root / "var/lib/everstep-controller/asked").read_text().splitlines()
    applied = [one for one in asked if '"apply"' in one]
    assert '"gpu-1"' in applied[0]
    # No failure: it is not asked again for the same claim.
    assert len(applied) == 1


def _why(box: Box, words: str) -> str | None:
    told = _everstep(box, "why", "gpu-1")
    return told if words in told else None


def test_a_bad_rule_keeps_the_agent_from_starting_and_the_log_says_where(box: Box) -> None:
    bad = box.root / "etc/everstep/rules.d/zz.toml"
    bad.write_text(_RULES.replace("PduPhaseLost", "PduLost").replace(r"[\w-]{1,32}", r"(?:\w+)+"))
    try:
        box.run("systemctl", "restart", "everstep-agent", check=False)
        assert box.show("everstep-agent", "ExecMainStatus") == "78"
        told = box.run("journalctl", "--no-pager", "--lines=20", "--unit=everstep-agent")
        assert "/etc/everstep/rules.d/zz.toml:8: rule pdu-phase-lost: " in told
    finally:
        bad.unlink()
        box.run("systemctl", "start", "everstep-agent")
