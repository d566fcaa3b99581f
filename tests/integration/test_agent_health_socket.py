"""The health socket of an agent: slow looks, nonsense, and many who ask."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.detectors.judgement import Judgement
from everstep_agent.health.report import HealthReport, Status
from everstep_agent.health.socket import SOCKET_NAME, ask_agent
from fakes.health_desk import no_look, served


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path: the name of a socket in it has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="es") as path:
        yield Path(path)


def test_a_look_that_is_slow_delays_no_answer_and_is_not_taken_for_a_hang(folder: Path) -> None:
    async def scenario() -> tuple[list[HealthReport], int]:
        slow, looks = asyncio.Event(), 0

        async def look() -> list[Judgement]:
            nonlocal looks
            looks += 1
            await slow.wait()
            return []

        async with served(folder, look):
            asked = [asyncio.to_thread(ask_agent, [folder / SOCKET_NAME], (), 1.0)]
            asked += [asyncio.to_thread(ask_agent, [folder / SOCKET_NAME], ("host",), 1.0)]
            early = list(await asyncio.gather(*asked))
            slow.set()
            late = await asyncio.to_thread(ask_agent, [folder / SOCKET_NAME], (), 20.0)
            return [*early, late], looks

    (first, second, last), looks = asyncio.run(scenario())
    assert first.notes == second.notes == ("a look at the node took longer than 0.5 s",)
    assert (first.status, last.status, last.notes) == (Status.OK, Status.OK, ())
    assert looks == 1


def test_nonsense_on_the_socket_is_not_answered_and_harms_nobody(folder: Path) -> None:
    async def scenario() -> tuple[bytes, HealthReport]:
        async with served(folder, no_look):
            reader, writer = await asyncio.open_unix_connection(folder / SOCKET_NAME)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" + b"x" * 10_000)
            said = await reader.read()
            writer.close()
            return said, await asyncio.to_thread(ask_agent, [folder / SOCKET_NAME], (), 20.0)

    said, report = asyncio.run(scenario())
    assert said == b""
    assert report.status is Status.OK
