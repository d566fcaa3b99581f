"""The command line against a real controller and a real agent of this very machine."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from everstep_cli.client.admin import AdminError, list_nodes
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_cli.demo.processes import OwnedProcesses
from everstep_cli.main import main
from fakes.waits import wait_until


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Run a controller and an agent; return the controller's address once the node is healthy."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        folder, address = Path(name), f"unix:{name}/grpc.sock"
        (folder / "controller.toml").write_text(
            f'listen = "{address}"\nmetrics = ""\njournal = "{folder}/journal.sqlite"\n'
        )
        (folder / "agent.toml").write_text(
            f'node = "gpu-0042"\ncontroller = "{address}"\ndata_folder = "{folder}/agent"\n'
            'metrics_address = ""\nliveness_address = "127.0.0.1:0"\n'
            f'kernel_log = "{folder}/kernel.log"\n'
            f'[jobs]\nruntime_folder = "{folder}/run"\nbulk_port = 0\n'
        )
        owned = OwnedProcesses(folder, keep=True)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        for daemon in ("controller", "agent"):
            command = [sys.executable, "-m", f"everstep_{daemon}.main"]
            owned.start(daemon, [*command, "--config", str(folder / f"{daemon}.toml")], environ)
        try:
            _wait_until_healthy(address)
            (folder / "kernel.log").write_text("nvme nvme0: I/O 7 timeout, aborting\n")
            yield address
        finally:
            owned.close()


def _wait_until_healthy(address: str) -> None:
    def healthy() -> bool:
        with suppress(AdminError):
            return [node.state for node in list_nodes(admin).nodes] == ["healthy"]
        return False

    with connect(Connection(address=address)) as admin:
        wait_until(healthy, what="not healthy")


def ask(capsys: pytest.CaptureFixture[str], address: str, *arguments: str) -> dict[str, object]:
    """Run a command with --json; return its answer."""
    capsys.readouterr()
    assert main([*arguments, "--json", "--controller", address]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_nodes_shows_this_very_machine(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, address, "nodes")
    assert isinstance(answer["nodes"], list)
    (node,) = answer["nodes"]
    assert node["node"] == "gpu-0042"
    assert node["connected"] is True
    assert node["cpu_count"] == os.cpu_count()
    assert node["memory_bytes"] > 1 << 28
    assert node["accelerators"]


def test_a_node_has_a_kernel_disks_and_interfaces(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    node = ask(capsys, address, "node", "gpu-0042")
    assert node["kernel"] == os.uname().release
    assert node["interfaces"]
    assert main(["node", "gpu-0042", "--controller", address]) == 0
    assert os.uname().release in capsys.readouterr().out


def test_a_node_shows_its_kernel_messages(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    wait_until(lambda: ask(capsys, address, "node", "gpu-0042")["kernel_messages"])
    assert main(["node", "gpu-0042", "--controller", address]) == 0
    shown = capsys.readouterr().out
    assert "kernel messages" in shown
    assert "I/O 7 timeout" in shown


def test_an_operators_claim_stays_until_the_operator_releases_it(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    isolated = ask(capsys, address, "isolate", "gpu-0042", "--reason", "fan replaced")
    assert isinstance(isolated["summary"], dict)
    (claim,) = isolated["summary"]["claims"]
    assert claim["owner"] == "operator"
    assert "fan replaced" in claim["reason"]
    assert "fan replaced" in json.dumps(ask(capsys, address, "why", "gpu-0042"))

    released = ask(capsys, address, "release", "gpu-0042", "--reason", "it turns")
    assert isinstance(released["summary"], dict)
    assert released["summary"]["claims"] == []


def test_automation_is_paused_and_resumed(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, address, "pause", "--reason", "switch upgrade")["paused"] == ["fleet"]
    assert ask(capsys, address, "resume")["paused"] == []


def test_events_tell_the_story_of_a_node(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["events", "--subject", "gpu-0042", "--json", "--controller", address]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["subject"] for line in lines} == {"gpu-0042"}
    assert lines == sorted(lines, key=lambda line: line["id"])


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (["node", "gpu-042"], "did you mean 'gpu-0042'?"),
        (["why", "gpu-042"], "did you mean 'gpu-0042'?"),
        (["isolate", "gpu-042", "--reason", "x"], "did you mean 'gpu-0042'?"),
        (["release", "gpu-042"], "did you mean 'gpu-0042'?"),
        (["findings", "--node", "gpu-042"], "did you mean 'gpu-0042'?"),
        (["pause", "gpu-042", "--reason", "x"], "did you mean 'gpu-0042'?"),
        (["job", "llama"], "'everstep jobs'"),
        (["ettr", "llama"], "'everstep jobs'"),
        (["snapshots", "llama"], "'everstep jobs'"),
        (["job", "llama", "forget"], "'everstep jobs'"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_an_unknown_name_changes_nothing_and_names_the_nearest(
    address: str, capsys: pytest.CaptureFixture[str], command: list[str], hint: str
) -> None:
    capsys.readouterr()
    assert main([*command, "--controller", address]) == 2
    error = capsys.readouterr().err
    assert hint in error
    assert "no " in error


def test_the_controller_says_who_it_is(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    version = ask(capsys, address, "version")
    controller = version["controller"]
    assert isinstance(controller, dict)
    assert controller["term"] >= 1
    assert controller["mode"] == "advise"
    assert controller["halted"] == ""
