"""API server of Kubernetes: requests with a deadline, and a sentence for each way they may fail."""

import asyncio
import email.utils
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import httpx2
import msgspec
from lightkube import ConfigError

from everstep_common.printable import brief
from everstep_controller.drivers.kubernetes.access import Access, stamp_of
from everstep_controller.drivers.kubernetes.kubeconfig import AccessError
from everstep_controller.drivers.kubernetes.objects import Status, UnusableError, decoded
from everstep_controller.drivers.port import DriverError

MERGE_PATCH = "application/merge-patch+json"
# Server-side apply; JSON is YAML.
APPLY_PATCH = "application/apply-patch+yaml"
_JSON = "application/json"
# What that is refused for is one pod's budget, and says nothing of the server.
_EVICTION = "pods/eviction"
# A page of 500 nodes is some 9 MB; the largest object that Kubernetes stores has 1.5 MB.
_ANSWER_BYTES_MAX = 128 << 20
_EVENT_BYTES_MAX = 8 << 20
_SHOWN_MAX = 200
# What a server asks for beyond this is a mistake: nothing would be isolated meanwhile.
_PATIENCE_MAX_S = 120.0
# What is under way when the driver is closed has so long to end.
_LEAVE_S = 2.0
_CUT = (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError)


class ApiError(DriverError):
    """A request failed; one sentence says how, and what to do."""

    def __init__(self, sentence: str, code: int = 0, retry_after_s: float = 0.0) -> None:
        super().__init__(sentence)
        # The code of HTTP; 0: there was no answer.
        self.code = code
        self.retry_after_s = retry_after_s


class SilentError(ApiError):
    """A server that ought to say something now and then has said nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request: a verb on a resource in words of RBAC, and how it is asked."""

    verb: str
    resource: str
    path: str
    method: str = "GET"
    params: Mapping[str, str] | None = None
    body: object = None
    content_type: str = _JSON

    def __str__(self) -> str:
        """Return it as people would say it."""
        return f"{self.verb} {self.resource}"


class ApiServer:
    """Connections to one API server; a call raises ApiError, and never waits past its deadline."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self.access = access
        self._timeout_s = timeout_s
        self._client: httpx2.AsyncClient | None = None
        # Clients of files that were replaced since: what is under way by them goes on.
        self._former: list[httpx2.AsyncClient] = []
        # Requests that nobody waits for any more.
        self._leaving: set[asyncio.Task[None]] = set()
        self._files: tuple[Path, ...] = ()
        self._stamp: tuple[tuple[int, int, int], ...] = ()
        self._connecting = asyncio.Lock()
        # The server's clock, less that of the loop: ages are by its clock alone.
        self._clock_offset_s: float | None = None
        # When the server takes requests again, where it has asked for patience.
        self._not_before_s = 0.0
        self.requests = 0

    def now_s(self) -> float | None:
        """Return the time by the server's clock, to a second; None before it has answered."""
        if self._clock_offset_s is None:
            return None
        return asyncio.get_running_loop().time() + self._clock_offset_s

    async def send(self, call: Call) -> bytes:
        """Return the answer to a request. Raises ApiError."""
        self._check_patience(call)
        with self._told(call):
            async with asyncio.timeout(self._timeout_s):
                await self._be_patient()
                try:
                    return await self._body(call)
                except _CUT:
                    # A connection of before may have ended unseen; no request does harm twice.
                    return await self._body(call)

    async def follow(self, call: Call, silence_s: float) -> AsyncGenerator[bytes, None]:
        """Yield the lines of an answer until the server ends it.

        The first is empty, and says that the answer has begun; one that was cut short is not
        yielded. Raises ApiError; SilentError where nothing comes for so long.
        """
        rest = b""
        with self._told(call):
            try:
                async with self._answer(call, silence_s) as answer:
                    yield b""
                    async for part in answer.aiter_raw():
                        *lines, rest = (rest + part).split(b"\n")
                        for line in lines:
                            yield line
                        if len(rest) > _EVENT_BYTES_MAX:
                            raise UnusableError(f"an event has more than {_EVENT_BYTES_MAX} bytes")
            except httpx2.ReadTimeout as error:
                raise SilentError(f"{call}: nothing has come for {silence_s:g} s") from error

    async def close(self) -> None:
        """Close all connections."""
        if self._leaving:
            _, late = await asyncio.wait(self._leaving, timeout=_LEAVE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        clients, self._former = [*self._former, *filter(None, [self._client])], []
        self._client = None
        for client in clients:
            await client.aclose()

    async def _body(self, call: Call) -> bytes:
        async with self._answer(call, self._timeout_s) as answer:
            return await _whole(answer)

    @asynccontextmanager
    async def _answer(self, call: Call, silence_s: float) -> AsyncIterator[httpx2.Response]:
        """Send a request, and return its answer once it is a good one."""
        client = await self._connected()
        content = None if call.body is None else msgspec.json.encode(call.body)
        headers = {} if content is None else {"Content-Type": call.content_type}
        request = client.build_request(
            call.method,
            call.path,
            params=dict(call.params or {}),
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(self._timeout_s, read=silence_s),
        )
        self.requests += 1
        answer = await self._begun(client, request)
        try:
            self._note_time(answer)
            if not answer.is_success:
                error = _refused(call, answer, await _whole(answer), self.access)
                if error.retry_after_s and call.resource != _EVICTION:
                    now_s = asyncio.get_running_loop().time()
                    self._not_before_s = now_s + error.retry_after_s
                raise error
            yield answer
        finally:
            await answer.aclose()

    async def _begun(self, client: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """Send a request, and return its answer when that begins.

        A caller that is cancelled leaves it to end by itself: the client closes a connection whose
        handshake fails or is late, and forgets one whose handshake is cancelled.
        """
        sending = asyncio.create_task(client.send(request, stream=True), name="kubernetes request")
        try:
            return await asyncio.shield(sending)
        except asyncio.CancelledError:
            leaving = asyncio.create_task(_drop(sending), name="kubernetes request")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            raise

    async def _connected(self) -> httpx2.AsyncClient:
        """Return a client for the files as they are now."""
        async with self._connecting:
            stamp = stamp_of(self._files)
            if self._client is None or stamp != self._stamp:
                client, files = await asyncio.to_thread(self._connect)
                if self._client is not None:
                    self._former.append(self._client)
                self._client, self._files, self._stamp = client, files, stamp_of(files)
                while len(self._former) > 2:
                    await self._former.pop(0).aclose()
            return self._client

    def _connect(self) -> tuple[httpx2.AsyncClient, tuple[Path, ...]]:
        # What a first request would import on the loop, for 30 ms.
        anyio.run(anyio.sleep, 0)
        return self.access.connect(self._timeout_s), self.access.files()

    @contextmanager
    def _told(self, call: Call) -> Iterator[None]:
        """Turn what may go wrong on the way into ApiError."""
        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise ApiError(
                f"{call}: the API server {self._address} does not answer in time"
            ) from error
        except UnusableError as error:
            raise ApiError(f"{call}: {error}") from error
        except AccessError as error:
            raise ApiError(str(error)) from error
        except ConfigError as error:
            raise ApiError(f"{self.access.credentials} cannot be used: {error}") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            sentence = _trouble(error, self.access, self._address)
            raise ApiError(f"{call}: {sentence}") from error

    @property
    def _address(self) -> str:
        return str(self._client.base_url).rstrip("/") if self._client is not None else ""

    def _check_patience(self, call: Call) -> None:
        """Refuse a call that the server would not take before its deadline. Raises ApiError."""
        wait_s = self._not_before_s - asyncio.get_running_loop().time()
        if wait_s >= self._timeout_s:
            raise ApiError(
                f"{call}: the API server takes no requests for another {wait_s:.0f} s, as it says",
                retry_after_s=wait_s,
            )

    async def _be_patient(self) -> None:
        wait_s = self._not_before_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def _note_time(self, answer: httpx2.Response) -> None:
        with suppress(ValueError, TypeError):
            told = email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp()
            self._clock_offset_s = told - asyncio.get_running_loop().time()


async def _drop(sending: asyncio.Task[httpx2.Response]) -> None:
    """Close the answer to a request when it begins."""
    with suppress(httpx2.HTTPError, AccessError, ConfigError, OSError):
        answer = await sending
        await answer.aclose()


async def _whole(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for part in answer.aiter_raw():
        body += part
        if len(body) > _ANSWER_BYTES_MAX:
            raise UnusableError(f"the answer has more than {_ANSWER_BYTES_MAX} bytes")
    return bytes(body)


def _trouble(error: Exception, access: Access, address: str) -> str:
    """Return why there is no answer."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None:
        is_name = "mismatch" in cause.verify_message
        look = (
            "name the server as its certificate does"
            if is_name
            else f"look at the CA of {access.credentials}, and at the clocks of both machines"
        )
        said = cause.verify_message.rstrip(".")
        return f"the certificate of the API server {address} is not accepted: {said}; {look}"
    if isinstance(error, httpx2.LocalProtocolError):  # its words have what was sent, the token too
        return f"a request to {address} cannot be made of {access.credentials}"
    said = brief(str(error)) or type(error).__name__
    return (
        f"the API server {address} cannot be reached: {said}; does it run, and is that its address?"
    )


def _refused(call: Call, answer: httpx2.Response, body: bytes, access: Access) -> ApiError:
    """Return the error that an answer with another code than 2xx is."""
    code = answer.status_code
    if code == 401:
        return ApiError(
            f"{call}: the API server does not accept {access.credentials} (401): its token or "
            "certificate has expired, was revoked, or is of another cluster",
            code,
        )
    said = _status(body)
    if code == 403:
        words = f": {brief(said.message)}" if said.message else ""
        return ApiError(
            f"{call}: the API server forbids it to {access.credentials} (403){words}; what is "
            f"needed: {access.rbac_command}",
            code,
        )
    said.code = code
    said.message = said.message or body[:_SHOWN_MAX].decode(errors="replace")
    told = answer.headers.get("Retry-After", "")
    return refusal(call, said, float(told) if told.isdigit() and len(told) < 6 else 0.0)


def refusal(call: Call, said: Status, retry_after_s: float = 0.0) -> ApiError:
    """Return the error that a status of the API server is."""
    in_body_s = said.details.retry_after_seconds if said.details is not None else 0
    return ApiError(
        f"{call}: the API server answers {said.code}: {brief(said.message or said.reason)}",
        said.code,
        min(_PATIENCE_MAX_S, retry_after_s or float(in_body_s)),
    )


def _status(body: bytes) -> Status:
    with suppress(UnusableError):
        return decoded(body, Status, "a refusal")
    return Status()
