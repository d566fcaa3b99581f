"""HTTP POST with one deadline over all of it: name, connection, TLS, request and answer.

Redirects are not followed, and no proxy of the environment is used. Standard library alone: an HTTP
client with a pool, redirects and proxies brings what is forbidden here.
"""

import http.client
import io
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from everstep_common.printable import printable
from everstep_controller.webhooks.egress import EgressError, Target, refused_address

# What is read of an answer: its words may say what is wrong.
_BODY_MAX = 4096
_SAID_MAX = 200

# The addresses of a host and a port.
Resolver = Callable[[str, int], list[str]]


class PostError(Exception):
    """No answer, or none that can be used; one sentence says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a receiver."""

    status: int
    # The beginning of its body, or where a redirect leads; printable.
    said: str
    # How long it asks to be left alone, in seconds; 0: it does not.
    retry_after_s: float

    @property
    def sentence(self) -> str:
        """Return it in words."""
        return f"it answered {self.status}{': ' + self.said if self.said else ''}"


@dataclass(frozen=True, slots=True)
class Poster:
    """Client for single requests: the authorities that it trusts, and how names are resolved."""

    tls: ssl.SSLContext
    resolve: Resolver
    clock: Callable[[], float] = time.monotonic

    def post(
        self, target: Target, headers: Mapping[str, str], body: bytes, timeout_s: float
    ) -> Answer:
        """Send a body and return the answer. Raises PostError, EgressError."""
        deadline = _Deadline(self.clock, self.clock() + timeout_s, timeout_s)
        try:
            with self._connect(target, deadline) as connection:
                connection.settimeout(deadline.left_s())
                connection.sendall(_request(target, headers, body))
                found = _read(connection, deadline)
                return replace(found, said=target.redacted(found.said)[:_SAID_MAX])
        except TimeoutError as error:
            raise PostError(f"no whole answer within {timeout_s:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise PostError(f"its certificate is not trusted: {error.verify_message}") from error
        except (ssl.SSLError, OSError) as error:
            raise PostError(f"no connection: {printable(_reason(error))}") from error
        except (http.client.HTTPException, ValueError) as error:
            said = target.redacted(_words(error))
            raise PostError(f"its answer is no whole HTTP: {said}") from error

    def _connect(self, target: Target, deadline: "_Deadline") -> socket.socket:
        addresses = resolve_within(self.resolve, target, deadline.left_s())
        refused = [why for one in addresses if (why := refused_address(target, one))]
        if refused:
            raise EgressError(refused[0])
        last: OSError | None = None
        for others, address in zip(reversed(range(len(addresses))), addresses, strict=True):
            # One that swallows packets leaves the others their time.
            share_s = deadline.left_s() / (others + 1)
            try:
                plain = socket.create_connection((address, target.port), share_s)
            except OSError as error:
                last = error
                continue
            return self._encrypt(plain, target, deadline) if target.encrypted else plain
        raise last or OSError(f"{target.host} has no address")

    def _encrypt(
        self, plain: socket.socket, target: Target, deadline: "_Deadline"
    ) -> socket.socket:
        plain.settimeout(deadline.left_s())
        try:
            return self.tls.wrap_socket(plain, server_hostname=target.host)
        except BaseException:
            plain.close()
            raise


def tls_context(ca_file: str) -> ssl.SSLContext:
    """Return what receivers are verified by. Raises OSError, ssl.SSLError."""
    context = ssl.create_default_context(cafile=ca_file or None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def system_addresses(host: str, port: int) -> list[str]:
    """Return the addresses of a host, as the system resolves its name. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def resolve_within(resolve: Resolver, target: Target, timeout_s: float) -> list[str]:
    """Return the addresses of a host. Raises OSError, TimeoutError.

    The system's resolver knows no deadline: a thread that waits for it is left behind.
    """
    told: queue.SimpleQueue[list[str] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            told.put(resolve(target.host, target.port))
        except OSError as error:
            told.put(error)

    threading.Thread(target=ask, name="webhook-name", daemon=True).start()
    try:
        found = told.get(timeout=timeout_s)
    except queue.Empty as error:
        raise TimeoutError from error
    if isinstance(found, OSError):
        raise found
    return found


# -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Deadline:
    clock: Callable[[], float]
    at_s: float
    timeout_s: float

    def left_s(self) -> float:
        """Return how long is left. Raises TimeoutError."""
        left_s = self.at_s - self.clock()
        if left_s <= 0:
            raise TimeoutError
        return left_s


class _Incoming(io.RawIOBase):
    """What a socket receives, until the deadline, which bytes that drip do not put off."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        self._connection = connection
        self._deadline = deadline
        # The other side has closed.
        self.ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        self._connection.settimeout(self._deadline.left_s())
        count = self._connection.recv_into(buffer)
        self.ended = self.ended or not count
        return count


@dataclass(frozen=True, slots=True)
class _Readable:
    """What http.client wants of a socket."""

    incoming: _Incoming

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode  # "rb"
        return io.BufferedReader(self.incoming)


def _request(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.named}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("ascii") + body


def _read(connection: socket.socket, deadline: _Deadline) -> Answer:
    """Return an answer that is whole: one that breaks off is none, and the event is sent again."""
    incoming = _Incoming(connection, deadline)
    readable = cast("socket.socket", _Readable(incoming))
    response = http.client.HTTPResponse(readable, method="POST")
    response.begin()
    if incoming.ended:  # within the headers, which http.client takes for their end
        raise http.client.IncompleteRead(b"")
    content = response.read(_BODY_MAX)
    if response.length and len(content) < _BODY_MAX:
        raise http.client.IncompleteRead(content, response.length)
    said = content.decode(errors="replace").strip()
    if 300 <= response.status < 400:
        said = "a redirect, which is not followed: put the right URL into its file"
    asked = response.getheader("Retry-After") or ""
    wait_s = float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 7 else 0.0
    return Answer(response.status, printable(said), wait_s)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


def _words(error: Exception) -> str:
    return f"{type(error).__name__} {printable(str(error))[:100]}".strip()
