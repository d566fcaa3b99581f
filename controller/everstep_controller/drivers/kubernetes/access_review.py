"""Access review: whether the API server allows what the driver needs, asked before it is needed."""

from collections.abc import Iterable

from everstep_controller.drivers.kubernetes.api_server import ApiError, ApiServer, Call
from everstep_controller.drivers.kubernetes.objects import AccessReview, UnusableError, decoded
from everstep_controller.drivers.kubernetes.rights import Right

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# Nobody answers such questions there: the request itself will tell.
_NO_ANSWER = (403, 404)


async def missing_rights(server: ApiServer, rights: Iterable[Right]) -> list[str]:
    """Return which of these we do not have, as kubectl says them. Raises ApiError."""
    return [str(right) for right in rights if not await _may(server, right)]


async def _may(server: ApiServer, right: Right) -> bool:
    call = Call("create", "selfsubjectaccessreviews", _REVIEWS, "POST", body=right.review())
    try:
        return decoded(await server.send(call), AccessReview, "a review").status.allowed
    except UnusableError as error:
        raise ApiError(f"{call}: {error}") from error
    except ApiError as error:
        if error.code in _NO_ANSWER:
            return True
        raise
