"""Admin API of a state and a journal in this process: a report is answered without gRPC."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

import grpc
from google.protobuf.message import Message

from everstep_cli.client.connection import Connection
from everstep_controller.api.admin.fleet_ledger import question_of
from everstep_controller.api.admin.history_queries import (
    current_history,
    history_range,
    history_rows,
    ledger_from,
)
from everstep_controller.api.admin.messages.fleet_messages import (
    incident_messages,
    job_detail,
    job_summary,
)
from everstep_controller.api.admin.messages.ledger_messages import ledger
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_controller.journal.sqlite.journal import SqliteJournal
from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)
Row = TypeVar("Row")


class _Names:
    def __getattr__(self, name: str) -> str:
        return name


@dataclass(frozen=True, slots=True)
class LocalAdmin:
    """Answers about one job, as a controller that has this state and this journal would."""

    state: State
    job: JobRecord
    journal: Path
    now_ns: int

    @contextmanager
    def connect(self, connection: Connection) -> Iterator["LocalAdmin"]:
        """Stand where everstep_cli.client.grpc_admin.connect stands."""
        yield self

    def call(
        self,
        method: "Callable[[AdminStub], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
    ) -> Reply:
        """Answer a call."""
        return cast("Reply", self._answers()[_name(method)](request))

    def stream(
        self,
        method: "Callable[[AdminStub], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
        *,
        endless: bool = False,
    ) -> Iterator[Reply]:
        """Answer a call with many messages; nothing has been told as an event."""
        if _name(method) == "GetHistory":
            rows = asyncio.run(_all(self._history(cast("admin_pb2.GetHistoryRequest", request))))
            yield from cast("list[Reply]", rows)

    def _answers(self) -> Mapping[str, Callable[..., Message]]:
        return {
            "GetLedger": lambda _: ledger(self.state, self.job, self.now_ns),
            "GetJob": lambda _: job_detail(self.state, self.job, self.now_ns),
            "ListJobs": lambda _: admin_pb2.ListJobsReply(
                jobs=[job_summary(self.state, self.job, self.now_ns)]
            ),
            "ListIncidents": lambda _: admin_pb2.ListIncidentsReply(
                incidents=incident_messages(self.state, self.job, self.now_ns)
            ),
            "GetFleetLedger": self._fleet_ledger,
        }

    def _fleet_ledger(self, request: admin_pb2.GetFleetLedgerRequest) -> admin_pb2.FleetLedger:
        asked = question_of(request, self.now_ns)
        current = current_history(self.state, asked)
        with closing(SqliteJournal(self.journal, read_only=True)) as store:
            return ledger_from(store, asked, current)

    async def _history(
        self, request: admin_pb2.GetHistoryRequest
    ) -> AsyncIterator[admin_pb2.HistoryRow]:
        with closing(SqliteJournal(self.journal, read_only=True)) as store:
            async for row in history_rows(store, history_range(request, self.now_ns), known=True):
                yield row


def _name(method: Callable[[AdminStub], object]) -> str:
    return cast("str", method(cast("AdminStub", _Names())))


async def _all(rows: AsyncIterator[Row]) -> list[Row]:
    return [row async for row in rows]
