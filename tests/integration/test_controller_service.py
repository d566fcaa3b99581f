"""The controller as a service: what it tells the service manager, and Prometheus."""

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fakes.agent_stream import agent_stream
from fakes.controllers import controller, scrape, start_controller


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder with a path short enough for a socket in it."""
    with tempfile.TemporaryDirectory(prefix="es") as name:
        yield Path(name)


def test_the_service_manager_hears_that_it_is_ready_turns_and_stops(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(20)
        running = start_controller(
            folder, NOTIFY_SOCKET=str(folder / "notify"), WATCHDOG_USEC="100000"
        )
        with running, ThreadPoolExecutor(1) as pool:
            said = [manager.recv(4096).decode() for _ in range(4)]
            assert said == ["READY=1\nSTATUS=active", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]
            # Read meanwhile: the kernel keeps ten datagrams, and what finds no room is lost.
            code = pool.submit(running.terminate)
            rest: list[str] = []
            while not rest or rest[-1] != "STOPPING=1":
                rest.append(manager.recv(4096).decode())
            assert code.result() == 0
        assert set(rest[:-1]) <= {"WATCHDOG=1"}


def test_one_without_a_watchdog_is_not_asked_for_signs_of_life(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "notify"))
        manager.settimeout(20)
        with start_controller(folder, NOTIFY_SOCKET=str(folder / "notify")) as running:
            assert running.terminate() == 0
        assert [manager.recv(4096) for _ in range(2)] == [b"READY=1\nSTATUS=active", b"STOPPING=1"]


def test_the_metrics_tell_of_controller_nodes_and_findings(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running:
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                await agent.finding(2)
                await agent.acknowledged(2)
                # Timers that come due are events as well, and so is the end of the stream.
                before = running.runtime.events_taken
                found = await scrape(running)
                after = running.runtime.events_taken
            assert found["everstep_controller_term[]"] == 1
            assert found["everstep_controller_halted[]"] == 0
            assert found["everstep_controller_journal_full[]"] == 0
            assert found["everstep_controller_streams[]"] == 1
            assert before <= found["everstep_controller_events_total[]"] <= after
            assert found["everstep_nodes[('state', 'healthy')]"] == 1
            assert found["everstep_nodes[('state', 'lost')]"] == 0
            assert found["everstep_node_state[('node', 'node-1'), ('state', 'healthy')]"] == 1
            assert found["everstep_node_findings[('node', 'node-1')]"] == 1

    asyncio.run(scenario())
