"""What the agent hands over for a restore, checked against what the training process expects."""

from collections.abc import Sequence
from contextlib import ExitStack

from everstep.memory import Copy, Mapping
from everstep.state import ShardView
from everstep_common.trainer_messages import Entry, Restored


class RestoreError(RuntimeError):
    """The state of the plan's step cannot be had: exit, do not train from scratch unnoticed."""


def restore_copies(
    answer: Restored, fds: Sequence[int], shards: tuple[ShardView, ...], stack: ExitStack
) -> list[Copy]:
    """Return what to copy from the agent's descriptors, mapped for as long as ``stack`` is open.

    Raises RestoreError when any shard is missing, torn or of another kind.
    """
    if len(fds) != len(answer.copies):
        raise RestoreError("the agent sent other descriptors than it announced")
    found: dict[str, tuple[Entry, int]] = {}
    for copy, fd in zip(answer.copies, fds, strict=True):
        try:
            mapping = Mapping(fd, copy.size_bytes, writable=False)
        except (OSError, ValueError) as error:
            raise RestoreError(f"the agent's memory cannot be mapped: {error}") from error
        stack.callback(mapping.close)
        for entry in copy.entries:
            if entry.offset_bytes < 0 or entry.offset_bytes + entry.size_bytes > copy.size_bytes:
                raise RestoreError(f"shard {entry.name!r} lies outside of its copy")
            found[entry.name] = (entry, mapping.address + entry.offset_bytes)
    return [_matched(shard, found) for shard in shards]


def _matched(shard: ShardView, found: dict[str, tuple[Entry, int]]) -> Copy:
    if shard.name not in found:
        raise RestoreError(f"no copy holds shard {shard.name!r}")
    entry, address = found[shard.name]
    saved = (entry.size_bytes, entry.format, entry.shape)
    here = (shard.size_bytes, shard.format, shard.shape)
    if saved != here:
        raise RestoreError(
            f"shard {shard.name!r} was saved as (bytes, format, shape) {saved}, but is {here} here"
        )
    return Copy(shard.address, address, shard.size_bytes)
