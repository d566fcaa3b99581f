"""Renewer: renews the agent's certificate in time, in a short process, while everything goes on."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random

from everstep_agent.enrolment.schedule import Renewal
from everstep_proto.enrolment.validity import NoCertificateError, Validity, validity
from everstep_proto.tls import TlsSettings

logger = logging.getLogger(__name__)

# Files may be replaced by hand, and clocks may be set: it never sleeps longer than this.
_LOOK_S = 60.0
_CHILD_S = 90.0


class Renewer:
    """Renews the certificate that `everstep-agent join` has put into the data folder."""

    def __init__(
        self,
        node: str,
        addresses: Sequence[str],
        tls: TlsSettings,
        rng: Random,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """``addresses`` are where it is renewed; none: the files are somebody's to renew."""
        self._node, self._addresses, self._tls, self._wall_s = node, addresses, tls, wall_s
        self.is_own = bool(addresses)
        self._renewal = Renewal(rng.random())
        # Why the last attempt failed; "" where there was none, or it succeeded.
        self.trouble = ""
        self.renewed = 0
        # What the file had when it was read last; None: there is none that can be read.
        self.known: Validity | None = None

    async def run(self) -> None:
        """Renew whenever it is due, and know how long the certificate lasts, until cancelled."""
        if self._tls.certificate is None:
            await asyncio.Event().wait()
        while True:
            wait_s = await self.renew_if_due()
            await asyncio.sleep(min(_LOOK_S, wait_s))

    async def renew_if_due(self) -> float:
        """Renew where it is due; return after how many seconds to look again."""
        known = self.known = self._known()
        if known is None or not self._addresses:
            return _LOOK_S
        left_s = self._renewal.due_s(known) - self._wall_s()
        if left_s > 0:
            return left_s
        said = await self._renew()
        place = self._renewal.place
        if not said:
            logger.info("the certificate of this node was renewed")
            self._renewal, self.trouble = Renewal(place), ""
            self.renewed += 1
            return _LOOK_S
        self._renewal = Renewal(place, self._wall_s())
        if said != self.trouble:
            days = (known.ends_s - self._wall_s()) / 86_400
            logger.warning(
                "the certificate of this node was not renewed, and ends in %.1f days: %s",
                days,
                said,
            )
        self.trouble = said
        return self._renewal.due_s(known) - self._wall_s()

    def _known(self) -> Validity | None:
        path = self._tls.certificate
        try:
            return validity(path.read_bytes()) if path is not None else None
        except (OSError, NoCertificateError) as error:
            logger.warning("%s: %s", path, error)
            return None

    async def _renew(self) -> str:
        """Renew once; return why it failed, or ""."""
        path = self._tls.certificate
        if path is None:
            return "[tls] has no certificate"
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "everstep_agent.enrolment.renew", str(path.parent)),
            *(self._node, ",".join(self._addresses), self._tls.server_name),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(_CHILD_S):
                _, said = await child.communicate()
        except TimeoutError:
            return f"it took longer than {_CHILD_S:.0f} s"
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    child.kill()
                await child.wait()
        if not child.returncode:
            return ""
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process ended with {child.returncode}"
