"""The agent as a process: real gRPC, real SQLite, real signals."""

import asyncio
import os
import resource
import signal
import socket
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from fakes.inherited_signals import ignored, ignoring
from fakes.local_secret import SECRET_FILE
from fakes.ports import reserved_port
from fakes.tiny_fleet import TinyFleet, serving

_ROOT = Path(__file__).resolve().parents[2]
_XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus."


def _configure(folder: Path, *ports: int) -> Path:
    addresses = [f"127.0.0.1:{port}" for port in ports]
    (folder / "kmsg").touch()
    path = folder / "agent.toml"
    path.write_text(
        f"""
        node = "node-1"
        controller = {addresses if len(addresses) > 1 else repr(addresses[0])}
        secret_file = "{SECRET_FILE}"
        data_folder = "{folder}/data"
        kernel_log = "{folder}/kmsg"
        metrics_address = "127.0.0.1:0"
        liveness_address = "127.0.0.1:0"
        reconnect_backoff_max_s = 0.2
        [jobs]
        runtime_folder = "{folder}/run"
        bulk_port = 0
        """
    )
    return path


@asynccontextmanager
async def _agent(
    config: Path, stderr: int | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    paths = (str(_ROOT / part) for part in ("agent", "common", "proto"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everstep_agent.main", "--config", str(config)),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stderr=stderr,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _inject(folder: Path, line: str) -> None:
    with (folder / "kmsg").open("a") as file:
        file.write(line + "\n")


def _kernel_log_kept(folder: Path) -> bool:
    """Return whether the agent has on its disk how far it read, and what it found before that."""
    (path,) = (folder / "data").rglob("agent.sqlite")
    connection = sqlite3.connect(path)
    try:
        notes: dict[str, str] = dict(connection.execute("SELECT key, value FROM note"))
    finally:
        connection.close()
    place = notes.get("kernel_log", "").rpartition(" ")[2]
    return place == str((folder / "kmsg").stat().st_size)


def test_an_agent_tells_what_this_machine_is_and_ends_cleanly_on_sigterm(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet, _agent(_configure(tmp_path, fleet.port)) as agent:
            await fleet.until(lambda: fleet.hellos)
            inventory = fleet.hellos[0].inventory
            assert inventory.cpu_count == os.cpu_count()
            assert inventory.memory_bytes > 0
            assert inventory.kernel == os.uname().release
            assert "lo" in {interface.name for interface in inventory.interfaces}
            await fleet.until(lambda: any(m.HasField("samples") for m in fleet.messages))
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(agent.wait(), 30) == 0

    asyncio.run(scenario())


def test_an_agent_of_two_controllers_goes_from_one_to_the_other_and_ends_while_none_is_active(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        one, two = TinyFleet(term=1), TinyFleet(term=2, active="")
        async with serving(two), serving(one):
            config = _configure(tmp_path, two.port, one.port)
            async with _agent(config) as agent:
                await one.until(lambda: any(m.HasField("samples") for m in one.messages))
                (asked,) = {hello.outbox for hello in two.hellos}
                two.records, two.active = dict(one.records), None
                one.active = f"127.0.0.1:{two.port}"
                await two.until(lambda: any(m.HasField("samples") for m in two.messages))
                assert two.hellos[-1].outbox == asked
                assert two.hellos[-1].highest_term == 1
                two.active = ""
                ended = two.ended
                await two.until(lambda: two.ended > ended)
                agent.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(agent.wait(), 30) == 0

    asyncio.run(scenario())


def test_an_agent_in_the_background_of_a_script_hears_no_ctrl_c(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet, AsyncExitStack() as stack:
            with ignoring(signal.SIGINT):
                agent = await stack.enter_async_context(_agent(_configure(tmp_path, fleet.port)))
            await fleet.until(lambda: fleet.hellos)
            assert ignored(agent.pid) == {signal.SIGINT}
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(agent.wait(), 30) == 0

    asyncio.run(scenario())


def _sockets(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.sock") if path.is_socket()}


def test_an_agent_that_is_stopped_leaves_no_socket_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet, _agent(_configure(tmp_path, fleet.port)) as agent:
            own = {"agent.sock", "health.sock", "nvhcd.sock"}
            await fleet.until(lambda: own <= _sockets(tmp_path / "run"))
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(agent.wait(), 30) == 0
        assert _sockets(tmp_path / "run") == set()

    asyncio.run(scenario())


def test_an_agent_that_is_stopped_leaves_a_socket_that_took_the_place_of_its_own(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet, _agent(_configure(tmp_path, fleet.port)) as agent:
            path = tmp_path / "run" / "health.sock"
            await fleet.until(lambda: path.name in _sockets(path.parent))
            # Both sockets are made by then, and nothing of the start is still to come.
            await fleet.until(lambda: fleet.hellos)
            path.unlink()
            with socket.socket(socket.AF_UNIX) as another:
                another.bind(str(path))
                agent.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(agent.wait(), 30) == 0
                assert _sockets(path.parent) == {path.name}

    asyncio.run(scenario())


def test_a_fatal_xid_reaches_a_controller_that_was_away_over_a_kill_of_the_agent(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        with reserved_port() as port:
            await over_a_kill(TinyFleet(), port)

    async def over_a_kill(fleet: TinyFleet, port: int) -> None:
        config = _configure(tmp_path, port)
        async with serving(fleet, port), _agent(config):
            await fleet.until(lambda: fleet.hellos)
            fleet.acking = False
            _inject(tmp_path, _XID_79)
            await fleet.until(lambda: "XidFatal" in _conditions(fleet, "finding_raised"))
            # It was sent from memory: on the disk it is a little later.
            await fleet.until(lambda: _kernel_log_kept(tmp_path))
        fleet.records.clear()  # it was sent, but never journaled
        fleet.acking = True
        async with serving(fleet, port), _agent(config):
            await fleet.until(lambda: "XidFatal" in _conditions(fleet, "finding_raised"))
            # A busy machine may have findings of its own.
            raised = [record.finding_raised.finding for record in fleet.of("finding_raised")]
            (found,) = [finding for finding in raised if finding.condition == "XidFatal"]
            assert found.component == "gpu/0000:3b:00.0"
            # The same outbox, and the finding is still open in the agent's own book.
            assert fleet.hellos[0].outbox == fleet.hellos[-1].outbox
            assert "XidFatal" in {f.condition for f in fleet.hellos[-1].open_findings}

    asyncio.run(scenario())


_PDU = """
[conditions.PduPhaseLost]
component = "pdu/NAME"
meaning = "the power unit has lost a phase"
mode = "advise"
[[rules]]
name = "pdu-phase-lost"
condition = "PduPhaseLost"
needle = "pdumon"
pattern = 'pdumon (?P<unit>\\w+): phase lost'
component = "pdu/{unit}"
message = "{unit} has lost a phase"
source = "pdumon 2.1"
examples = "pdu/left pdumon left: phase lost, 187 V"
"""


def test_a_rule_of_the_site_is_a_finding_that_the_next_agent_still_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        with reserved_port() as port:
            config = _configure(tmp_path, port)
            rules = tmp_path / "rules.d"
            rules.mkdir()
            (rules / "pdu.toml").write_text(_PDU)
            config.write_text(f'rules = "{rules}"\n{config.read_text()}')
            await over_a_kill(TinyFleet(), port, config)

    async def over_a_kill(fleet: TinyFleet, port: int, config: Path) -> None:
        async with serving(fleet, port), _agent(config):
            await fleet.until(lambda: fleet.hellos)
            _inject(tmp_path, "pdumon left: phase lost, 187 V")
            await fleet.until(lambda: "PduPhaseLost" in _conditions(fleet, "finding_raised"))
            raised = [record.finding_raised.finding for record in fleet.of("finding_raised")]
            (found,) = [finding for finding in raised if finding.condition == "PduPhaseLost"]
            assert (found.component, found.message) == ("pdu/left", "left has lost a phase")
            await fleet.until(lambda: _kernel_log_kept(tmp_path))
        before = len(fleet.hellos)
        async with serving(fleet, port), _agent(config):
            await fleet.until(lambda: len(fleet.hellos) > before)
            assert "PduPhaseLost" in {f.condition for f in fleet.hellos[-1].open_findings}

    asyncio.run(scenario())


def _conditions(fleet: TinyFleet, kind: str) -> set[str]:
    bodies = (record for record in fleet.of(kind))
    if kind == "finding_raised":
        return {record.finding_raised.finding.condition for record in bodies}
    return {record.finding_cleared.condition for record in bodies}


def test_a_full_disk_under_the_outbox_is_a_finding_and_everything_is_sent_all_the_same(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        # Not to a file: that is on the full disk as well.
        stderr = asyncio.subprocess.DEVNULL
        async with (
            serving(TinyFleet()) as fleet,
            _agent(_configure(tmp_path, fleet.port), stderr) as agent,
        ):
            await fleet.until(lambda: fleet.hellos)
            # Files of this process cannot grow any more, nor can what is written be overwritten.
            _, hard = resource.prlimit(
                agent.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY)
            )
            assert hard == resource.RLIM_INFINITY
            _inject(tmp_path, _XID_79)
            await fleet.until(lambda: "XidFatal" in _conditions(fleet, "finding_raised"))
            await fleet.until(lambda: "OutboxNotDurable" in _conditions(fleet, "finding_raised"))
            unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, unlimited)
            await fleet.until(lambda: "OutboxNotDurable" in _conditions(fleet, "finding_cleared"))
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(agent.wait(), 30) == 0

    asyncio.run(scenario())


def test_an_address_that_is_taken_ends_the_agent_with_one_sentence(tmp_path: Path) -> None:
    async def scenario(taken: int) -> bytes:
        config = _configure(tmp_path, 1)
        config.write_text(config.read_text().replace("bulk_port = 0", f"bulk_port = {taken}"))
        async with _agent(config, asyncio.subprocess.PIPE) as agent:
            assert agent.stderr is not None
            said = await asyncio.wait_for(agent.stderr.read(), 30)
            assert await agent.wait() == 1
            return said

    with socket.create_server(("127.0.0.1", 0)) as server:
        lines = asyncio.run(scenario(server.getsockname()[1])).decode().splitlines()
    assert lines[-1].startswith("everstep-agent: ")
    assert "in use" in lines[-1]
    assert not any("Traceback" in line for line in lines)


def test_the_kernel_messages_of_a_node_reach_its_controller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet, _agent(_configure(tmp_path, fleet.port)):
            await fleet.until(lambda: fleet.hellos)
            _inject(tmp_path, _XID_79)
            await fleet.until(lambda: any(m.HasField("kernel") for m in fleet.messages))
            (message,) = (m.kernel for m in fleet.messages if m.HasField("kernel"))
            assert [line.text for line in message.lines] == [_XID_79]
            assert message.lines[0].stamp.wall_ns > 0

    asyncio.run(scenario())


def test_what_smartd_writes_to_the_system_log_reaches_the_controller(tmp_path: Path) -> None:
    log = tmp_path / "syslog"
    log.touch()
    said = "Device: /dev/sda [SAT], 8 Currently unreadable (pending) sectors"

    async def scenario(port: int, config: Path) -> None:
        async with serving(TinyFleet(), port) as fleet, _agent(config):
            await fleet.until(lambda: fleet.hellos)
            log.write_text(f"Nov  3 12:00:01 node-1 smartd[812]: {said}\n")
            raised = "DiskSectorsUnreadable"
            await fleet.until(lambda: raised in _conditions(fleet, "finding_raised"))

    with reserved_port() as port:
        config = _configure(tmp_path, port)
        config.write_text(f'system_log = "{log}"\n{config.read_text()}')
        asyncio.run(scenario(port, config))
