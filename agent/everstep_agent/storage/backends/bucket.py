"""Bucket backend: steps in an object store that speaks S3, by boto3 (the extra ``s3``).

An object is there whole or not at all, so nothing needs a second name; ``latest`` is written on the
condition that it is still what was read.
"""

import contextlib
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from everstep_agent.storage.backends.backend import (
    BackendError,
    DecideLatest,
    ProgressCallback,
    UnusableFileError,
)
from everstep_agent.storage.formats.records import RECORD_BYTES_MAX, StepKey
from everstep_common.extras import install_line

_PLACE = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(/(?P<prefix>.*))?")
_GENERATION = re.compile(r"gen-([1-9][0-9]{0,17})/$")
_STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})/$")
_OURS = re.compile(r"rank-[0-9]{1,9}\.(safetensors|json)")
# S3 takes 10,000 parts of at least 5 MiB each.
_PART_BYTES = 16 * 1024 * 1024
_PARTS_MAX = 9000
_READ_BYTES = 1024 * 1024
_TRIES = 5
_OVERTAKEN = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})
_MISSING = frozenset({"NoSuchKey", "404", "NotFound"})

# Shorter than the agent's deadline, so that the library's error is reported, not "nothing moved".
_CONNECT_S, _READ_S = 10, 30
_ATTEMPTS = 3


class ObjectBody(Protocol):
    """The content of an object, as it comes."""

    def read(self, amt: int | None = None) -> bytes:
        """Return the next bytes."""
        ...


class ObjectStore(Protocol):
    """The few calls of a boto3 client that are used here."""

    def call(self, name: str, **arguments: object) -> Mapping[str, object]:
        """Call one operation. Raises ObjectStoreError."""
        ...


class ObjectStoreError(BackendError):
    """The store said no; ``code`` is its word for why."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class BucketBackend:
    """See StorageBackend."""

    def __init__(self, store: ObjectStore, place: str, job: str) -> None:
        matched = _PLACE.fullmatch(place)
        if not matched:
            raise BackendError(f"{place} is not s3://BUCKET/PREFIX")
        self._store = store
        self._bucket = matched["bucket"]
        self._root = "/".join(part for part in ((matched["prefix"] or "").strip("/"), job) if part)

    def write_file(
        self,
        key: StepKey,
        name: str,
        pieces: Iterable[memoryview],
        size_bytes: int,
        on_progress: ProgressCallback,
    ) -> None:
        """See StorageBackend."""
        object_key = self._key(key, name)
        self._abort_leftover_uploads(object_key)
        begun = self._call("create_multipart_upload", Key=object_key)
        upload = {"Key": object_key, "UploadId": begun["UploadId"]}
        try:
            parts: list[dict[str, object]] = []
            for number, part in enumerate(_parts(pieces, size_bytes), 1):
                answer = self._call("upload_part", **upload, PartNumber=number, Body=part)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
                on_progress(len(part))
            self._call("complete_multipart_upload", **upload, MultipartUpload={"Parts": parts})
        except BaseException as error:
            try:
                self._call("abort_multipart_upload", **upload)
            except ObjectStoreError as second:
                said = f"{error}; what had arrived of it is still in the bucket: {second}"
                raise BackendError(said) from error
            raise

    def write_small(self, key: StepKey, name: str, content: bytes) -> None:
        """See StorageBackend."""
        self._call("put_object", Key=self._key(key, name), Body=content)

    def read_small(self, key: StepKey, name: str) -> bytes | None:
        """See StorageBackend."""
        found = self._get(self._key(key, name))
        return found[0] if found else None

    def identity(self) -> str:
        """See StorageBackend."""
        return ""

    def file_size(self, key: StepKey, name: str) -> int | None:
        """See StorageBackend."""
        try:
            size = self._call("head_object", Key=self._key(key, name))["ContentLength"]
        except ObjectStoreError as refusal:
            if refusal.code in _MISSING:
                return None
            raise
        return size if isinstance(size, int) else None

    def read_into(
        self,
        key: StepKey,
        name: str,
        begins: int,
        buffers: Iterable[memoryview],
        on_progress: ProgressCallback,
    ) -> None:
        """See StorageBackend."""
        wanted = [buffer for buffer in buffers if len(buffer)]
        if not wanted:
            return
        end = begins + sum(map(len, wanted)) - 1
        answer = self._call("get_object", Key=self._key(key, name), Range=f"bytes={begins}-{end}")
        body: ObjectBody = answer["Body"]  # type: ignore[assignment]  # boto3 has no types
        for buffer in wanted:
            filled = 0
            while filled < len(buffer):
                content = body.read(min(_READ_BYTES, len(buffer) - filled))
                if not content:
                    raise BackendError(f"{name} is shorter than it was written")
                buffer[filled : filled + len(content)] = content
                filled += len(content)
                on_progress(len(content))

    def list_steps(self) -> list[StepKey]:
        """See StorageBackend."""
        found = []
        for generation in self.list_generations():
            for folder in self._folders(f"{self._root}/gen-{generation}/"):
                if matched := _STEP.search(folder):
                    found.append(StepKey(generation, int(matched[1])))
        return sorted(found)

    def list_generations(self) -> list[int]:
        """See StorageBackend."""
        found = map(_GENERATION.search, self._folders(f"{self._root}/"))
        return sorted(int(matched[1]) for matched in found if matched)

    def read_beginning(self, generation: int) -> bytes | None:
        """See StorageBackend."""
        found = self._get(f"{self._root}/gen-{generation}/began.json")
        return found[0] if found else None

    def write_beginning(self, generation: int, content: bytes, *, replaces: bool) -> None:
        """See StorageBackend."""
        condition = {} if replaces else {"IfNoneMatch": "*"}
        key = f"{self._root}/gen-{generation}/began.json"
        try:
            self._call("put_object", Key=key, Body=content, **condition)
        except ObjectStoreError as refusal:
            if refusal.code not in _OVERTAKEN:
                raise

    def remove_step(self, key: StepKey, generation: int) -> None:
        """See StorageBackend.

        Nothing takes a look back here: one that stops between its look and its removal, and wakes
        up after a newer generation went back to this very step, removes it.
        """
        newest = max(self.list_generations(), default=0)
        if newest > generation:
            raise BackendError(f"generation {newest} has taken over from {generation}")
        folder = self._key(key, "")
        self._call("delete_object", Key=f"{folder}manifest.json")
        for object_key in self._objects(folder):
            if _OURS.fullmatch(object_key.removeprefix(folder)):
                self._call("delete_object", Key=object_key)

    def read_latest(self) -> bytes | None:
        """See StorageBackend."""
        found = self._get(f"{self._root}/latest")
        return found[0] if found else None

    def move_latest(self, generation: int, decide: DecideLatest) -> None:
        """See StorageBackend."""
        self._call("put_object", Key=f"{self._root}/gen-{generation}/fence", Body=b"")
        for _ in range(_TRIES):
            found = self._get(f"{self._root}/latest")
            content = decide(found[0] if found else None, max(self.list_generations(), default=0))
            if content is None:
                return
            condition = {"IfMatch": found[1]} if found else {"IfNoneMatch": "*"}
            try:
                self._call("put_object", Key=f"{self._root}/latest", Body=content, **condition)
            except ObjectStoreError as refusal:
                if refusal.code not in _OVERTAKEN:
                    raise
                continue
            return
        raise BackendError("latest was changed by somebody else again and again")

    def _abort_leftover_uploads(self, object_key: str) -> None:
        """Remove what writers of this object left that died: it is not seen, and is paid for."""
        # Not being allowed to list uploads is no error: writing may be allowed all the same.
        with contextlib.suppress(ObjectStoreError):
            left = self._call("list_multipart_uploads", Prefix=object_key).get("Uploads", ())
            for one in left:  # type: ignore[attr-defined]  # boto3 has no types
                if one["Key"] == object_key:
                    upload_id = one["UploadId"]
                    self._call("abort_multipart_upload", Key=object_key, UploadId=upload_id)

    def _get(self, object_key: str) -> tuple[bytes, str] | None:
        try:
            answer = self._call("get_object", Key=object_key)
        except ObjectStoreError as refusal:
            if refusal.code in _MISSING:
                return None
            raise
        body: ObjectBody = answer["Body"]  # type: ignore[assignment]  # boto3 has no types
        content = body.read(RECORD_BYTES_MAX + 1)
        if len(content) > RECORD_BYTES_MAX:
            raise UnusableFileError(f"{object_key} is larger than {RECORD_BYTES_MAX} bytes")
        return content, str(answer["ETag"])

    def _folders(self, prefix: str) -> Iterator[str]:
        for page in self._pages(Prefix=prefix, Delimiter="/"):
            for folder in page.get("CommonPrefixes", ()):  # type: ignore[attr-defined]
                yield str(folder["Prefix"])

    def _objects(self, prefix: str) -> list[str]:
        pages = self._pages(Prefix=prefix)
        return [str(one["Key"]) for page in pages for one in page.get("Contents", ())]  # type: ignore[attr-defined]

    def _pages(self, **arguments: object) -> Iterator[Mapping[str, object]]:
        page = self._call("list_objects_v2", **arguments)
        yield page
        while page.get("IsTruncated"):
            token = page["NextContinuationToken"]
            page = self._call("list_objects_v2", **arguments, ContinuationToken=token)
            yield page

    def _key(self, key: StepKey, name: str) -> str:
        return f"{self._root}/gen-{key.generation}/step-{key.step}/{name}"

    def _call(self, name: str, **arguments: object) -> Mapping[str, object]:
        return self._store.call(name, Bucket=self._bucket, **arguments)


def _parts(pieces: Iterable[memoryview], size_bytes: int) -> Iterator[bytes]:
    """Yield the pieces in parts of equal size; at least one."""
    part_bytes = max(_PART_BYTES, -(-size_bytes // _PARTS_MAX))
    part = bytearray()
    for piece in pieces:
        at = 0
        while at < len(piece):
            count = min(part_bytes - len(part), len(piece) - at)
            part += piece[at : at + count]
            at += count
            if len(part) == part_bytes:
                yield bytes(part)
                part.clear()
    yield bytes(part)


class S3Client(Protocol):
    """A client of boto3, which has no types."""

    def __getattr__(self, name: str) -> "S3Operation": ...


class S3Operation(Protocol):
    """One of its calls."""

    def __call__(self, **arguments: object) -> Mapping[str, object]:
        """Call it."""
        ...


def import_boto3() -> None:
    """Import boto3, before the worker gives up its rights. Raises BackendError without it."""
    try:
        # A client imports the second one later, when the worker may not be able to any more.
        importlib.import_module("boto3")
        importlib.import_module("botocore.exceptions")
    except ImportError as error:
        raise BackendError(
            f"storage in a bucket needs boto3 beside the agent: {install_line('s3')}"
        ) from error


def open_bucket(place: str, job: str) -> BucketBackend:
    """Return a job's part of a bucket, with the credentials in the environment."""
    return BucketBackend(Boto3Store(s3_client()), place, job)


def s3_client() -> S3Client:
    """Return a client with deadlines."""
    boto3 = importlib.import_module("boto3")
    _forbid_programs()
    config = importlib.import_module("botocore.config").Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_READ_S,
        retries={"max_attempts": _ATTEMPTS, "mode": "standard"},
    )
    made: S3Client = boto3.client("s3", config=config)
    return made


def _forbid_programs() -> None:
    """Have no program started for credentials: it would run in the agent's service.

    botocore makes this provider in several places (for a profile that another one names, too) and
    takes no other in its place, so its one method is replaced, in this process alone.
    """
    provider = importlib.import_module("botocore.credentials").ProcessProvider
    asked = provider._credential_process

    def load(self: object) -> None:
        if asked.fget(self) is not None:
            raise BackendError(
                "the AWS configuration names a credential_process, which the agent does not run:"
                " give the launcher the credentials instead, for example by"
                ' eval "$(aws configure export-credentials --format env)"'
            )

    provider.load = load


class Boto3Store:
    """See ObjectStore."""

    def __init__(self, client: S3Client) -> None:
        self._client = client
        self._errors = importlib.import_module("botocore.exceptions")

    def call(self, name: str, **arguments: object) -> Mapping[str, object]:
        """See ObjectStore."""
        operation = getattr(self._client, name)
        try:
            answer: Mapping[str, object] = operation(**arguments)
        except self._errors.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            raise ObjectStoreError(code, f"the object store says {error}") from error
        except self._errors.BotoCoreError as error:
            raise ObjectStoreError("", f"the object store: {error}") from error
        return answer
