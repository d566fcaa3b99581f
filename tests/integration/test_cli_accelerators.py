"""`everstep nodes` counts what a vendor's tool lists: a real controller and agent, a sample."""

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
from fakes.accelerator_tools import FakeTool
from fakes.waits import wait_until


@pytest.fixture
def address() -> Iterator[str]:
    """Run a controller, and an agent that finds npu-smi; return the controller's address."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        folder, address = Path(name), f"unix:{name}/grpc.sock"
        tools = folder / "bin"
        FakeTool(tools, "npu-smi").answers(
            {"info": "ascend_info_910b2.txt", "info -t ecc": "ascend_ecc_910.txt"}
        )
        (folder / "kernel.log").touch()
        (folder / "controller.toml").write_text(
            f'listen = "{address}"\nmetrics = ""\njournal = "{folder}/journal.sqlite"\n'
        )
        (folder / "agent.toml").write_text(
            f'node = "npu-0007"\ncontroller = "{address}"\ndata_folder = "{folder}/agent"\n'
            'metrics_address = ""\nliveness_address = "127.0.0.1:0"\n'
            f'kernel_log = "{folder}/kernel.log"\n'
            f'[jobs]\nruntime_folder = "{folder}/run"\nbulk_port = 0\n'
        )
        owned = OwnedProcesses(folder, keep=True)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        environ["PATH"] = os.pathsep.join((str(tools), "/usr/bin:/bin"))
        for daemon in ("controller", "agent"):
            command = [sys.executable, "-m", f"everstep_{daemon}.main"]
            owned.start(daemon, [*command, "--config", str(folder / f"{daemon}.toml")], environ)
        try:
            yield address
        finally:
            owned.close()


def _accelerators(address: str) -> str:
    """Return what the first node that tells of accelerators has."""

    def told() -> str:
        with suppress(AdminError):
            shown = [node.accelerators for node in list_nodes(admin).nodes]
            if any("Ascend" in text for text in shown):
                return shown[0]
        return ""

    with connect(Connection(address=address)) as admin:
        return wait_until(told, what="no node that tells of its accelerators")


@pytest.mark.timeout(120)
def test_nodes_counts_the_devices_of_a_vendors_tool(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "8 x Ascend 910B2" in _accelerators(address)
    capsys.readouterr()
    assert main(["node", "npu-0007", "--json", "--controller", address]) == 0
    node = json.loads(capsys.readouterr().out)
    devices = [device for device in node["accelerators"] if device["name"].startswith("Ascend")]
    assert len({device["pci_address"] for device in devices}) == 8
