"""A controller that signs certificates, made by the command that makes one, and nodes that join."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_agent.commands import join
from everstep_agent.config.agent_config import AgentConfig
from everstep_agent.enrolment import renew
from everstep_agent.enrolment.certificate_files import CertificateFiles
from everstep_common.config import load
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.dispatch.core import Core
from everstep_controller.enrolment.signer import Authority
from everstep_controller.initialisation import initialise
from everstep_controller.service import Controller, Options
from everstep_proto.enrolment.token_text import read_token
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from everstep_proto.tls import TlsSettings, aio_channel

HOUR_NS = 3_600_000_000_000
_CONTROLLER = """\
listen = "localhost:0"
metrics = ""
journal = "{folder}/var/journal.sqlite"

[enrolment]
listen = "127.0.0.1:0"
"""
_AGENT = """\
data_folder = "{folder}/data"
kernel_log = "{folder}/kernel.log"
metrics_address = "127.0.0.1:0"
liveness_address = "127.0.0.1:0"

[jobs]
runtime_folder = "{folder}/run"
bulk_port = 0
"""


@dataclass(frozen=True)
class Node:
    """A node's folder, with its agent's configuration."""

    name: str
    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "agent.toml"

    @property
    def files(self) -> CertificateFiles:
        return CertificateFiles(self.folder / "data" / "tls")

    @property
    def tls(self) -> TlsSettings:
        files = self.files
        return TlsSettings(ca=files.authorities, certificate=files.own, key=files.own)


@dataclass(frozen=True)
class World:
    """A running controller, and the folder in which it was made."""

    folder: Path
    controller: Controller

    @property
    def address(self) -> str:
        return f"localhost:{self.controller.enrolment_port}"

    @property
    def authority(self) -> Authority:
        tls = self.folder / "var" / "tls"
        return Authority.load(tls / "ca.pem", tls / "ca.key")

    @property
    def operator(self) -> TlsSettings:
        folder = self.folder / "operators"
        own = folder / "admin.pem"
        return TlsSettings(ca=folder / "ca.pem", certificate=own, key=own)

    def node(self, name: str, folder: str = "") -> Node:
        """Return a node that has not joined yet."""
        place = self.folder / (folder or name)
        place.mkdir()
        (place / "kernel.log").touch()
        (place / "agent.toml").write_text(_AGENT.format(folder=place))
        return Node(name, place)

    async def token(self, names: str, *nodes: str, uses_max: int = 1) -> str:
        """Return a new token."""
        request = admin_pb2.MakeTokenRequest(
            names=names, nodes=nodes or [names], uses_max=uses_max, lasts_ns=HOUR_NS
        )
        async with aio_channel(f"localhost:{self.controller.port}", self.operator) as channel:
            reply = await admin_pb2_grpc.AdminStub(channel).MakeToken(request)
        return reply.token

    async def join(self, node: Node, token: str, address: str = "") -> list[str]:
        """Join as the command does; return what it prints. Raises what it does."""

        def run() -> list[str]:
            config = load(AgentConfig, node.config)
            wanted = join.Join(read_token(token), address or self.address, node.name, node.config)
            return list(join.run(wanted, config, node.config.read_text()))

        return await asyncio.to_thread(run)

    async def joined(self, name: str) -> Node:
        """Return a node that has joined by a token of its own."""
        node = self.node(name)
        await self.join(node, await self.token(name))
        return node

    async def renew(self, node: Node, address: str = "") -> int:
        """Renew as the agent's short process does; return its exit code."""
        words = [str(node.files.folder), node.name, address or self.address, ""]
        return await asyncio.to_thread(renew.main, words)

    async def revoke(self, **what: str) -> admin_pb2.RevokeCertificatesReply:
        """Revoke a node or a serial."""
        request = admin_pb2.RevokeCertificatesRequest(reason="stolen", **what)
        async with aio_channel(f"localhost:{self.controller.port}", self.operator) as channel:
            return await admin_pb2_grpc.AdminStub(channel).RevokeCertificates(request)

    def serial(self, node: str) -> str:
        """Return the serial of a node's newest certificate."""
        return self.controller.runtime.state.enrolment.certificates[node].serial


@asynccontextmanager
async def world(
    folder: Path, sign_command: tuple[str, ...] = (), more: str = ""
) -> AsyncIterator[World]:
    """Run a controller that `everstep-controller init` has made; ``more`` is its configuration."""
    path = folder / "controller.toml"
    path.write_text(_CONTROLLER.format(folder=folder) + more)
    list(initialise(path, ["localhost", "127.0.0.1"]))
    config = load(ControllerConfig, path)
    if sign_command:
        changed = replace(config.enrolment, ca_key=None, sign_command=sign_command)
        config = replace(config, enrolment=changed)
    controller = Controller.open(config, Options(Core, config_path=path))
    await controller.start()
    try:
        yield World(folder, controller)
    finally:
        await controller.stop()


def left_in(folder: Path) -> list[str]:
    """Return all files below a folder, by their paths in it."""
    found = (Path(top, name) for top, _, names in os.walk(folder) for name in names)
    return sorted(str(path.relative_to(folder)) for path in found)


def journal_text(folder: Path) -> bytes:
    """Return all bytes of a journal and of what lies beside it."""
    return b"".join(path.read_bytes() for path in (folder / "var").glob("journal.sqlite*"))
