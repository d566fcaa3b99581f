"""The hashes that a trainer took before it copied: they cover the copy itself.

The trainer has been told that its step is committed by the time they are compared here, so that no
step waits for a hash. A copy that differs is never verified: the step counts for the job as one
that this rank skipped, the sentence goes to the controller with the bad copies, and the slot is
free again.
"""

from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.hashing import hash_part
from everstep_common.trainer_messages import Entry


def torn(region: Region, entries: tuple[Entry, ...]) -> str:
    """Return which shard is not what the trainer had; empty if all are. For a worker thread."""
    for entry in entries:
        if not entry.digest:
            continue
        ends = entry.offset_bytes + entry.size_bytes
        if hash_part(region, entry.offset_bytes, ends) != entry.digest:
            return f"was torn while it was copied: shard {entry.name} is not what the trainer had"
    return ""
