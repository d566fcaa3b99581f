"""What a node says and keeps beyond itself, held in memory so that a test can look."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable

from everstep_common.judging.judgement import Judgement
from everstep_proto.generated import fleet_pb2
from fakes.waits import PATIENCE_S, crowding

_LOOK_S = 0.1


class Outlet:
    """Keeps what the node says, and lets a test wait for it."""

    def __init__(self) -> None:
        self.records: list[fleet_pb2.Record] = []
        # The newest report of each job, by its name, and of each lineage.
        self.reports: dict[str, fleet_pb2.VaultReport] = {}
        self.lineages: dict[str, fleet_pb2.VaultReport] = {}
        self.bad: list[str] = []
        self.judgements: list[Judgement] = []
        self._news = asyncio.Event()

    def record(self, record: fleet_pb2.Record) -> None:
        self.records.append(record)
        self._news.set()

    def vault_report(self, report: fleet_pb2.VaultReport) -> None:
        self.reports[report.job] = report
        self.lineages[report.lineage_id or report.job] = report
        self.bad += report.bad_copies
        self._news.set()

    def judge(self, judgements: Iterable[Judgement]) -> None:
        self.judgements += judgements
        self._news.set()

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for news that make it true, or for what nobody is told of: files, metrics."""
        async with asyncio.timeout(PATIENCE_S * crowding()):
            while not true():
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._news.wait()

    def copies(self, job: str = "demo") -> set[tuple[int, int, int, bool]]:
        return self._copies(self.reports.get(job))

    def copies_of(self, lineage: str) -> set[tuple[int, int, int, bool]]:
        return self._copies(self.lineages.get(lineage))

    @staticmethod
    def _copies(report: fleet_pb2.VaultReport | None) -> set[tuple[int, int, int, bool]]:
        copies = report.copies if report else ()
        return {(copy.generation, copy.rank, copy.step, copy.replica) for copy in copies}

    def bodies(self, kind: str) -> list[fleet_pb2.Record]:
        return [record for record in self.records if record.WhichOneof("body") == kind]


class Kept:
    """A service manager in memory: keeps duplicates of descriptors."""

    def __init__(self) -> None:
        self.fds: dict[str, int] = {}

    def store(self, name: str, fd: int) -> bool:
        self.fds[name] = os.dup(fd)
        return True

    def remove(self, name: str) -> bool:
        fd = self.fds.pop(name, None)
        if fd is not None:
            os.close(fd)
        return fd is not None

    def hand_over(self) -> dict[str, int]:
        return {name: os.dup(fd) for name, fd in self.fds.items()}

    def close(self) -> None:
        for name in list(self.fds):
            self.remove(name)
