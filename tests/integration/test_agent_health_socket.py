"""The health socket of an agent: slow looks, nonsense, and many who ask."""

import asyncio
import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from everstep_agent.health.report import HealthReport, Status, Unread
from everstep_agent.health.socket import SOCKET_NAME, ask_agent
from everstep_common.judging.judgement import Judgement
from fakes.health_service import CONNECTIONS_MAX, no_look, served


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder with a short path: the name of a socket in it has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="es") as path:
        yield Path(path)


def test_a_look_that_hangs_delays_no_answer_and_is_told(folder: Path) -> None:
    async def scenario() -> tuple[HealthReport, int]:
        looks = 0

        async def look() -> list[Judgement]:
            nonlocal looks
            looks += 1
            await asyncio.Event().wait()
            return []

        async with served(folder, look):
            path = [folder / SOCKET_NAME]
            reports = [asyncio.to_thread(ask_agent, path, (), 20.0) for _ in range(3)]
            return (await asyncio.gather(*reports))[-1], looks

    report, looks = asyncio.run(scenario())
    assert report.status is Status.UNKNOWN
    assert report.unread == (Unread("host", "not read yet"),)
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


def _answers(folder: Path, answer: Callable[[socket.socket], None]) -> threading.Thread:
    """Let a stranger answer once on the socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / SOCKET_NAME))
    listener.listen(1)

    def serve() -> None:
        with listener, listener.accept()[0] as connection, contextlib.suppress(OSError):
            connection.recv(4096)  # who has gone before the question came would be another story
            answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_an_answer_in_drops_does_not_take_longer_than_one_in_a_piece(folder: Path) -> None:
    asker_left = threading.Event()

    def drip(connection: socket.socket) -> None:
        while not asker_left.wait(0.05):
            connection.send(b"x")

    stranger = _answers(folder, drip)
    with pytest.raises(OSError, match=f"{SOCKET_NAME}: timed out"):
        ask_agent([folder / SOCKET_NAME, folder / "none"], (), 0.5)
    asker_left.set()
    stranger.join(20)


def test_an_answer_nested_too_deeply_is_nonsense_like_any_other(folder: Path) -> None:
    stranger = _answers(folder, lambda connection: connection.sendall(b"[" * 100_000 + b"\n"))
    with pytest.raises(ValueError, match="nested too deeply"):
        ask_agent([folder / SOCKET_NAME], (), 20.0)
    stranger.join(20)


def test_a_user_who_keeps_connections_takes_no_more_than_a_share(folder: Path) -> None:
    async def scenario() -> list[bytes]:
        async with served(folder, no_look):
            path = folder / SOCKET_NAME
            kept = [await asyncio.open_unix_connection(path) for _ in range(CONNECTIONS_MAX + 3)]
            heard = [await reader.read() for reader, _ in kept[CONNECTIONS_MAX:]]
            with pytest.raises(OSError, match="health_connections_per_user_max"):
                await asyncio.to_thread(ask_agent, [path], (), 20.0)
            for _, writer in kept:
                writer.close()
            return heard

    heard = asyncio.run(scenario())
    assert all(b"this user has 32 connections to the agent already" in said for said in heard)
