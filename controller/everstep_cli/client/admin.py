"""Admin: the Protocol of calls to a controller, and the errors in which a call can end."""

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from everstep_proto.generated import admin_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub

Request = TypeVar("Request", bound=Message)
Reply = TypeVar("Reply", bound=Message)

# Nodes in one message, which may have four megabytes: each has sentences of a few hundred bytes.
_PAGE = 2000


class AdminError(Exception):
    """The controller could not be asked, or said no; one sentence that names the next command."""


class UnusableError(AdminError):
    """Request that makes no sense to the controller, whenever it is made."""


class RefusedError(AdminError):
    """The controller does not do that as things are; it may do the same for another node."""


class DeniedError(AdminError):
    """Not for whom it was asked; ``said`` is the controller's sentence, without what to type."""

    def __init__(self, message: str, said: str) -> None:
        super().__init__(message)
        self.said = said


class NameNotFoundError(UnusableError):
    """There is no node or job of this name."""


class UnreachableError(AdminError):
    """A controller did not answer; ``why`` says it in a few words, without what to type.

    ``is_late``: it is there, and has not answered in time.
    """

    def __init__(self, message: str, why: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.why, self.is_late = why, is_late


class StandbyError(AdminError):
    """The controller that was asked is not active; ``active``: the address of the one that is."""

    def __init__(self, message: str, active: str) -> None:
        super().__init__(message)
        self.active = active


class Admin(Protocol):
    """Calls to a controller, each named by its stub; all of them raise AdminError."""

    def call(
        self,
        method: "Callable[[AdminStub], grpc.UnaryUnaryMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
    ) -> Reply:
        """Make a call, named as in ``lambda stub: stub.GetNode``, and return its answer.

        ``about`` is the node or job that it names, for a hint where that is not known.
        Who asks is filled in. Raises AdminError.
        """
        ...

    def stream(
        self,
        method: "Callable[[AdminStub], grpc.UnaryStreamMultiCallable[Request, Reply]]",
        request: Request,
        about: str = "",
        *,
        endless: bool = False,
    ) -> Iterator[Reply]:
        """Make a call that is answered by many messages, and yield each as it comes.

        One that is ``endless`` has no deadline. For the rest, see `call`. Raises AdminError.
        """
        ...


def list_nodes(
    admin: Admin, request: admin_pb2.ListNodesRequest | None = None
) -> admin_pb2.ListNodesReply:
    """Return all nodes, or those that are asked for, of all pages together. Raises AdminError."""
    asked = admin_pb2.ListNodesRequest(page_nodes=_PAGE)
    if request is not None:
        asked.MergeFrom(request)
    whole = admin.call(lambda stub: stub.ListNodes, asked)
    while whole.next_page_token:
        asked.page_token = whole.next_page_token
        page = admin.call(lambda stub: stub.ListNodes, asked)
        whole.nodes.MergeFrom(page.nodes)
        whole.next_page_token = page.next_page_token
    return whole
