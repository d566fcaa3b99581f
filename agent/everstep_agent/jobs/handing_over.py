"""Hands a restored state to a rank, in as many messages as its descriptors need."""

import os
from collections.abc import Sequence

from everstep_agent.ipc.connection import Connection
from everstep_agent.vault.restore.restorer import RestoredPart
from everstep_agent.vault.restore.source_search import RestoreError
from everstep_common.frames import FDS_MAX
from everstep_common.trainer_messages import Restore, Restored, RestoredCopies, RestoredCopy


class HandingOver:
    """What one connection is being given: kept until the last of it has been sent.

    The rank asks for each message: descriptors go only to one that reads its answers.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._asked = Restore(())
        self._step = 0
        self._parts: Sequence[RestoredPart] = ()
        self._given = 0

    def goes_on(self, asked: Restore) -> bool:
        """Return whether a question is for what follows the message before."""
        return 0 < self._given == asked.begin and asked.names == self._asked.names

    def take_over(self, asked: Restore, step: int, parts: Sequence[RestoredPart]) -> None:
        """Own what is to be given, in place of what was not asked for to its end."""
        self.end()
        self._asked, self._step, self._parts = asked, step, parts

    async def give(self) -> None:
        """Send what comes next. Raises OSError, RestoreError."""
        if self._asked.begin is None:
            await self._give_all()
            return
        begin, end = self._given, self._given + FDS_MAX
        copies, left = _copies(self._parts[begin:end]), max(0, len(self._parts) - end)
        message = RestoredCopies(self._step, copies, begin, left)
        await self._send(message, self._parts[begin:end])
        self._given = end
        if not left:
            self.end()

    async def _give_all(self) -> None:
        """Do as those know who ask for everything at once."""
        try:
            if len(self._parts) > FDS_MAX:
                raise RestoreError(
                    f"the state is in {len(self._parts)} copies, more than {FDS_MAX} at once; "
                    "upgrade everstep in the training image"
                )
            await self._send(Restored(self._step, _copies(self._parts)), self._parts)
        finally:
            self.end()

    async def _send(
        self, message: Restored | RestoredCopies, parts: Sequence[RestoredPart]
    ) -> None:
        fds: list[int] = []
        try:
            for part in parts:
                fds.append(part.region.open_read_only())
            await self._connection.send(message, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def end(self) -> None:
        """Give back what is left of it."""
        parts, self._parts, self._given = self._parts, (), 0
        for part in parts:
            part.region.release()


def _copies(parts: Sequence[RestoredPart]) -> tuple[RestoredCopy, ...]:
    return tuple(RestoredCopy(part.entries, part.region.size_bytes) for part in parts)
