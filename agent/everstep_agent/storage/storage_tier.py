"""Storage tier: a job's files as the vault restores from them (FileTier)."""

from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.storage.formats.records import StepKey, encode_record, key_of, record_hash
from everstep_agent.storage.persist_state import step_of
from everstep_agent.storage.persister import StorageTarget
from everstep_agent.storage.worker.messages import (
    CopyFilled,
    DescribeFile,
    FileDescribed,
    FillCopy,
    ListSteps,
    StepListing,
)
from everstep_agent.storage.worker_process import StorageRefusedError
from everstep_agent.vault.memory.allocator import AllocationRequest, Allocator
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, CopyRef
from everstep_agent.vault.snapshots.file_tier import BadFileError, FileCopy
from everstep_agent.vault.snapshots.manifest import check_in_parts
from everstep_common.reports import StoredStep


class StorageTier:
    """See FileTier."""

    def __init__(self, target: StorageTarget, allocator: Allocator) -> None:
        self._target = target
        self._allocator = allocator

    async def stored(self, step: StoredStep) -> tuple[FileCopy, ...]:
        """See FileTier."""
        key = key_of(step)
        seen = await self._target.workers.ask(ListSteps(self._target.location, key), StepListing)
        whole = {key_of(stored): stored.manifest_hash for stored in seen.steps}
        if seen.manifest is None:
            raise BadFileError(f"{key} is not whole in {self._target.location.path}")
        # The manifest must still be the one that was reported. A file that is lost since then may
        # have an equal copy of its part of the state in another file.
        found = whole.get(key) or record_hash(encode_record(seen.manifest)).hex()
        if step.manifest_hash and found != step.manifest_hash:
            raise BadFileError(f"the manifest of {key} is not the one that was written")
        return tuple(
            FileCopy(
                CopyRef(_copy_key(key, file.rank), file.size_bytes, file.root_hash), file.layout
            )
            for file in seen.manifest.files
        )

    async def manifest(self, copy: CopyRef) -> CopyManifest:
        """See FileTier."""
        request = DescribeFile(self._target.location, step_of(copy.key), copy.key.rank)
        try:
            found = (await self._target.workers.ask(request, FileDescribed)).description
        except StorageRefusedError as error:
            raise BadFileError(str(error)) from error
        if found is None:
            # The file was seen when the plan was made, so this is an error to report.
            raise BadFileError(f"there is no whole file of {copy.key}")
        if (found.root_hash, found.size_bytes) != (copy.root_hash, copy.size_bytes):
            raise BadFileError(f"the file of {copy.key} is of another copy")
        checked = await run_in_slices(check_in_parts(found.entries, found.size_bytes))
        if checked.problem:
            raise BadFileError(checked.problem)
        return CopyManifest(copy.key, found.size_bytes, found.root_hash, found.entries)

    async def load(self, manifest: CopyManifest) -> Region:
        """See FileTier."""
        location, key = self._target.location, manifest.key
        request = FillCopy(location, step_of(key), key.rank, manifest.root_hash)
        demand = AllocationRequest(
            self._target.workers.user.uid, 1, manifest.size_bytes, "everstep-stored"
        )
        (region,) = await self._allocator.allocate(demand)
        # A worker process maps the memory, so it is never used again for anything else.
        region.lent = True
        try:
            filled = await self._target.workers.ask(request, CopyFilled, [region.fd])
            if filled.description.entries != manifest.entries:
                raise BadFileError(f"the file of {key} changed while it was read")
        except StorageRefusedError as error:
            region.release()
            raise BadFileError(str(error)) from error
        except BaseException:
            region.release()
            raise
        return region


def _copy_key(step: StepKey, rank: int) -> CopyKey:
    return CopyKey(step.generation, rank, step.step)
