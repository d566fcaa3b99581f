"""A bucket as storage: the real storage process and boto3 against a real S3 server (moto)."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

import pytest

from everstep_agent.storage.backends import bucket
from everstep_agent.storage.backends.backend import BackendError, DecideLatest
from everstep_agent.storage.backends.bucket import BucketBackend
from everstep_agent.storage.formats.records import StepKey, key_of
from everstep_agent.storage.worker.messages import (
    CopyFilled,
    CopyWritten,
    FillCopy,
    LatestMoved,
    ListSteps,
    MoveLatest,
    StepListing,
    StorageLocation,
)
from everstep_agent.storage.worker.step_publication import move_latest
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageRefusedError
from everstep_agent.vault.memory.region import Region, allocate_region
from everstep_agent.vault.snapshots.hashing import hash_region
from fakes.ports import reserved_port
from fakes.waits import wait_until
from integration.storage_files import content, order, publication
from integration.vault_world import TIMEOUT_S, lived

pytest.importorskip("moto")
pytest.importorskip("flask_cors")
pytestmark = pytest.mark.real
_PART_BYTES = 16 << 20
_NAME = "rank-0.safetensors"
_PLACE = "s3://everstep-test/runs/one"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Run a server with an empty bucket; yield what lets a client in."""
    with reserved_port() as port:
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        values = {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        try:
            for name, value in values.items():
                monkeypatch.setenv(name, value)
            wait_until(lambda: socket.create_connection(("127.0.0.1", port), 1)).close()
            bucket.s3_client().create_bucket(Bucket="everstep-test")
            yield values
        finally:
            server.kill()
            server.wait()


@asynccontextmanager
async def _workers(environment: dict[str, str]) -> AsyncIterator[StorageWorkerPool]:
    user = JobUser(os.getuid(), os.getgid(), tuple(os.getgroups()), environment=environment)
    workers = StorageWorkerPool(_PLACE, user, 60.0, 2)
    try:
        yield workers
    finally:
        await workers.close()


def _memory(step: int) -> Region:
    region = allocate_region(len(content(step)), "everstep-test")
    with region.writable() as view:
        view[: len(content(step))] = content(step)
    return region


async def _write(workers: StorageWorkerPool, generation: int, step: int) -> None:
    region = _memory(step)
    fd = region.open_read_only()
    try:
        await workers.ask(order(_PLACE, generation, step), CopyWritten, [fd])
    finally:
        os.close(fd)
        region.release()


async def _publish(
    workers: StorageWorkerPool, generation: int, key: StepKey | None, *keep: StepKey
) -> LatestMoved:
    return await workers.ask(publication(_PLACE, generation, key, keep), LatestMoved)


@lived
async def test_a_step_goes_to_a_bucket_and_back(environment: dict[str, str]) -> None:
    async with _workers(environment) as workers:
        await _write(workers, 1, 3)
        await _publish(workers, 1, StepKey(1, 3))
        seen = await workers.ask(
            ListSteps(StorageLocation(_PLACE, "demo"), StepKey(1, 3)), StepListing
        )
        assert seen.latest is not None
        assert seen.latest.target == StepKey(1, 3)
        assert [key_of(stored) for stored in seen.steps] == [StepKey(1, 3)]
        wanted = order(_PLACE, 1, 3)
        region = allocate_region(wanted.size_bytes, "everstep-test")
        await workers.ask(
            FillCopy(wanted.location, wanted.key, 0, wanted.root_hash), CopyFilled, [region.fd]
        )
        assert region.freeze()
        assert hash_region(region, wanted.size_bytes) == wanted.root_hash
        region.release()


@lived
async def test_a_newer_step_than_the_restored_one_stays_and_an_older_generation_is_refused(
    environment: dict[str, str],
) -> None:
    async with _workers(environment) as workers:
        for step in (1, 2, 3):
            await _write(workers, 1, step)
            await _publish(workers, 1, StepKey(1, step))
        moved = await _publish(workers, 2, StepKey(1, 2), StepKey(1, 1), StepKey(1, 2))
        assert moved.removed == ()
        with pytest.raises(StorageRefusedError, match="generation 2 has taken over from 1"):
            await _publish(workers, 1, StepKey(1, 2))
        seen = await workers.ask(ListSteps(StorageLocation(_PLACE, "demo")), StepListing)
        assert [key_of(stored) for stored in seen.steps] == [StepKey(1, n) for n in (1, 2, 3)]
        assert seen.newest_generation == 2


class _Slow(BucketBackend):
    """An older publisher that the newer one overtakes between its look and its write."""

    overtaken: list[MoveLatest]

    def move_latest(self, generation: int, decide: DecideLatest) -> None:
        def late(now: bytes | None, newest: int) -> bytes | None:
            decided = decide(now, newest)
            while self.overtaken:
                move_latest(bucket.open_bucket(_PLACE, "demo"), self.overtaken.pop())
            return decided

        super().move_latest(generation, late)


@pytest.mark.parametrize("fenced_with_a_step", [True, False])
def test_a_publisher_that_is_overtaken_before_it_writes_changes_nothing(
    environment: dict[str, str], fenced_with_a_step: bool
) -> None:
    async def steps() -> None:
        async with _workers(environment) as workers:
            await _write(workers, 1, 1)
            await _write(workers, 1, 2)
            if fenced_with_a_step:
                await _publish(workers, 1, StepKey(1, 1))

    asyncio.run(steps())
    store = bucket.Boto3Store(bucket.s3_client())
    fence = publication(_PLACE, 2, StepKey(1, 1) if fenced_with_a_step else None)
    slow = _Slow(store, _PLACE, "demo")
    slow.overtaken = [fence]
    with pytest.raises(BackendError, match="generation 2 has taken over from 1"):
        move_latest(slow, publication(_PLACE, 1, StepKey(1, 2)))
    content_now = bucket.open_bucket(_PLACE, "demo").read_latest()
    assert content_now is not None
    assert b'"generation":2' in content_now.split(b'"target"')[0]


def _uploads() -> list[object]:
    """What a bucket keeps of files that were never finished."""
    listed = bucket.s3_client().list_multipart_uploads(Bucket="everstep-test")
    uploads = listed.get("Uploads", [])
    assert isinstance(uploads, list)
    return uploads


def _interrupted(by: Callable[[], object]) -> Iterator[memoryview]:
    """A copy of which one part arrives, and that turns out to be bad then."""
    yield memoryview(bytes(_PART_BYTES))
    by()
    raise BackendError("it changed after it was verified")


def _store(pieces: Iterable[memoryview]) -> None:
    backend = bucket.open_bucket(_PLACE, "demo")
    backend.write_file(StepKey(1, 1), _NAME, pieces, 2 * _PART_BYTES, lambda count: None)


@pytest.mark.usefixtures("environment")
def test_a_file_that_fails_in_the_middle_leaves_no_part_in_the_bucket() -> None:
    with pytest.raises(BackendError, match=r"changed after it was verified$"):
        _store(_interrupted(lambda: None))
    assert _uploads() == []


@pytest.mark.usefixtures("environment")
def test_what_went_wrong_first_is_said_though_tidying_up_fails_too() -> None:
    def abort() -> None:
        (upload,) = _uploads()
        assert isinstance(upload, dict)
        named = {"Bucket": "everstep-test", "Key": upload["Key"], "UploadId": upload["UploadId"]}
        bucket.s3_client().abort_multipart_upload(**named)

    with pytest.raises(BackendError, match=r"changed after .* still in the bucket: .*NoSuchUpload"):
        _store(_interrupted(abort))


@pytest.mark.usefixtures("environment")
def test_what_a_killed_writer_left_goes_when_the_file_is_written_again() -> None:
    backend = bucket.open_bucket(_PLACE, "demo")
    key = {"Bucket": "everstep-test", "Key": f"runs/one/demo/gen-1/step-1/{_NAME}"}
    for _ in range(2):
        bucket.s3_client().create_multipart_upload(**key)
    other = key | {"Key": key["Key"] + "x"}
    bucket.s3_client().create_multipart_upload(**other)
    _store([memoryview(bytes(_PART_BYTES))])
    assert [upload["Key"] for upload in _uploads() if isinstance(upload, dict)] == [other["Key"]]
    assert backend.file_size(StepKey(1, 1), _NAME) == _PART_BYTES


@lived
async def test_a_bucket_that_is_not_there_is_said_so(environment: dict[str, str]) -> None:
    user = JobUser(os.getuid(), os.getgid(), tuple(os.getgroups()), environment=environment)
    workers = StorageWorkerPool("s3://everstep-none/x", user, TIMEOUT_S, 1)
    with pytest.raises(StorageRefusedError, match="NoSuchBucket"):
        await workers.ask(ListSteps(StorageLocation("s3://everstep-none/x", "demo")), StepListing)
    await workers.close()
