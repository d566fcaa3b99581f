"""Enrolments: a fleet joins, renews and is attacked, at a real controller over real TLS."""

import argparse
import contextlib
import itertools
import json
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
from harness.processes import cpu_s, free_port, module_command, running, wait_for_port
from harness.table import Row, Target
from harness.talk import Talk
from transport.agent import name_of

from everstep_agent.enrolment.certificate_files import CertificateFiles
from everstep_agent.enrolment.client import EnrolmentClient, EnrolmentError
from everstep_proto.enrolment.certificate_requests import make_request, new_key
from everstep_proto.enrolment.messages import (
    ENROL_PATH,
    RENEW_PATH,
    CertificateReply,
    EnrolRequest,
    RenewRequest,
)
from everstep_proto.enrolment.token_text import TokenText, read_token
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from everstep_proto.tls import TlsSettings, channel_credentials

_HOUR_NS = 3_600_000_000_000
_WORKERS = 16
_RENEW_S = 10.0
_FLOOD_S = 10.0
_STRANGERS = 8
# Of a core of the controller, while all enrol within a minute; and what strangers may take.
_CORE_MAX, _FLOOD_CORE_MAX = 0.2, 0.3


@dataclass(frozen=True, slots=True)
class Site:
    """A controller, and where it is reached."""

    folder: Path
    pid: int
    port: int
    enrolment_port: int

    def client(self) -> EnrolmentClient:
        """Return a client of its enrolment port."""
        return EnrolmentClient(f"127.0.0.1:{self.enrolment_port}")

    def admin(self) -> contextlib.AbstractContextManager[admin_pb2_grpc.AdminStub]:
        """Return the calls of an operator."""
        own = self.folder / "operators" / "admin.pem"
        tls = TlsSettings(ca=self.folder / "operators/ca.pem", certificate=own, key=own)
        return _admin(f"localhost:{self.port}", tls)


@contextlib.contextmanager
def _admin(address: str, tls: TlsSettings) -> Iterator[admin_pb2_grpc.AdminStub]:
    with grpc.secure_channel(address, channel_credentials(tls)) as channel:
        yield admin_pb2_grpc.AdminStub(channel)


@contextlib.contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Make a cluster and run its controller."""
    port, enrolment_port = free_port(), free_port()
    config = folder / "controller.toml"
    config.write_text(
        f'listen = "127.0.0.1:{port}"\nmetrics = ""\njournal = "{folder}/var/journal.sqlite"\n'
        f'log_level = "error"\n[enrolment]\nlisten = "127.0.0.1:{enrolment_port}"\n'
    )
    command: list[str | Path] = [sys.executable, "-m", "everstep_controller.main"]
    names = ["--name", "localhost", "--name", "127.0.0.1"]
    made = [*map(str, command), "init", *names, "--config", str(config)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    with running([*command, "--config", config]) as controller:
        wait_for_port(port, controller)
        yield Site(folder, controller.pid, port, enrolment_port)


def measure(options: argparse.Namespace) -> Iterator[Row]:
    """Yield what it costs to enrol, to renew, and to be flooded."""
    with tempfile.TemporaryDirectory() as name, site(Path(name)) as here:
        nodes: int = options.nodes
        token = _token(here, nodes)
        yield from _enrol(here, token, nodes, options.within)
        with _streams(here, nodes):
            yield from _renew(here, nodes)
            yield from _flood(here, token, nodes)


def _token(here: Site, nodes: int) -> TokenText:
    names = [name_of(index) for index in range(nodes)]
    request = admin_pb2.MakeTokenRequest(nodes=names, names="bench", lasts_ns=_HOUR_NS)
    with here.admin() as admin:
        return read_token(admin.MakeToken(request).token)


# --- enrolments ----------------------------------------------------------------------------------


def _enrol(here: Site, token: TokenText, nodes: int, within_s: float) -> Iterator[Row]:
    prepared = []
    for index in range(nodes):
        key = new_key()
        prepared.append((name_of(index), key, make_request(key, name_of(index)).decode()))
    failed = list[str]()

    def join(name: str, key: bytes, request: str) -> None:
        client = here.client()
        try:
            _, authority = client.pinned_authority(token.authority)
            asked = EnrolRequest(
                token_id=token.id,
                secret=token.secret,
                node=name,
                request=request,
                clock_s=time.time(),
            )
            reply = client.ask(authority, ENROL_PATH, asked, CertificateReply)
        except EnrolmentError as error:
            failed.append(str(error))
            return
        (here.folder / f"{name}.key").write_bytes(key)
        (here.folder / f"{name}.pem").write_text(reply.certificate)
        (here.folder / "ca.pem").write_text(reply.authorities)

    before_s, began = cpu_s(here.pid), time.monotonic()
    took_s = _paced([partial(join, *one) for one in prepared], within_s)
    whole_s = max(within_s, time.monotonic() - began)
    used_s = cpu_s(here.pid) - before_s
    # On a machine that is too busy for this pace it is what the pace would have taken.
    told = f"controller, {nodes} enrolments in {within_s:.0f} s"
    yield _row(told, used_s / within_s, "cores", _CORE_MAX)
    yield _row("an enrolment, processor time", used_s / nodes * 1e3, "ms")
    yield _row("all enrolments took", whole_s, "s", 1.1 * within_s)
    yield _row("slowest enrolment", max(took_s), "s")
    yield _row("enrolments without a certificate", len(failed), "nodes", 0)
    if failed:
        print(failed[0], file=sys.stderr)


# --- renewals ------------------------------------------------------------------------------------


@contextlib.contextmanager
def _streams(here: Site, nodes: int) -> Iterator[None]:
    with running(module_command("transport.fleet", here.port, nodes, here.folder)) as agents:
        talk = Talk(agents)
        talk.ask("connect")
        talk.ask("check")
        yield


def _renewal(here: Site, name: str) -> RenewRequest:
    """Return what an agent sends; the files of the streams stay as they are."""
    folder = here.folder / f"renewal-{name}"
    folder.mkdir(exist_ok=True)
    own = (here.folder / f"{name}.key").read_bytes() + (here.folder / f"{name}.pem").read_bytes()
    (folder / "agent.pem").write_bytes(own)
    return CertificateFiles(folder).renewal(new_key(), name, time.time())


def _renew(here: Site, nodes: int) -> Iterator[Row]:
    authorities = (here.folder / "ca.pem").read_text()
    requests = [_renewal(here, name_of(index)) for index in range(nodes)]
    failed = list[str]()

    def renew(request: RenewRequest) -> None:
        try:
            here.client().ask(authorities, RENEW_PATH, request, CertificateReply)
        except EnrolmentError as error:
            failed.append(str(error))

    with _doubts(here) as doubts:
        before_s, began = cpu_s(here.pid), time.monotonic()
        took_s = _paced([partial(renew, one) for one in requests], 0.95 * _RENEW_S)
        whole_s = time.monotonic() - began
        cores = (cpu_s(here.pid) - before_s) / whole_s
        time.sleep(2.0)  # who is missed is in doubt a second later
    yield _row(f"{nodes} renewals", whole_s, "s", _RENEW_S)
    yield _row("controller meanwhile, with their streams", cores, "cores")
    yield _row("slowest renewal", max(took_s), "s")
    yield _row("renewals that failed", len(failed), "nodes", 0)
    yield _row("nodes in doubt or away meanwhile", max(doubts, default=-1), "nodes", 0)
    if failed:
        print(failed[0], file=sys.stderr)


@contextlib.contextmanager
def _doubts(here: Site) -> Iterator[list[int]]:
    """Count twice a second how many nodes are in doubt or away."""
    found, over = list[int](), threading.Event()

    def look() -> None:
        with here.admin() as admin:
            while not over.wait(0.5):
                summary = admin.ListNodes(admin_pb2.ListNodesRequest(summary_only=True)).summary
                found.append(summary.doubtful + summary.away)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


# --- a flood -------------------------------------------------------------------------------------


def _flood(here: Site, token: TokenText, nodes: int) -> Iterator[Row]:
    """Have strangers send wrong tokens from many addresses, as fast as they can."""
    authorities = (here.folder / "ca.pem").read_text()
    over, tried = threading.Event(), [0] * _STRANGERS
    wrong = EnrolRequest(
        token_id=token.id,
        secret=re.sub(".", "a", token.secret),
        node="gpu-0000",
        request=make_request(new_key(), "gpu-0000").decode(),
        clock_s=time.time(),
    )
    fields = {name: getattr(wrong, name) for name in wrong.__slots__}
    body = json.dumps(fields).encode()
    head = f"POST {ENROL_PATH} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    def stranger(number: int) -> None:
        for last in itertools.cycle(range(2, 250)):
            if over.is_set():
                return
            tried[number] += 1
            with contextlib.suppress(OSError):
                _send(f"127.0.{number}.{last}", here.enrolment_port, head + body)

    with ThreadPoolExecutor(_STRANGERS) as pool:
        before_s, began = cpu_s(here.pid), time.monotonic()
        for number in range(_STRANGERS):
            pool.submit(stranger, number)
        took_s = list[float]()
        index = 0
        while time.monotonic() - began < _FLOOD_S:
            # The certificates that the streams show still are of the line that was renewed.
            request = _renewal(here, name_of(index % nodes))
            at = time.monotonic()
            here.client().ask(authorities, RENEW_PATH, request, CertificateReply)
            took_s.append(time.monotonic() - at)
            index += 1
            time.sleep(0.1)
        cores = (cpu_s(here.pid) - before_s) / (time.monotonic() - began)
        over.set()
    rate = sum(tried) / _FLOOD_S
    yield _row("controller, a flood of wrong tokens", cores, "cores", _FLOOD_CORE_MAX)
    yield _row("wrong tokens tried", rate, "/s")
    yield _row("slowest renewal in that flood", max(took_s), "s", 1.0)


def _send(source: str, port: int, request: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 5.0, source_address=(source, 0)) as plain,
        context.wrap_socket(plain) as encrypted,
    ):
        encrypted.sendall(request)
        encrypted.recv(4096)


# -------------------------------------------------------------------------------------------------


def _paced(works: list[Callable[[], None]], within_s: float) -> list[float]:
    """Do works one after the other, evenly within a time; return how long each took."""
    took_s = list[float]()

    def timed(work: Callable[[], None]) -> None:
        at = time.monotonic()
        work()
        took_s.append(time.monotonic() - at)

    began = time.monotonic()
    with ThreadPoolExecutor(_WORKERS) as pool:
        for number, work in enumerate(works):
            pause_s = began + number * within_s / len(works) - time.monotonic()
            if pause_s > 0:
                time.sleep(pause_s)
            pool.submit(timed, work)
    return took_s


def _row(name: str, value: float, unit: str, most: float | None = None) -> Row:
    target = None if most is None else Target(most)
    return Row(
        name=name,
        value=value,
        unit=unit,
        target=str(target or ""),
        met=None if target is None else target.met(value),
    )
