"""Device release: waits for the memory of the GPUs of a generation that has ended here."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from everstep_agent.detectors.gpus.reading import GpusReading
from everstep_agent.detectors.gpus.release import (
    LeftMemory,
    is_still_left,
    judge_left,
    left_memory,
    memory_in_use,
    used_by,
)
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

logger = logging.getLogger(__name__)

# Between two looks at a GPU whose memory is not free yet; one takes the driver a few milliseconds.
_PAUSE_S = 0.25


class Gpus(Protocol):
    """The GPUs of the node. Event loop only."""

    def newest(self) -> GpusReading | None:
        """Return the newest reading, made for whomever; None before the first one."""
        ...

    async def read(self) -> GpusReading:
        """Read all of them now. Raises OSError where they do not answer in time."""
        ...


class NoGpus:
    """A node without GPUs, or whose driver nobody may ask."""

    def newest(self) -> GpusReading | None:
        """See Gpus."""
        return None

    async def read(self) -> GpusReading:
        """See Gpus."""
        return GpusReading(absent="nobody asks for GPUs")


class DeviceRelease:
    """Memory of the node's GPUs, around generations that end. Event loop only."""

    def __init__(self, gpus: Gpus, timeout_s: float, least_bytes: int) -> None:
        """``least_bytes``: less than so much without an owner is of no job."""
        self._gpus = gpus
        self._timeout_s = timeout_s
        self._least_bytes = least_bytes
        self._left: dict[str, LeftMemory] = {}
        # What was read here last, and what the node had read before it.
        self._read: tuple[GpusReading | None, GpusReading] | None = None

    def memory_in_use(self) -> Mapping[str, int]:
        """Return how much memory of each GPU is in use now, as was read a moment ago."""
        newest = self._gpus.newest()
        if self._read is not None and self._read[0] is newest:
            newest = self._read[1]  # the node has read nothing since: this is newer
        return memory_in_use(newest)

    async def wait(self, pids: Collection[int], before: Mapping[str, int]) -> tuple[str, ...]:
        """Wait until the GPUs of processes that are gone are free; return which never became so.

        ``before``: what was in use before the processes came. Where no process of them was ever
        seen on a GPU, for it had none or was too young, all GPUs of the node are looked at.
        """
        newest = self._gpus.newest()
        if newest is None or not newest.gpus or self._timeout_s <= 0:
            return ()
        left: tuple[LeftMemory, ...] = ()
        devices = used_by(newest, pids)
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    left = await self._look(pids, before, devices)
                    if not left:
                        return ()
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            self._keep(left)
        except OSError as error:
            # It is a finding of its own that the driver does not answer.
            logger.warning("whether the memory of GPUs is free is not known: %s", error)
            return ()
        return tuple(one.component for one in left)

    async def _look(
        self, pids: Collection[int], before: Mapping[str, int], devices: Collection[str]
    ) -> tuple[LeftMemory, ...]:
        before_it, reading = self._gpus.newest(), await self._gpus.read()
        self._read = before_it, reading
        return left_memory(reading, pids, before, self._least_bytes, devices)

    def _keep(self, left: Iterable[LeftMemory]) -> None:
        for one in left:
            logger.warning("%s after %g s: %s", one.component, self._timeout_s, one.evidence)
            self._left[one.component] = one

    def judgements(self, open_keys: Collection[FindingKey]) -> list[Judgement]:
        """Judge the GPUs whose memory did not become free, until it has."""
        newest = self._gpus.newest()
        if newest is None:
            return []
        still = {
            name: (one, is_still_left(one, newest, self._least_bytes))
            for name, one in self._left.items()
        }
        self._left = {name: one for name, (one, holds) in still.items() if holds is not False}
        return list(judge_left(still, open_keys))
