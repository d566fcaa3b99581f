"""`everstep-agent check --controllers`: which of the configured controllers is active."""

import json
import subprocess
import sys
from pathlib import Path

from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.health.controllers import controller_notes
from fakes.controllers import controller, environment
from fakes.local_secret import SECRET_FILE
from fakes.one_loop import run
from fakes.ports import reserved_port
from fakes.tiny_fleet import TinyFleet, serving


def _config(*ports: int) -> AgentConfig:
    addresses = tuple(f"127.0.0.1:{port}" for port in ports)
    return AgentConfig(controller=addresses, secret_file=SECRET_FILE)


def test_each_controller_says_what_it_is_and_nobody_is_connected_for_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as active, serving(TinyFleet()) as standby:
            standby.active = f"127.0.0.1:{active.port}"
            with reserved_port() as port:
                notes = await controller_notes(_config(standby.port, active.port, port), 5.0)
            assert notes == (
                f"controller 127.0.0.1:{standby.port}: it is a standby; the active one is "
                f"127.0.0.1:{active.port}",
                f"controller 127.0.0.1:{active.port}: it answers, and is active",
                f"controller 127.0.0.1:{port}: nobody listens there (connection refused)",
            )
            assert active.runtime.state.nodes == {}

    run(scenario())


def test_a_cluster_without_an_active_controller_is_told() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet(active="")) as standby:
            notes = await controller_notes(_config(standby.port), 5.0)
        assert "the active one is not known to it" in notes[0]
        assert notes[1] == "no controller is active, as far as this node can tell"

    run(scenario())


def test_the_command_tells_it_beside_the_health_of_the_node(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    with reserved_port() as one, reserved_port() as two:
        file.write_text(
            f'controller = ["127.0.0.1:{one}", "127.0.0.1:{two}"]\nsecret_file = "{SECRET_FILE}"\n'
            f'[jobs]\nruntime_folder = "{tmp_path}/run"\n'
        )
        done = subprocess.run(
            [
                *(sys.executable, "-m", "everstep_agent.main", "check", "--config", str(file)),
                *("--controllers", "--own-probes", "--json", "--only", "host"),
            ],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    notes = "; ".join(json.loads(done.stdout)["notes"])
    for port in (one, two):
        assert f"controller 127.0.0.1:{port}: nobody listens there" in notes
    assert "no controller is active" in notes
