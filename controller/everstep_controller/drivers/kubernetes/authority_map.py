"""Authority map: the ConfigMap in which agents' pods find the authority of their controller.

As kube-root-ca.crt for the API server's: what is in it is no secret, and pods that mount it wait
until it is there. It is applied again, so that one that was emptied is filled.
"""

import asyncio
import logging
from pathlib import Path

from everstep_controller.drivers.kubernetes.api_server import (
    APPLY_PATCH,
    ApiError,
    ApiServer,
    Call,
)

logger = logging.getLogger(__name__)

KEY = "ca.pem"
_AGAIN_S, _RETRY_S = 300.0, 10.0


class AuthorityMap:
    """Writes the certificates of ``tls.ca`` into a ConfigMap, as long as it runs."""

    def __init__(self, server: ApiServer, place: str, authorities: Path) -> None:
        """``place`` is NAMESPACE/NAME."""
        self._server, self._authorities = server, authorities
        self._namespace, _, self._name = place.partition("/")
        # Why it was not written last; "" where it was.
        self.trouble = ""

    async def run(self) -> None:
        """Write it again and again, until cancelled."""
        while True:
            await self.write()
            await asyncio.sleep(_RETRY_S if self.trouble else _AGAIN_S)

    async def write(self) -> None:
        """Write it once."""
        try:
            text = await asyncio.to_thread(self._authorities.read_text)
            await self._server.send(self._call(text))
        except (ApiError, OSError) as error:
            said = str(error)
        else:
            said = ""
        if said and said != self.trouble:
            logger.warning(
                "agents' pods do not get the authority, for the ConfigMap %s/%s is not written: %s",
                self._namespace,
                self._name,
                said,
            )
        self.trouble = said

    def _call(self, text: str) -> Call:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {KEY: text},
        }
        path = f"/api/v1/namespaces/{self._namespace}/configmaps/{self._name}"
        params = {"fieldManager": "everstep", "force": "true"}
        return Call("patch", "configmaps", path, "PATCH", params, body, APPLY_PATCH)
