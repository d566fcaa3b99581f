"""boto3, where it is installed: imported before the storage process gives up its rights."""

import importlib
from collections.abc import Mapping
from typing import Protocol

from everstep_agent.storage.backends.backend import DepotError
from everstep_agent.storage.backends.bucket import BucketDepot, StoreRefusal

# Below the deadline of the agent, so that its own sentence arrives instead of "nothing moved".
_CONNECT_S, _READ_S = 10, 30
_ATTEMPTS = 3


class Client(Protocol):
    """A client of boto3, which has no types."""

    def __getattr__(self, name: str) -> "Operation": ...


class Operation(Protocol):
    """One of its calls."""

    def __call__(self, **arguments: object) -> Mapping[str, object]:
        """Call it."""
        ...


def prepare() -> None:
    """Import it now. Raises DepotError when it is not installed."""
    try:
        # The second one is what a client needs of it later.
        importlib.import_module("boto3")
        importlib.import_module("botocore.exceptions")
    except ImportError as error:
        raise DepotError(
            "storage in a bucket needs boto3 beside the agent: pip install 'everstep[s3]'"
        ) from error


def open_bucket(place: str, job: str) -> BucketDepot:
    """Return a job's part of a bucket, with the credentials in the environment."""
    return BucketDepot(Boto(client()), place, job)


def client() -> Client:
    """Return a client with deadlines."""
    boto3 = importlib.import_module("boto3")
    config = importlib.import_module("botocore.config").Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
    )
    made: Client = boto3.client("s3", config=config)
    return made


class Boto:
    """See ObjectStore."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._errors = importlib.import_module("botocore.exceptions")

    def call(self, name: str, **arguments: object) -> Mapping[str, object]:
        """See ObjectStore."""
        operation = getattr(self._client, name)
        try:
            answer: Mapping[str, object] = operation(**arguments)
        except self._errors.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise StoreRefusal(code, f"the object store says {error}") from error
        except self._errors.BotoCoreError as error:
            raise StoreRefusal("", f"the object store: {error}") from error
        return answer
