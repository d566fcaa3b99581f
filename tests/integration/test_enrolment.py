"""Enrolment with a real controller: nodes join, renew and are revoked, over real TLS."""

import asyncio
import stat
import sys
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest

from everstep_agent.commands.join import JoinError
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment.client import EnrolmentError, RefusedError
from everstep_common.config import load
from everstep_controller.core.events import NodeDisconnected
from everstep_controller.enrolment.own_certificate import sign_with_key
from everstep_controller.enrolment.signer import Wanted
from everstep_controller.runtime.fold import TakenEvent
from everstep_proto.enrolment.owned_files import replace_file
from everstep_proto.enrolment.validity import validity
from everstep_proto.tls import Role
from fakes.agent_stream import agent_stream
from integration.enrolment_world import Node, World, journal_text, left_in, world

_DAY_S = 86_400


def with_world(
    folder: Path, act: Callable[[World], Awaitable[None]], sign_command: tuple[str, ...] = ()
) -> None:
    async def scenario() -> None:
        async with world(folder, sign_command) as running:
            await act(running)

    asyncio.run(scenario())


def test_a_node_joins_by_a_token_and_its_agent_is_welcome(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        node, token = there.node("gpu-1"), await there.token("gpu-1")
        lines = await there.join(node, token)
        assert "takes this certificate" in lines[2]
        files = node.files
        assert left_in(files.folder) == ["agent.pem", "ca.pem"]
        assert stat.S_IMODE(files.own.stat().st_mode) == 0o600
        config = load(AgentConfig, node.config)
        assert config.node_name == "gpu-1"
        assert config.controller == f"localhost:{there.controller.port}"
        assert config.enrolment.cluster == there.controller.runtime.state.cluster_id
        async with agent_stream(there.controller.port, "gpu-1", node.tls) as agent:
            await agent.hello()
        secret = token.split("-")[2].encode()
        key = files.own.read_bytes().split(b"-----END")[0].splitlines()[1]
        assert secret not in journal_text(tmp_path)
        assert key not in journal_text(tmp_path)

    with_world(tmp_path, act)


def test_a_token_is_used_once_also_by_two_at_the_same_moment(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        token = await there.token("gpu-1")
        nodes = [there.node("gpu-1", f"place-{number}") for number in range(4)]
        before = {node.folder: left_in(node.folder) for node in nodes}
        results = await asyncio.gather(
            *(there.join(node, token) for node in nodes), return_exceptions=True
        )
        refused = [one for one in results if isinstance(one, RefusedError)]
        assert len(refused) == 3
        lost = [
            node for node, one in zip(nodes, results, strict=True) if isinstance(one, RefusedError)
        ]
        for node in lost:
            assert left_in(node.folder) == before[node.folder]
            assert "tls" not in tomllib.loads(node.config.read_text())

    with_world(tmp_path, act)


def test_a_token_of_another_cluster_is_refused_before_its_secret_is_sent(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    async def scenario() -> None:
        async with world(tmp_path / "a") as here, world(tmp_path / "b") as other:
            node = here.node("gpu-1")
            with pytest.raises(EnrolmentError, match="the token is of another cluster"):
                await here.join(node, await other.token("gpu-1"))
            assert left_in(node.folder) == ["agent.toml", "kernel.log"]
            # Nothing that has a token in it came to the controller.
            assert here.controller.runtime.state.enrolment.certificates == {}

    asyncio.run(scenario())


def test_a_node_that_has_certificates_of_its_own_is_left_as_it_is(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        node, token = there.node("gpu-1"), await there.token("gpu-1")
        static = (await there.joined("gpu-2")).files
        mine = f'\n[tls]\nca = "{static.authorities}"\ncertificate = "{static.own}"\n'
        mine += f'key = "{static.own}"\n'
        node.config.write_text(node.config.read_text() + mine)
        before = left_in(node.folder), node.config.read_text()
        with pytest.raises(JoinError, match=r"tls\.ca is '.*' already, and"):
            await there.join(node, token)
        assert (left_in(node.folder), node.config.read_text()) == before
        record = there.controller.runtime.state.enrolment.tokens[token.split("-")[1]]
        assert record.used == {}

    with_world(tmp_path, act)


def test_a_renewal_keeps_the_stream_and_lengthens_it(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        node = await there.joined("gpu-1")
        gone: list[NodeDisconnected] = []

        def note(taken: TakenEvent) -> None:
            if isinstance(taken.event, NodeDisconnected):
                gone.append(taken.event)

        there.controller.runtime.listen(note)
        async with agent_stream(there.controller.port, "gpu-1", node.tls) as agent:
            await agent.hello()
            session = there.controller.parts.fleet.sessions.of("gpu-1")
            assert session is not None
            session.until_s -= 20 * _DAY_S
            ends_s, serial = session.until_s, there.serial("gpu-1")
            assert await there.renew(node) == 0
            assert there.serial("gpu-1") != serial
            assert validity(node.files.own.read_bytes()).serial == there.serial("gpu-1")
            assert session.until_s > ends_s + 19 * _DAY_S
            assert not session.ending
            # Twice, as when its answer was lost.
            assert await there.renew(node) == 0
        assert gone in ([], [NodeDisconnected("gpu-1", "")])
        async with agent_stream(there.controller.port, "gpu-1", node.tls) as agent:
            await agent.hello()

    with_world(tmp_path, act)


def _put(there: World, node: Node, since_s: int, ends_s: int) -> None:
    """Have a node's certificate begin and end at other times."""
    wanted = Wanted(name=node.name, role=Role.AGENT, since_s=since_s, ends_s=ends_s)
    replace_file(node.files.own, sign_with_key(there.authority, wanted)[1])
    # A controller that has lost its journal knows no serial.
    there.controller.runtime.state.enrolment.certificates.clear()


def test_an_ended_certificate_is_renewed_for_thirty_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def act(there: World) -> None:
        node = await there.joined("gpu-1")
        now_s = int(validity(node.files.own.read_bytes()).since_s) + 300
        _put(there, node, now_s - 60 * _DAY_S, now_s - 29 * _DAY_S)
        async with agent_stream(there.controller.port, "gpu-1", node.tls) as agent:
            with pytest.raises((EOFError, grpc.aio.AioRpcError)):
                await agent.hello()
        assert await there.renew(node) == 0
        async with agent_stream(there.controller.port, "gpu-1", node.tls) as agent:
            await agent.hello()
        _put(there, node, now_s - 70 * _DAY_S, now_s - 31 * _DAY_S)
        assert await there.renew(node) == 1
        assert "more than 30 d ago; join again with a token" in capsys.readouterr().err

    with_world(tmp_path, act)


def test_a_certificate_of_yesterdays_authority_is_told_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    async def scenario() -> None:
        async with world(tmp_path / "a") as here, world(tmp_path / "b") as other:
            node, theirs = await here.joined("gpu-1"), await other.joined("gpu-1")
            node.files.own.write_bytes(theirs.files.own.read_bytes())
            assert await here.renew(node) == 1
        said = capsys.readouterr().err
        assert "was signed by another authority (CN=everstep-" in said
        assert "everstep tokens make --node gpu-1" in said

    asyncio.run(scenario())


def test_who_has_a_certificate_and_not_its_key_renews_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def act(there: World) -> None:
        node, thief = await there.joined("gpu-1"), await there.joined("gpu-2")
        key = thief.files.own.read_bytes().partition(b"-----BEGIN CERTIFICATE")[0]
        stolen = node.files.own.read_bytes().partition(b"-----BEGIN CERTIFICATE")
        thief.files.own.write_bytes(key + stolen[1] + stolen[2])
        assert await there.renew(Node("gpu-1", thief.folder)) == 1
        assert "does not have the key of the certificate" in capsys.readouterr().err

    with_world(tmp_path, act)


def test_a_revoked_node_is_ended_at_once_and_every_agent_is_told(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        bad, good, older = [await there.joined(f"gpu-{number}") for number in (1, 2, 3)]
        port = there.controller.port
        async with (
            agent_stream(port, "gpu-1", bad.tls) as lost,
            agent_stream(port, "gpu-2", good.tls) as told,
            agent_stream(port, "gpu-3", older.tls) as untold,
        ):
            await lost.hello()
            told.takes_revoked = True
            await told.send_hello()
            first = (await told.wait_for("revoked")).revoked
            assert (list(first.serials), list(first.nodes)) == ([], [])
            await untold.hello()
            reply = await there.revoke(node="gpu-1")
            assert reply.streams_ended == 1
            code, sentence = await lost.end()
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert "the certificate of gpu-1 was revoked" in sentence
            assert "by admin: stolen" in sentence
            listed = (await told.wait_for("revoked")).revoked
            assert [one.node for one in listed.nodes] == ["gpu-1"]
            assert not any(one.HasField("revoked") for one in untold.seen)
        assert await there.renew(bad) == 1
        async with agent_stream(port, "gpu-1", bad.tls) as again:
            with pytest.raises((EOFError, grpc.aio.AioRpcError)):
                await again.hello()
        # A token of its own brings it back.
        await there.join(there.node("gpu-1", "anew"), await there.token("gpu-1"))

    with_world(tmp_path, act)


def test_a_flood_of_wrong_tokens_is_not_heard_any_more_and_agents_renew(tmp_path: Path) -> None:
    async def act(there: World) -> None:
        node, told = await there.joined("gpu-1"), list[str]()
        there.controller.runtime.on_announcement(lambda line: told.append(line.reason))
        token = await there.token("gpu-2")
        wrong = token.replace(token.split("-")[2], "a" * 26)
        place = there.node("gpu-2")
        for _ in range(3):
            with pytest.raises(EnrolmentError, match="this controller has no such token"):
                await there.join(place, wrong)
        listener, loop = there.controller.parts.enrolment.listener, asyncio.get_running_loop()
        assert listener is not None
        for _ in range(25):  # as fast as no loaded machine sends them
            listener.limit.note_refused("127.0.0.1", loop.time() + 60, known=False)
        with pytest.raises(EnrolmentError, match="too many wrong tokens came from this address"):
            await there.join(place, wrong)
        assert listener.limit.unheard == 1
        # The first refusal is told at once, and the others with the next one, a minute later.
        assert told.count("EnrolmentRefused") == 1
        await asyncio.sleep(1.5)  # one in a second is heard
        assert await there.renew(node) == 0

    with_world(tmp_path, act)


_SIGN = """\
import os, sys, time
from pathlib import Path
from everstep_controller.enrolment.signer import Authority, Wanted
from everstep_proto.enrolment.certificate_requests import read_request
from everstep_proto.tls import Role
tls = Path(sys.argv[1])
authority = Authority.load(tls / "ca.pem", tls / "ca.key")
now_s = int(time.time())
wanted = Wanted(name=sys.argv[2] if len(sys.argv) > 2 else os.environ["EVERSTEP_NODE"],
    role=Role(os.environ["EVERSTEP_ROLE"]), since_s=now_s - 60, ends_s=now_s + 86400)
print(authority.sign(read_request(sys.stdin.read()).key, wanted).pem, end="")
"""


_NO_KMS = "import sys; print('no KMS', file=sys.stderr); sys.exit(3)"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), ""),
        (("gpu-9",), "sign_command printed a certificate of"),
        (None, "ended with 3: no KMS"),
    ],
)
def test_a_command_signs_where_the_key_is_elsewhere(
    tmp_path: Path, more: tuple[str, ...] | None, said: str
) -> None:
    script = tmp_path / "sign.py"
    script.write_text(
        _SIGN if more is not None else "import sys\nprint('no KMS', file=sys.stderr)\nsys.exit(3)\n"
    )
    command = (sys.executable, str(script), str(tmp_path / "var/tls"), *(more or ()))

    async def act(there: World) -> None:
        if not said:
            node = await there.joined("gpu-1")
            assert validity(node.files.own.read_bytes()).serial == there.serial("gpu-1")
            return
        node, token = there.node("gpu-1"), await there.token("gpu-1")
        with pytest.raises(EnrolmentError, match=said):
            await there.join(node, token)
        assert left_in(node.folder) == ["agent.toml", "kernel.log"]
        assert there.controller.runtime.state.enrolment.tokens[token.split("-")[1]].used == {}

    with_world(tmp_path, act, command)
