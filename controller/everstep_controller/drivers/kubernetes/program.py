"""Credential program of a kubeconfig (``exec``): run when a token is needed that is still good.

It speaks the API client.authentication.k8s.io: what it is told is in its environment, and what it
prints is an ExecCredential with a token.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx2

from everstep_common.printable import brief
from everstep_controller.drivers.kubernetes.kubeconfig import AccessError, Program, check_token

_DEADLINE_S = 10.0
# A token is not sent in its last seconds: the clocks of both machines differ.
_MARGIN = timedelta(seconds=10)


class ProgramAuth(httpx2.Auth):
    """Authorization by the token that a program prints; it is run again where that is refused."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._token = ""
        self._expires: datetime | None = None
        self._running = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a token, and once more with a new one. Raises AccessError."""
        token = await self._current(refused="")
        request.headers["Authorization"] = f"Bearer {token}"
        answer = yield request
        if answer.status_code == 401:
            token = await self._current(refused=token)
            request.headers["Authorization"] = f"Bearer {token}"
            yield request

    async def _current(self, refused: str) -> str:
        """Return a token that is good as far as is known, and is not the one that was refused."""
        async with self._running:
            is_over = self._expires is not None and datetime.now(UTC) > self._expires - _MARGIN
            if not self._token or is_over or self._token == refused:
                self._token, self._expires = self._read(await self._run())
            return self._token

    async def _run(self) -> bytes:
        """Return what the program prints; it does not outlive its deadline. Raises AccessError."""
        spec = {"interactive": False, "cluster": self._program.cluster}
        told = {
            "apiVersion": self._program.version,
            "kind": "ExecCredential",
            "spec": {key: one for key, one in spec.items() if one is not None},
        }
        environment = {**os.environ, **self._program.environment}
        environment["KUBERNETES_EXEC_INFO"] = json.dumps(told)
        try:
            process = await asyncio.create_subprocess_exec(
                self._program.command,
                *self._program.arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            hint = f"; {self._program.hint}" if self._program.hint else ""
            raise self._error(f"cannot be run: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(_DEADLINE_S):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise self._error(f"has printed nothing within {_DEADLINE_S:g} s") from error
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if process.returncode:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise self._error(f"ended with code {process.returncode}: {last}")
        return output

    def _read(self, output: bytes) -> tuple[str, datetime | None]:
        try:
            status = json.loads(output)["status"]
            token, until = status.get("token"), status.get("expirationTimestamp")
            expires = datetime.fromisoformat(until) if until else None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._error("has printed no ExecCredential") from error
        if not token:
            raise self._error("gives no token; certificates of such a program are not used")
        return check_token(str(token), f"the token of {self._program.command}"), expires

    def _error(self, what: str) -> AccessError:
        return AccessError(f"the program {self._program.command} of exec {brief(what)}")
