"""Webhooks of a real controller: what receivers get, over restarts and kills; what goes wrong."""

import asyncio
import base64
import hashlib
import hmac
import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from everstep_cli.client.grpc_admin import connect
from everstep_cli.commands.session import AdminSession
from everstep_cli.main import run_command
from everstep_common.config import ConfigError, load
from everstep_common.credential_file import CredentialFile
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.webhooks.config import WebhookConfig
from everstep_controller.webhooks.cursors import Cursor, CursorFile
from fakes.agent_stream import agent_stream
from fakes.controllers import controller, scrape, start_controller
from fakes.local_secret import SECRET_FILE
from fakes.ports import reserved_port
from fakes.receiver import GOOD, Receiver, Request, answer, receiver, say

pytestmark = pytest.mark.timeout(120)

KEY = "a key of webhooks, for tests"


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiver() as running:
        yield running


def secret(folder: Path, name: str, text: str) -> CredentialFile:
    """Write a secret into a file of its own."""
    file = folder / name
    file.write_text(text)
    file.chmod(0o600)
    return CredentialFile(file)


def webhook(folder: Path, server: Receiver, **other: Any) -> WebhookConfig:  # noqa: ANN401 - fields
    """Return the configuration of a webhook to a receiver."""
    return WebhookConfig(
        url_file=secret(folder, "url", server.url()),
        key_file=secret(folder, "key", KEY),
        hosts=("127.0.0.1",),
        **other,
    )


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.02)


async def command(port: int, *arguments: str) -> tuple[int, str]:
    """Run a command of everstep; return its exit code and what it drew."""
    screen = io.StringIO()
    session = AdminSession(connect, Console(file=screen, width=250), time.time_ns)
    words = (*arguments, "--controller", f"127.0.0.1:{port}", "--secret-file", str(SECRET_FILE))
    return await asyncio.to_thread(run_command, session, words), screen.getvalue()


def is_signed(request: Request, key: bytes = KEY.encode()) -> bool:
    """Return whether a request is signed with the key, over id, time and body."""
    headers = request.headers
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request.body
    code = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(headers["webhook-signature"], f"v1,{code}")


def test_a_receiver_gets_what_a_node_finds_and_what_is_decided_signed_and_in_order(
    tmp_path: Path, server: Receiver
) -> None:
    async def scenario() -> None:
        hooks = {"pager": webhook(tmp_path, server)}
        async with controller(tmp_path, webhooks=hooks) as running:
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                await agent.finding(2)
                await until(lambda: bool(server.events("finding.raised")))
                await until(lambda: _has(server, "NodeHealthy"))
            measured = await scrape(running)
        assert measured["everstep_webhook_lag_lines[('webhook', 'pager')]"] >= 0
        ages = {name for name in measured if name.startswith("everstep_evidence_age_seconds_count")}
        assert any("FindingRaised" in name for name in ages)

    asyncio.run(scenario())
    assert all(is_signed(request) for request in server.requests)
    assert all(
        request.headers["content-type"].startswith("application/cloudevents+json")
        for request in server.requests
    )
    (raised,) = server.events("finding.raised")
    assert raised["subject"] == "node-1"
    assert raised["data"]["command"] == "everstep why node-1"
    assert raised["data"]["evidence_age_s"] < 60
    sequences = [request.event["sequence"] for request in server.requests]
    assert sequences == sorted(sequences)


def _has(server: Receiver, reason: str) -> bool:
    return any(request.event["data"].get("reason") == reason for request in server.requests)


def test_a_new_webhook_begins_with_what_happens_from_now_on_and_a_restart_goes_on(
    tmp_path: Path, server: Receiver
) -> None:
    async def begin() -> None:
        async with controller(tmp_path) as running, agent_stream(running.port, "old") as agent:
            await agent.healthy()

    async def run(node: str) -> None:
        hooks = {"pager": webhook(tmp_path, server, max_per_second=1000)}
        async with (
            controller(tmp_path, webhooks=hooks) as running,
            agent_stream(running.port, node) as agent,
        ):
            await agent.healthy()
            await until(lambda: any(one["subject"] == node for one in server.decisions))

    asyncio.run(begin())
    asyncio.run(run("one"))
    kept = CursorFile(tmp_path / "journal.webhooks" / "pager.json").read()
    assert kept is not None
    asyncio.run(run("two"))
    ids = [request.id for request in server.requests]
    assert len(ids) == len(set(ids)), "none came twice after a stop"
    assert not [one for one in server.decisions if one["subject"] == "old"][1:]


def test_a_receiver_that_was_away_gets_what_happened_meanwhile(
    tmp_path: Path, server: Receiver
) -> None:
    server.react = say(answer(503, "back soon"))

    async def scenario() -> None:
        hooks = {"pager": webhook(tmp_path, server, max_per_second=1000)}
        async with (
            controller(tmp_path, webhooks=hooks) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            await agent.healthy()
            await until(lambda: len(server.requests) >= 3)
        assert len({request.id for request in server.requests}) == 1, "it is asked with one event"
        first = server.requests[0].id
        server.react = say(GOOD)
        async with controller(tmp_path, webhooks=hooks):
            await until(lambda: _has(server, "NodeHealthy"))
        assert server.requests[-1].id != first
        assert first in {request.id for request in server.requests[3:]}

    asyncio.run(scenario())


@pytest.mark.timeout(300)
def test_a_kill_in_the_middle_loses_nothing_and_what_comes_twice_has_the_same_id(
    tmp_path: Path, server: Receiver
) -> None:
    hook = webhook(tmp_path, server)
    tables = (
        f'\n[webhooks.pager]\nurl_file = "{hook.url_file.path}"\n'
        f'key_file = "{hook.key_file.path}"\nhosts = ["127.0.0.1"]\nmax_per_second = 1000\n'
    )

    async def play(port: int, node: str, goal: int) -> None:
        async with agent_stream(port, node) as agent:
            await agent.healthy()
            await until(lambda: len(server.requests) >= goal)

    for number in range(3):
        with start_controller(tmp_path, tables=tables) as running:
            asyncio.run(play(running.port, f"node-{number}", len(server.requests) + 2))
            if number == 2:
                server.wait_until(lambda one: any(e["subject"] == "node-2" for e in one.decisions))
                assert running.terminate() == 0
    kept = CursorFile(tmp_path / "journal.webhooks" / "pager.json").read()
    assert kept is not None
    bodies: dict[str, set[bytes]] = {}
    for request in server.requests:
        bodies.setdefault(request.id, set()).add(request.body)
    assert all(len(different) == 1 for different in bodies.values()), "the same id, the same bytes"
    numbers = sorted(
        int(request.event["sequence"])
        for request in {one.id: one for one in server.requests}.values()
        if request.event["type"] != "io.everstep.digest"
    )
    assert set(range(numbers[0], kept.number + 1)) <= set(numbers) | _in_digests(server)


def _in_digests(server: Receiver) -> set[int]:
    spans = [event["id"].split("/")[2].split("-") for event in server.events("digest")]
    return {number for first, last in spans for number in range(int(first), int(last) + 1)}


def test_one_slow_receiver_holds_up_neither_another_one_nor_the_controller(
    tmp_path: Path, server: Receiver
) -> None:
    server.react = lambda *_: (server.over.wait(20), None)[1]
    with receiver() as quick:
        (tmp_path / "b").mkdir()

        async def scenario() -> None:
            hooks = {
                "slow": webhook(tmp_path, server),
                "quick": webhook(tmp_path / "b", quick, max_per_second=1000),
            }
            async with controller(tmp_path, webhooks=hooks) as running:
                async with agent_stream(running.port, "node-1") as agent:
                    await agent.healthy()
                    await until(lambda: _has(quick, "NodeHealthy"))
                assert len(server.requests) == 1
                _, drawn = await command(running.port, "webhooks")
                assert "slow" in drawn
                assert "quick" in drawn

        asyncio.run(scenario())


def test_a_webhook_that_is_tested_answers_and_one_that_cannot_says_why(
    tmp_path: Path, server: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        hook = webhook(tmp_path, server)
        async with controller(tmp_path, webhooks={"pager": hook}) as running:
            port = running.port
            assert await command(port, "webhooks", "test", "pager") == (
                0,
                "the receiver of pager (127.0.0.1) accepts events: it answered 204\n",
            )
            assert server.events("test")
            server.react = say(answer(403, "who are you?"))
            code, drawn = await command(port, "webhooks", "test", "pager")
            assert (code, "does not accept events: it answered 403: who are you?" in drawn) == (
                1,
                True,
            )
            hook.url_file.path.chmod(0o644)
            code, drawn = await command(port, "webhooks", "test", "pager")
            assert (code, "by which others may read" in drawn) == (1, True)
            hook.url_file.path.unlink()
            code, drawn = await command(port, "webhooks", "test", "pager")
            assert (code, "cannot be read: No such file" in drawn) == (1, True)
            secret(tmp_path, "url", "https://elsewhere.example.org/x")
            code, drawn = await command(port, "webhooks", "test", "pager")
            assert (code, "is not among its hosts" in drawn) == (1, True)
            assert "secret" not in drawn
            code, _ = await command(port, "webhooks", "test", "paper")
            assert code == 2
            secret(tmp_path, "url", server.url(path="/moved/secret"))
            server.react = say(GOOD)
            assert (await command(port, "webhooks", "test", "pager"))[0] == 0
            assert server.requests[-1].path == "/moved/secret", "a file that is replaced counts"

    asyncio.run(scenario())
    assert "there are pager" in capsys.readouterr().err


def test_a_controller_without_webhooks_says_where_it_is_told_how(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running:
            code, drawn = await command(running.port, "webhooks")
            assert (code, "docs/webhooks.md" in drawn) == (0, True)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (b"{half of", "has no cursor in it"),
        (b'{"cluster": "other", "number": 1, "digest_through": 0}', "of another cluster"),
        (b'{"cluster": "CLUSTER", "number": 999999, "digest_through": 0}', "the journal is older"),
    ],
)
def test_a_cursor_that_cannot_be_used_is_told_to_the_receiver(
    tmp_path: Path, server: Receiver, kept: bytes, said: str
) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running:
            cluster = running.runtime.state.cluster_id
        file = tmp_path / "journal.webhooks" / "pager.json"
        file.parent.mkdir()
        file.write_bytes(kept.replace(b"CLUSTER", cluster.encode()))
        hooks = {"pager": webhook(tmp_path, server)}
        async with (
            controller(tmp_path, webhooks=hooks) as running,
            agent_stream(running.port, "node-1") as agent,
        ):
            await agent.healthy()
            await until(lambda: bool(server.events("not-sent")))

    asyncio.run(scenario())
    (told,) = server.events("not-sent")
    assert said in told["data"]["sentence"]


def test_a_cursor_is_replaced_whole_and_reads_as_it_was_written(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "new" / "pager.json")
    assert file.read() is None
    for number in range(3):
        file.write(Cursor("c", number, number + 7))
        assert file.read() == Cursor("c", number, number + 7)
    assert [one.name for one in file.path.parent.iterdir()] == ["pager.json"]
    assert os.stat(file.path).st_mode & 0o077 == 0


def test_all_mistakes_of_a_configuration_are_told_at_once_without_a_secret(tmp_path: Path) -> None:
    (tmp_path / "open").write_text("https://hooks.example.org/secret")
    (tmp_path / "open").chmod(0o644)
    secret(tmp_path, "elsewhere", "https://elsewhere.example.org/secret")
    secret(tmp_path, "short", "a short secret")
    secret(tmp_path, "key", KEY)
    file = tmp_path / "controller.toml"
    file.write_text(
        f"""
[webhooks.Pager_1]
url_file = "{tmp_path}/open"
key_file = "{tmp_path}/none"
hosts = []
kinds = ["finding", "rumour"]
[webhooks.chat]
url_file = "{tmp_path}/elsewhere"
key_file = "{tmp_path}/short"
hosts = ["hooks.example.org"]
max_per_second = 0
timout_s = 3
ca_file = "{tmp_path}/none"
[webhooks.third]
key_file = "{tmp_path}/key"
"""
    )
    with pytest.raises(ConfigError) as caught:
        load(ControllerConfig, file)
    told = "\n".join(caught.value.problems)
    for place, said in {
        "webhooks.Pager_1:": "small letters",
        "webhooks.Pager_1.url_file": "by which others may read",
        "webhooks.Pager_1.key_file": "cannot be read",
        "webhooks.Pager_1.kinds[1]": "expected one of",
        "webhooks.chat.url_file": "is not among its hosts",
        "webhooks.chat.key_file": "24 bytes or more",
        "webhooks.chat.max_per_second": "must be from 1 to 1000",
        "webhooks.chat.timout_s": "did you mean",
        "webhooks.chat.ca_file": "cannot be used",
        "webhooks.third.url_file": "missing",
        "webhooks.third.hosts": "missing",
    }.items():
        assert [line for line in caught.value.problems if place in line and said in line], told
    assert "org/secret" not in told
    assert "a short secret" not in told


def test_the_receiver_of_the_documentation_takes_what_is_signed_and_nothing_else(
    tmp_path: Path,
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "receiver.py").write_text(script)
    key = secret(tmp_path, "key", KEY)
    with reserved_port() as port:
        words = [sys.executable, str(tmp_path / "receiver.py"), str(port), str(key.path)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            try:
                asyncio.run(_told_by(process, tmp_path, port))
            finally:
                process.kill()


async def _told_by(process: "subprocess.Popen[str]", folder: Path, port: int) -> None:
    """Have a controller send to the receiver of the documentation, with its key and another one."""
    hook = WebhookConfig(
        url_file=secret(folder, "url", f"http://127.0.0.1:{port}/"),
        key_file=secret(folder, "key", KEY),
        hosts=("127.0.0.1",),
    )
    async with controller(folder, webhooks={"pager": hook}) as running:
        async with asyncio.timeout(30):
            while (await command(running.port, "webhooks", "test", "pager"))[0]:
                pass  # it has not begun to listen
        assert process.stdout is not None
        said = "-"
        # A busy machine has the controller announce something itself, before.
        while said and said != "this is a test of the webhook pager\n":
            said = await asyncio.to_thread(process.stdout.readline)
        assert said
        secret(folder, "key", "another key of the same length")
        code, drawn = await command(running.port, "webhooks", "test", "pager")
        assert (code, "it answered 401" in drawn) == (1, True)
