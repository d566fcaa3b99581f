"""An object store in memory, as the bucket backend calls one."""

# ruff: noqa: N803 - the arguments have the names of boto3.

import copy
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from everstep_agent.storage.backends.bucket import ObjectStoreError


@dataclass
class MemoryStore:
    """See ObjectStore. ``before`` is called ahead of each call with its name."""

    objects: dict[str, bytes] = field(default_factory=dict)
    before: Callable[[str], None] = lambda name: None
    _uploads: dict[str, tuple[str, dict[int, bytes]]] = field(default_factory=dict)

    def copied(self) -> "MemoryStore":
        """A store that has what this one has now."""
        return MemoryStore(dict(self.objects), _uploads=copy.deepcopy(self._uploads))

    def call(self, name: str, **arguments: object) -> Mapping[str, object]:
        """See ObjectStore."""
        self.before(name)
        operation: Callable[..., Mapping[str, object]] = getattr(self, f"_{name}")
        arguments.pop("Bucket")
        return operation(**arguments)

    def _etag(self, key: str) -> str:
        return f"{hash(self.objects[key]):x}"

    def _put_object(
        self, Key: str, Body: bytes, IfMatch: str = "", IfNoneMatch: str = ""
    ) -> Mapping[str, object]:
        changed = IfMatch and (Key not in self.objects or self._etag(Key) != IfMatch)
        if changed or (IfNoneMatch and Key in self.objects):
            raise ObjectStoreError("PreconditionFailed", "the object is another one")
        self.objects[Key] = bytes(Body)
        return {}

    def _get_object(self, Key: str, Range: str = "") -> Mapping[str, object]:
        content = self._found(Key)
        if Range:
            first, last = Range.removeprefix("bytes=").split("-")
            content = content[int(first) : int(last) + 1]
        return {"Body": io.BytesIO(content), "ETag": self._etag(Key)}

    def _head_object(self, Key: str) -> Mapping[str, object]:
        return {"ContentLength": len(self._found(Key))}

    def _delete_object(self, Key: str) -> Mapping[str, object]:
        self.objects.pop(Key, None)
        return {}

    def _list_objects_v2(self, Prefix: str, Delimiter: str = "") -> Mapping[str, object]:
        found = sorted(key for key in self.objects if key.startswith(Prefix))
        if not Delimiter:
            return {"Contents": [{"Key": key} for key in found]}
        rests = (key.removeprefix(Prefix).partition(Delimiter) for key in found)
        folders = {Prefix + first + Delimiter for first, mark, _ in rests if mark}
        return {"CommonPrefixes": [{"Prefix": folder} for folder in sorted(folders)]}

    def _create_multipart_upload(self, Key: str) -> Mapping[str, object]:
        number = f"u{len(self._uploads)}"
        self._uploads[number] = (Key, {})
        return {"UploadId": number}

    def _upload_part(
        self, Key: str, UploadId: str, PartNumber: int, Body: bytes
    ) -> Mapping[str, object]:
        self._uploads[UploadId][1][PartNumber] = bytes(Body)
        return {"ETag": f"{PartNumber}"}

    def _complete_multipart_upload(
        self, Key: str, UploadId: str, MultipartUpload: object
    ) -> Mapping[str, object]:
        _, parts = self._uploads.pop(UploadId)
        self.objects[Key] = b"".join(parts[number] for number in sorted(parts))
        return {}

    def _abort_multipart_upload(self, Key: str, UploadId: str) -> Mapping[str, object]:
        self._uploads.pop(UploadId, None)
        return {}

    def _list_multipart_uploads(self, Prefix: str) -> Mapping[str, object]:
        found = [
            {"Key": key, "UploadId": number}
            for number, (key, _) in self._uploads.items()
            if key.startswith(Prefix)
        ]
        return {"Uploads": found}

    def _found(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectStoreError("NoSuchKey", f"there is no {key}")
        return self.objects[key]
