"""Webhooks, groups and a driver's program under the shipped units, on a booted machine."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes.waits import wait_until
from real.booted_box import NEEDS, REPOSITORY, Box, booted, can_boot
from real.booted_fleet import PYTHON, install_agents, install_daemons
from real.sandbox import denies_containers

pytestmark = [
    pytest.mark.real,
    pytest.mark.xdist_group("booted machines"),
    pytest.mark.skipif(
        not can_boot(), reason=f"needs root and {', '.join(NEEDS)} (apt: systemd-container dbus)"
    ),
    pytest.mark.skipif(bool(denies_containers()), reason=denies_containers()),
]
_NODES = {"node-a": "everstep-agent", "node-b": "everstep-agent-b"}
_CONTROLLER = "everstep-controller"
_PATIENCE_S = 60.0
_XID = "xid:79@0000:3b:00.0"
_RECEIVED = "srv/receiver"
_URL = "http://127.0.0.1:8099"
# What the unit lets the program of a driver write to.
_SCHEDULER = f"var/lib/{_CONTROLLER}/scheduler.json"
_PROGRAM = "usr/local/sbin/isolate-nodes"
_SETTINGS = f"""
[drivers]
read_interval_s = 0.5
[drivers.command]
argv = ["/{_PROGRAM}", "/{_SCHEDULER}", "well"]

[groups.careful]
nodes = ["node-b"]
mode = "advise"
[groups.proven]
domains = ["rack-node-a"]
mode = "enforce"

[webhooks.pager]
url_file = "/run/credentials/{_CONTROLLER}.service/pager.url"
key_file = "/run/credentials/{_CONTROLLER}.service/pager.key"
hosts = ["127.0.0.1"]
max_per_second = 1000

[webhooks.tickets]
url_file = "/etc/everstep/webhooks/tickets.url"
key_file = "/etc/everstep/webhooks/tickets.key"
hosts = ["127.0.0.1"]
kinds = ["finding"]
subjects = ["node-a"]
max_per_second = 1000
"""
# As docs/webhooks.md has both ways; the files of the first one are root's alone.
_CREDENTIALS = """\
[Service]
LoadCredential=pager.url:/etc/everstep/webhooks/pager.url
LoadCredential=pager.key:/etc/everstep/webhooks/pager.key
"""
_SECRETS = f"""
install -d -o root -g everstep -m 750 /etc/everstep/webhooks
cd /etc/everstep/webhooks
openssl rand -base64 32 >tickets.key
cp tickets.key pager.key
echo {_URL}/pager/T0aB >pager.url
echo {_URL}/tickets/T0aB >tickets.url
chmod 600 pager.*
chown root:everstep tickets.*; chmod 640 tickets.*
"""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with booted(tmp_path_factory.mktemp("notices"), "everstep-notices") as started:
        try:
            _install(started)
            # This machine's own services may make a node suspect.
            wait_until(lambda: len(_states(started, "healthy", "suspect")) == 2, _PATIENCE_S)
            yield started
        finally:
            print(started.run("journalctl", "--no-pager", "--lines=200", check=False))


def _install(box: Box) -> None:
    install_daemons(box, ("agent", "controller"))
    install_agents(box, _NODES)
    for unit in _NODES.values():
        settings = box.root / f"etc/everstep/{unit}.toml"
        settings.write_text(f"fault_injection = true\n{settings.read_text()}")
    box.run("sh", "-ec", _SECRETS)
    drop_ins = box.root / f"etc/systemd/system/{_CONTROLLER}.service.d"
    drop_ins.mkdir()
    (drop_ins / "webhooks.conf").write_text(_CREDENTIALS)
    with (box.root / "etc/everstep/controller.toml").open("a") as settings:
        settings.write(_SETTINGS)
    program = (REPOSITORY / "tests/integration/isolation_program.py").read_text()
    (box.root / _PROGRAM).write_text(f"#!{PYTHON}\n{program}")
    (box.root / _PROGRAM).chmod(0o755)
    (box.root / _RECEIVED).mkdir(parents=True)
    shutil.copy(REPOSITORY / "tests/real/webhook_receiver.py", box.root / _RECEIVED)
    receiver = ("8099", "/etc/everstep/webhooks/pager.key", f"/{_RECEIVED}")
    program_of_it = f"/{_RECEIVED}/webhook_receiver.py"
    box.run("systemd-run", "--unit=receiver", PYTHON, program_of_it, *receiver)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "--no-block", _CONTROLLER, *_NODES.values())


def test_a_group_is_enforced_on_and_the_other_one_advised_and_the_receiver_hears_of_both(
    box: Box,
) -> None:
    for name in _NODES:
        _everstep(box, "inject", name, _XID, "--for", "10m", "--reason", "drill")
    wait_until(lambda: list(_holds(box)) == ["node-a"], _PATIENCE_S)
    wait_until(lambda: {"NodeIsolated", "IsolationAdvised"} <= set(_reasons(box)), _PATIENCE_S)
    heard = _reasons(box)
    assert heard["NodeIsolated"] == {"node-a"}
    assert heard["IsolationAdvised"] == {"node-b"}
    assert heard["XidFatal"] == {"node-a", "node-b"}
    assert _claims(box) == {"node-a": ["automation"], "node-b": []}
    found = [one for one in _came(box) if one["event"]["data"].get("condition") == "XidFatal"]
    assert {
        one["event"]["data"]["mode"] for one in found if one["event"]["subject"] == "node-a"
    } == {"enforce"}
    assert all(one["event"]["data"]["injected"] for one in found)
    assert all(0 <= one["event"]["data"]["evidence_age_s"] < 60 for one in found)


def test_over_kills_of_the_controller_nothing_is_lost_and_the_order_is_kept(box: Box) -> None:
    away = box.root / _RECEIVED / "away"
    for is_away in (True, False):
        if is_away:
            away.touch()  # so that something is unsent when it is killed
        _everstep(box, "pause", "node-b", "--reason", "a look")
        _restarted(box, "systemctl", "kill", "--kill-who=main", "--signal=KILL", _CONTROLLER)
        away.unlink(missing_ok=True)
        _everstep(box, "resume", "node-b")
    newest = _event_list(box)[-1]
    wait_until(lambda: newest in _numbers(box, "/pager/"), _PATIENCE_S)
    came = [one for one in _came(box) if one["path"].startswith("/pager/")]
    assert all(one["signed"] for one in came)
    bodies: dict[str, str] = {}
    for one in came:
        event = one["event"]
        assert bodies.setdefault(event["id"], json.dumps(event)) == json.dumps(event)
    _assert_in_order([one["event"] for one in came])
    known = _numbers(box, "/pager/")
    missing = [one for one in _event_list(box) if one >= min(known) and one not in known]
    assert missing == [], "a line of the event list that nobody was told"
    tickets = {one["event"]["subject"] for one in _came(box) if "tickets" in one["path"]}
    assert tickets == {"node-a"}


def test_while_drivers_are_paused_no_scheduler_is_told_and_afterwards_what_differs(
    box: Box,
) -> None:
    _everstep(box, "pause", "--drivers", "--reason", "upgrade")
    _everstep(box, "isolate", "node-b", "--reason", "fan")
    calls = box.root / f"{_SCHEDULER}.calls"
    reads = calls.read_text().count('"read"')
    wait_until(lambda: calls.read_text().count('"read"') > reads + 2, _PATIENCE_S)
    assert list(_holds(box)) == ["node-a"]
    (driver,) = json.loads(_everstep(box, "drivers", "--json"))["drivers"]
    assert driver["waiting"] == ["node-b"]
    assert "DriversPaused" in _everstep(box, "findings")
    _everstep(box, "resume", "--drivers")
    wait_until(lambda: sorted(_holds(box)) == ["node-a", "node-b"], _PATIENCE_S)
    _everstep(box, "release", "node-b", "--reason", "fan replaced", "--accept", "XidFatal")
    wait_until(lambda: list(_holds(box)) == ["node-a"], _PATIENCE_S)


def _restarted(box: Box, *command: str) -> None:
    """Have the controller end, and wait until another one answers."""
    before = box.show(_CONTROLLER, "MainPID")
    box.run(*command)

    def answers() -> bool:
        return box.show(_CONTROLLER, "MainPID") not in (before, "0") and bool(_states(box))

    wait_until(answers, _PATIENCE_S)


def _everstep(box: Box, *words: str, check: bool = True) -> str:
    program = "import sys; from everstep.entry import main; sys.exit(main())"
    return box.run("env", "COLUMNS=300", PYTHON, "-c", program, *words, check=check)


def _states(box: Box, *wanted: str) -> list[str]:
    """Return the wanted states of connected nodes, or all; none while nobody answers."""
    told = _everstep(box, "nodes", "--json", check=False)
    if not told.startswith("{"):
        return []
    nodes = [one for one in json.loads(told)["nodes"] if one["connected"]]
    return [one["state"] for one in nodes if not wanted or one["state"] in wanted]


def _claims(box: Box) -> dict[str, list[str]]:
    nodes = json.loads(_everstep(box, "nodes", "--json"))["nodes"]
    return {one["node"]: [claim["owner"] for claim in one["claims"]] for one in nodes}


def _event_list(box: Box) -> list[int]:
    """Return the numbers of all lines of the event list."""
    lines = _everstep(box, "events", "--json", "--limit", "5000").splitlines()
    return [json.loads(line)["id"] for line in lines]


def _holds(box: Box) -> dict[str, Any]:
    path = box.root / _SCHEDULER
    return json.loads(path.read_text()) if path.exists() else {}


def _came(box: Box) -> list[dict[str, Any]]:
    path: Path = box.root / _RECEIVED / "came"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.split("\n")[:-1]]


def _reasons(box: Box) -> dict[str, set[str]]:
    """Return about whom each kind of news has come."""
    found: dict[str, set[str]] = {}
    for one in _came(box):
        found.setdefault(one["event"]["data"].get("reason", ""), set()).add(one["event"]["subject"])
    return found


def _numbers(box: Box, path: str) -> set[int]:
    """Return the lines that came at a path, one by one or counted in a digest."""
    found: set[int] = set()
    for one in _came(box):
        event = one["event"]
        if one["path"].startswith(path):
            found |= set(_lines_of(event))
    return found


def _lines_of(event: dict[str, Any]) -> range:
    if event["type"] != "io.everstep.digest":
        return range(int(event["sequence"]), int(event["sequence"]) + 1)
    first, last = event["id"].split("/")[2].split("-")
    return range(int(first), int(last) + 1)


def _assert_in_order(events: list[dict[str, Any]]) -> None:
    """Fail where an event of a subject came before one that is older, for the first time."""
    newest: dict[str, int] = {}
    known: set[str] = set()
    for event in events:
        if event["id"] not in known and event["type"] != "io.everstep.digest":
            number = int(event["sequence"])
            assert number > newest.get(event["subject"], 0), event
            newest[event["subject"]] = number
        known.add(event["id"])
