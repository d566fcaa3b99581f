"""Change detection: a state that changed while it was copied is no snapshot of any step.

Optimizers wait for the copy by themselves; whatever else changes the state (an average of the
weights, a counter, a tensor of the script) has to wait too, and this finds out when it did not.
"""

import ctypes
from collections.abc import Sequence

from everstep.copy_engine.views import ShardView

# Torch counts the changes of a tensor, but not those through ".data" or a numpy array that shares
# its memory, and other libraries count none. So some bytes are looked at too: an update changes
# nearly all of an array. 256 arrays take 0.3 ms.
_SAMPLED_SHARDS_MAX = 256
_SAMPLE_BYTES = 64
# Where in a shard, in parts of its length.
_SAMPLES_AT = (0.0, 0.37, 0.73)


class Witness:
    """Versions and samples of a state when its copy began; made where the state is complete."""

    def __init__(self, shards: Sequence[ShardView]) -> None:
        self._shards = shards
        here = (shard for shard in shards if shard.cuda is None and shard.size_bytes)
        self._sampled = sorted(here, key=lambda shard: -shard.size_bytes)[:_SAMPLED_SHARDS_MAX]
        self._versions = _versions(shards)
        self._samples = [_sample(shard) for shard in self._sampled]

    def changed(self) -> str:
        """Return the name of a shard that is not what it was; "": none is known to be."""
        versions = _versions(self._shards)
        if versions != self._versions:
            pairs = zip(self._shards, versions, self._versions, strict=True)
            return next(shard.name for shard, now, then in pairs if now != then)
        for shard, then in zip(self._sampled, self._samples, strict=True):
            if _sample(shard) != then:
                return shard.name
        return ""


def _versions(shards: Sequence[ShardView]) -> list[object]:
    return [_version(shard.keep) for shard in shards]


def _version(array: object) -> object:
    try:
        return getattr(array, "_version", None)
    except RuntimeError:  # a tensor of torch.inference_mode() has no count
        return None


def _sample(shard: ShardView) -> bytes:
    end = max(0, shard.size_bytes - _SAMPLE_BYTES)
    size = min(_SAMPLE_BYTES, shard.size_bytes)
    return b"".join(ctypes.string_at(shard.address + int(end * at), size) for at in _SAMPLES_AT)
