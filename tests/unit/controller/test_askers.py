"""For whom a page may ask, and that each look at what is not everybody's is told once."""

import asyncio
import os
import pwd

import pytest

from everstep_controller.api.admin.askers import Looks, NotTheOwnerError, asker, may_read
from everstep_controller.core.model.job import JobRecord
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import LOCAL, Identity, Role
from unit.core.test_decisions import Story

_HOUR_NS = 3_600_000_000_000
_LOGIN = pwd.getpwuid(os.getuid()).pw_name
_PAGE = Identity("fleet.example", Role.PAGE)


def _asked(name: str = "", role: str = "") -> admin_pb2.ReadLogsRequest:
    request = admin_pb2.ReadLogsRequest(job="j")
    if name or role:
        request.asked_for.CopyFrom(admin_pb2.Person(name=name, role=role))
    return request


def _job() -> JobRecord:
    story = Story()
    story.run()
    job = story.core.state.newest("j")
    job.spec = type(job.spec)(
        uid=os.getuid(), token_sha256="t", nodes_min=1, nodes_max=1, processes_per_node=1
    )
    return job


@pytest.mark.parametrize("who", [LOCAL, _PAGE, Identity("ann", Role.OPERATOR)])
def test_who_may_see_all_asks_for_others_and_gets_what_they_may_see(who: Identity) -> None:
    job = _job()
    assert asker(who, _asked()) is who
    assert may_read(asker(who, _asked("ann", "operator")), job)
    assert may_read(asker(who, _asked(_LOGIN, "viewer")), job)
    assert not may_read(asker(who, _asked("nobody-has-this-login", "viewer")), job)
    assert not may_read(asker(who, _asked("", "viewer")), job)
    # A role that there is not is the least.
    assert asker(who, _asked("ann", "root")).role is Role.VIEWER


def test_a_viewer_asks_for_nobody_else_and_is_no_operator_by_saying_so() -> None:
    eve = Identity("eve", Role.VIEWER)
    assert asker(eve, _asked("", "viewer")) is eve
    assert asker(eve, _asked("eve", "viewer")) is eve
    for request in (_asked("ann", "viewer"), _asked("", "operator"), _asked("eve", "operator")):
        with pytest.raises(NotTheOwnerError, match="for certificates of the role page"):
            asker(eve, request)


def test_a_page_by_itself_owns_no_job() -> None:
    assert not may_read(_PAGE, _job())


class _Book:
    """Stands where the runtime stands: the event list and the clock."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, str]] = []
        self.at_ns = 1

    def now_ns(self) -> int:
        return self.at_ns

    def announce_look(self, subject: str, reason: str, message: str) -> None:
        self.lines.append((subject, reason, message))


def test_each_look_is_told_once_an_hour_with_who_it_was() -> None:
    book, job = _Book(), _job()
    looks = Looks(book)
    ann = Identity("ann", Role.OPERATOR)

    async def look(who: Identity, what: str) -> None:
        await looks.check(who, job, what)

    async def scenario() -> None:
        for _ in range(3):
            await look(ann, "output")
        await look(ann, "stacks")
        await look(LOCAL, "stacks")
        book.at_ns += _HOUR_NS
        await look(ann, "output")
        with pytest.raises(NotTheOwnerError, match="eve is viewer, and j is another user's"):
            await look(Identity("eve", Role.VIEWER), "output")

    asyncio.run(scenario())
    said = "ann (operator) looked at the"
    local = "an operator of the controller's machine (operator) looked at the stacks of j"
    assert book.lines == [
        ("j", "OutputRead", f"{said} output of j"),
        ("j", "StacksRead", f"{said} stacks of j"),
        ("j", "StacksRead", local),
        ("j", "OutputRead", f"{said} output of j"),
    ]


def test_what_is_remembered_of_looks_is_bounded() -> None:
    book, job = _Book(), _job()
    looks = Looks(book)

    async def scenario() -> None:
        for number in range(1001):
            await looks.check(Identity(f"op-{number}", Role.OPERATOR), job, "output")
        await looks.check(Identity("op-1000", Role.OPERATOR), job, "output")
        await looks.check(Identity("op-0", Role.OPERATOR), job, "output")

    asyncio.run(scenario())
    assert len(book.lines) == 1002
