"""An agent whose process is stopped, or whose event loop hangs: what its controller notices."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from everstep_proto.generated import fleet_pb2
from fakes.local_secret import SECRET_FILE
from fakes.one_loop import run
from fakes.tiny_fleet import TinyFleet, serving

_HUNG_AGENT = Path(__file__).with_name("hung_agent.py")
_HANG = signal.SIGUSR1


@contextmanager
def _agent(port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the uplink of an agent; SIGUSR1 has its event loop hang until SIGUSR2."""
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, str(_HUNG_AGENT), str(port), str(SECRET_FILE)],
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _ping(number: int) -> fleet_pb2.ControllerMessage:
    return fleet_pb2.ControllerMessage(ping=fleet_pb2.Ping(ping_id=f"ping-{number}"))


def _pongs(fleet: TinyFleet) -> list[str]:
    return [one.pong.ping_id for one in fleet.messages if one.HasField("pong")]


@pytest.mark.parametrize("stop", [_HANG, signal.SIGSTOP], ids=["its loop hangs", "it is stopped"])
def test_an_agent_that_hangs_answers_no_ping_before_it_goes_on(stop: signal.Signals) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            with _agent(fleet.port) as process:
                await fleet.until(lambda: fleet.hellos)
                fleet.say(_ping(1))
                await fleet.until(lambda: _pongs(fleet) == ["ping-1"])
                process.send_signal(stop)
                await asyncio.sleep(0.2)  # its loop hangs a moment after the signal
                fleet.say(_ping(2))
                await asyncio.sleep(1.0)  # one that does not hang answers in milliseconds
                assert _pongs(fleet) == ["ping-1"]
                process.send_signal(signal.SIGUSR2 if stop is _HANG else signal.SIGCONT)
                await fleet.until(lambda: _pongs(fleet) == ["ping-1", "ping-2"])
                assert len(fleet.hellos) == 1

    run(scenario())


def test_the_transports_own_pings_notice_a_stopped_process_and_no_loop_that_hangs() -> None:
    async def scenario(stop: signal.Signals) -> bool:
        """Return whether the stream ended within a few times the keepalive's timeout."""
        fleet = TinyFleet(idle_s=1.0, timeout_s=1.0)
        async with serving(fleet):
            with _agent(fleet.port) as process:
                await fleet.until(lambda: fleet.hellos)
                fleet.say(_ping(1))
                await fleet.until(lambda: _pongs(fleet))
                process.send_signal(stop)
                try:
                    async with asyncio.timeout(8.0):
                        await fleet.until(lambda: fleet.ended)
                except TimeoutError:
                    return False
                return True

    assert run(scenario(signal.SIGSTOP))
    assert not run(scenario(_HANG))


def test_the_end_of_an_agent_that_was_told_to_stop_is_its_last_word() -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet:
            with _agent(fleet.port) as process:
                await fleet.until(lambda: fleet.hellos)
                fleet.say(_ping(1))
                await fleet.until(lambda: fleet.messages)  # the agent has taken the Welcome
                process.send_signal(signal.SIGTERM)
                await fleet.until(lambda: fleet.ended)
                assert fleet.messages[-1].going_away.reason == "told to stop"
                assert await asyncio.to_thread(process.wait, 10) == 0
                assert len(fleet.hellos) == 1

    run(scenario())


def test_an_agent_ends_though_its_controller_hears_nothing() -> None:
    async def scenario() -> None:
        fleet = TinyFleet(reading=False)
        async with serving(fleet):
            with _agent(fleet.port) as process:
                await fleet.until(lambda: fleet.hellos)
                loop = asyncio.get_running_loop()
                began_s = loop.time()
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 20) == 0
                assert loop.time() - began_s < 10

    run(scenario())
